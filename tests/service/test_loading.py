"""Finding the application that a command names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined.service import StartupError
from deadlined.service.loading import load_app

MODULE = "an_app_of_the_test"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory: empty, and forgotten by the import system afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # the import system remembers a directory's listing by its time stamp, which is too coarse for a test
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]


def write(directory: Path, text: str) -> None:
    (directory / f"{MODULE}.py").write_text(text)


def refusal(name: str) -> StartupError:
    with pytest.raises(StartupError) as caught:
        load_app(name)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"cannot load the application {name!r}: ")
    assert str(caught.value).endswith("; give it as package.module:app")
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_current_directory_is_searched_first(here: Path) -> None:
    (here / "json").mkdir()
    write(here, "def app(): return 'here'")
    assert load_app(f"{MODULE}:app")() == "here"
    assert sys.path[0] == str(here)


def test_the_attribute_is_app_if_it_is_left_out(here: Path) -> None:
    write(here, "def app(): return 'app'\ndef other(): return 'other'")
    assert load_app(MODULE)() == "app"
    assert load_app(f"{MODULE}:")() == "app"
    assert load_app(f"{MODULE}:other")() == "other"


def test_the_module_may_be_in_a_package_and_the_attribute_be_dotted(here: Path) -> None:
    (here / MODULE).mkdir()
    (here / MODULE / "web.py").write_text("class shop:\n    @staticmethod\n    def app(): return 'shop'")
    assert load_app(f"{MODULE}.web:shop.app")() == "shop"


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(here: Path) -> None:
    error = refusal("no_such_module:app")
    assert "there is no module 'no_such_module'" in str(error)
    assert str(here) in str(error)


def test_a_missing_import_of_the_application_is_named_itself(here: Path) -> None:
    write(here, "import no_such_dependency")
    assert "there is no module 'no_such_dependency'" in str(refusal(f"{MODULE}:app"))


def test_an_error_while_importing_is_named_and_chained(here: Path) -> None:
    write(here, "1 / 0")
    error = refusal(f"{MODULE}:app")
    assert f"importing '{MODULE}' failed: ZeroDivisionError: division by zero" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("name", ["", ":app"])
def test_a_name_without_a_module_is_refused(here: Path, name: str) -> None:
    assert "importing '' failed" in str(refusal(name))


@pytest.mark.parametrize("attribute", ["web", "json.web", "json.dumps.web"])
def test_an_attribute_that_is_not_there_is_named(here: Path, attribute: str) -> None:
    write(here, "import json")
    assert f"'{MODULE}' has no {attribute!r}" in str(refusal(f"{MODULE}:{attribute}"))


def test_what_cannot_be_called_is_no_application(here: Path) -> None:
    write(here, "app = 5")
    assert "'app' is a int, not an ASGI application" in str(refusal(MODULE))


def test_a_module_that_is_imported_already_is_taken(here: Path) -> None:
    assert load_app("json:dumps") is json.dumps
