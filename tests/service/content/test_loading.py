"""Finding the application that a command names."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined.service import StartupError
from deadlined.service.config import ServeConfig
from deadlined.service.content.application import Application
from deadlined.service.content.loading import load_app

MODULE = "an_app_of_these_tests"


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


def called(name: str) -> str:
    """Return what an application of these tests says of itself when it is called."""
    return str(load_app(name)(None, None, None))


def no_log(event: str, **fields: object) -> None:
    raise AssertionError(event)


def refusal(name: str, *, factory: bool = False) -> StartupError:
    with pytest.raises(StartupError) as caught:
        load_app(name, factory=factory)
    # the application's own failures may be over at the next start
    assert caught.value.exit_code == (1 if caught.value.details else 2)
    assert str(caught.value).startswith(f"cannot load the application {name!r}: ")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("directory", [None, "."])
def test_a_current_directory_that_was_removed_is_one_line(here: Path, directory: str | None) -> None:
    here.rmdir()
    with pytest.raises(StartupError, match="the current directory cannot be used: No such file or directory; ") as told:
        Application(ServeConfig(app=MODULE, app_dir=directory), no_log)
    assert told.value.exit_code == 2


def test_another_one_is_searched_also_if_the_current_one_was_removed(here: Path, tmp_path_factory: Any) -> None:
    here.rmdir()
    other = tmp_path_factory.mktemp("other")
    write(other, "async def app(scope, receive, send): ...")
    assert Application(ServeConfig(app=MODULE, app_dir=str(other)), no_log).title == MODULE


def test_the_current_directory_is_searched_first(here: Path) -> None:
    (here / "json").mkdir()
    write(here, "def app(scope, receive, send): return 'here'")
    assert called(f"{MODULE}:app") == "here"
    assert sys.path[0] == str(here)


def test_the_attribute_is_app_if_it_is_left_out(here: Path) -> None:
    write(here, "def app(*arguments): return 'app'\ndef other(*arguments): return 'other'")
    assert called(MODULE) == "app"
    assert called(f"{MODULE}:") == "app"
    assert called(f"{MODULE}:other") == "other"


def test_the_module_may_be_in_a_package_and_the_attribute_be_dotted(here: Path) -> None:
    (here / MODULE).mkdir()
    (here / MODULE / "web.py").write_text("class shop:\n    @staticmethod\n    def app(*_): return 'shop'")
    assert called(f"{MODULE}.web:shop.app") == "shop"


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(here: Path) -> None:
    error = refusal("no_such_module:app")
    assert "there is no module 'no_such_module'" in str(error)
    assert str(here) in str(error)


def test_a_missing_import_of_the_application_is_named_itself(here: Path) -> None:
    write(here, "import no_such_dependency")
    error = refusal(f"{MODULE}:app")
    assert "importing 'an_app_of_these_tests' failed: ModuleNotFoundError: No module named 'no_such_dependency'" in str(
        error
    )
    assert str(error).endswith(f"({here}/{MODULE}.py, line 1)")


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
    assert f"module '{MODULE}' has no attribute {attribute!r}; " in str(refusal(f"{MODULE}:{attribute}"))


def test_what_cannot_be_called_is_no_application(here: Path) -> None:
    write(here, "app = 5")
    assert str(refusal(MODULE)).endswith("'app' is of type int, not an ASGI application; give it as package.module:app")


def test_a_module_that_is_imported_already_is_taken(here: Path) -> None:
    assert load_app("shutil:copyfileobj") is shutil.copyfileobj


# what is near


APP = "async def app(scope, receive, send): ..."


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (f"{MODULE}:ap", f"{MODULE}:app"),
        (f"{MODULE}:shop.ap", f"{MODULE}:shop.app"),
        (f"{MODULE[:-1]}:app", f"{MODULE}:app"),
        (f"{MODULE}/web:app", None),
        (f"{MODULE}.py:app", f"{MODULE}:app"),
        (f"{MODULE}.py", f"{MODULE}:app"),
        (f"./{MODULE}.py", f"{MODULE}:app"),
        (f"shop/{MODULE}.py:api", f"shop.{MODULE}:api"),
        (f"shop.{MODULE}.py:api", f"shop.{MODULE}:api"),
        (f"shop.{MODULE[:-1]}:app", f"shop.{MODULE}:app"),
        (f"shpo.{MODULE}:app", f"shop.{MODULE}:app"),
        (f"../{MODULE}.py", None),
        ("nothing_alike:app", None),
    ],
)
def test_what_is_near_is_suggested(here: Path, name: str, meant: str | None) -> None:
    write(here, f"{APP}\nclass shop:\n    async def app(scope, receive, send): ...")
    (here / "shop").mkdir()
    (here / "shop" / f"{MODULE}.py").write_text(APP)
    try:
        error = str(refusal(name))
    finally:
        sys.modules.pop("shop", None)
    assert error.endswith(f"did you mean {meant!r}?" if meant else "; give it as package.module:app")


@pytest.mark.parametrize("name", ["shop.toml", "conf/shop.toml", "shop.conf"])
def test_a_file_of_settings_is_one_for_config(here: Path, name: str) -> None:
    (here / "shop.conf").touch()
    assert str(refusal(name)).endswith(f"{name!r} is a file, not a module; did you mean --config {name}?")


def test_no_file_is_looked_for_in_a_directory_that_may_not_be_searched(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, APP)

    def refuse(_: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "is_file", refuse)
    assert str(refusal("shop.conf")).startswith("cannot load the application 'shop.conf': there is no module 'shop'")


def test_an_application_of_another_name_is_suggested(here: Path) -> None:
    write(here, f"import json\n{APP.replace('app', 'site')}\ndef helper(): ...\nclass Shop: ...")
    assert str(refusal(MODULE)).endswith(f"has no attribute 'app'; did you mean '{MODULE}:site'?")


def test_a_module_that_hides_the_applications_is_named(here: Path) -> None:
    (here / "shutil.py").write_text(APP)
    error = str(refusal("shutil:app"))
    assert f"module 'shutil' has no attribute 'app': it is {shutil.__file__}, which hides {here}/shutil.py" in error


def test_another_directory_is_searched_and_named(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    there = tmp_path_factory.mktemp("there")
    write(there, "def app(*arguments): return 'there'")
    assert load_app(MODULE, directory=str(there))(None, None, None) == "there"
    with pytest.raises(StartupError, match=f"looked in {there} and the installed packages"):
        load_app("no_such_module", directory=str(there))


# what the application's own file has done wrong


def details(name: str, *, factory: bool = False) -> list[str]:
    """Return the traceback that is shown of an application that cannot be loaded."""
    lines = refusal(name, factory=factory).details.splitlines()
    files = [line for line in lines if line.startswith("  File")]
    assert not [line for line in files if "importlib" in line or "/deadlined/" in line]
    return lines


def test_the_traceback_begins_in_the_applications_own_file(here: Path) -> None:
    write(here, "import json\n\njson.loads('{')")
    error = refusal(MODULE)
    assert "failed: JSONDecodeError: Expecting property name enclosed in double quotes" in str(error)
    assert str(error).endswith(f"({here}/{MODULE}.py, line 3)"), "not the line of the json module"
    header, first, source, *_, last = details(MODULE)
    assert header == "Traceback (most recent call last):"
    assert (first, source) == (f'  File "{here}/{MODULE}.py", line 3, in <module>', "    json.loads('{')")
    assert last.startswith("json.decoder.JSONDecodeError: ")


def test_an_import_between_two_own_files_is_shown_without_the_import_system(here: Path) -> None:
    (here / MODULE).mkdir()
    (here / MODULE / "web.py").write_text("import importlib\nimportlib.import_module('an_app_of_these_tests.models')")
    (here / MODULE / "models.py").write_text("from .tables import table")
    lines = details(f"{MODULE}.web")
    files = [line.split('"')[1] for line in lines if line.startswith("  File")]
    assert files == [f"{here}/{MODULE}/web.py", f"{here}/{MODULE}/models.py"]
    # since 3.15 Python asks, too, whether another name was meant
    assert lines[-1].startswith(f"ModuleNotFoundError: No module named '{MODULE}.tables'")


def test_a_module_that_is_missing_inside_of_the_one_that_is_named_is_a_failure_of_it(here: Path) -> None:
    """Although the name that is missing is a part of the name that was given."""
    (here / MODULE).mkdir()
    (here / MODULE / "__init__.py").write_text(f"from {MODULE} import web\nimport {MODULE}.wob")
    (here / MODULE / "web.py").write_text(APP)
    error = refusal(f"{MODULE}.wob")
    assert f"failed: ModuleNotFoundError: No module named '{MODULE}.wob' ({here}/{MODULE}/__init__.py, line 2)" in str(
        error
    )
    assert error.details


def test_a_syntax_error_is_shown_with_its_line(here: Path) -> None:
    write(here, "import json\ndef app(:\n    pass")
    assert str(refusal(MODULE)).endswith(f"failed: SyntaxError: invalid syntax ({here}/{MODULE}.py, line 2)")
    lines = details(MODULE)
    assert lines[1:3] == [f'  File "{here}/{MODULE}.py", line 2', "    def app(:"]
    assert lines[-1] == "SyntaxError: invalid syntax"


def test_an_exit_is_a_failure(here: Path) -> None:
    write(here, "import sys\nsys.exit('set DATABASE_URL')")
    assert f"failed: SystemExit: set DATABASE_URL ({here}/{MODULE}.py, line 2)" in str(refusal(MODULE))


def test_a_name_that_cannot_be_imported_is_a_failure(here: Path) -> None:
    write(here, "from json import no_such_name")
    assert "failed: ImportError: cannot import name 'no_such_name' from 'json'" in str(refusal(MODULE))


def test_a_message_of_several_lines_stays_one_line(here: Path) -> None:
    write(here, "raise ValueError('one\\ntwo\\x1b[31m')")
    assert f"failed: ValueError: one ({here}/{MODULE}.py, line 1)" in str(refusal(MODULE))


def test_what_is_found_but_not_there_has_no_traceback(here: Path) -> None:
    write(here, APP)
    assert not refusal(f"{MODULE}:ap").details
    assert not refusal("no_such_module").details


# what is an application, and what to give instead

APPLICATIONS = {
    "a function": "async def app(scope, receive, send): ...",
    "a function with an option": "async def app(scope, receive, send, option=1): ...",
    "a function of anything": "def app(*arguments): ...",
    "an object": "class App:\n    async def __call__(self, scope, receive, send): ...\napp = App()",
    "an object that returns an awaitable": "class App:\n    def __call__(self, scope, receive, send): ...\napp = App()",
    "a class whose objects are awaited": (
        "class app:\n    def __init__(self, scope, receive, send): ...\n    def __await__(self): yield"
    ),
    "a wrapped function": (
        "import functools\nasync def inner(scope, receive, send): ...\n"
        "@functools.wraps(inner)\ndef app(*arguments, **named): ..."
    ),
    "a partial function": (
        "import functools\nasync def inner(shop, scope, receive, send): ...\napp = functools.partial(inner, 1)"
    ),
    "what does not say": "app = max",
}


@pytest.mark.parametrize("text", APPLICATIONS.values(), ids=APPLICATIONS)
def test_what_takes_three_arguments_is_an_application(here: Path, text: str) -> None:
    write(here, text)
    assert callable(load_app(MODULE))


FACTORIES = {
    "a function": "def app(): return application",
    "a function with options": "def app(settings=None): return application",
    "a function with three options": "def app(a=1, b=2, c=3): return application",
    "a class": "class app:\n    async def __call__(self, scope, receive, send): return 'made'",
    "a named option": "def app(*, debug=False): return application",
}


@pytest.mark.parametrize("text", FACTORIES.values(), ids=FACTORIES)
def test_a_factory_is_called_if_that_is_wanted_and_else_refused(here: Path, text: str) -> None:
    write(here, f"async def application(scope, receive, send): return 'made'\n{text}")
    assert str(refusal(MODULE)).endswith("so it is not an ASGI application but may make one; add --factory")
    app = load_app(MODULE, factory=True)
    with pytest.raises(StopIteration) as ended:
        app(None, None, None).send(None)
    assert ended.value.value == "made"


WRONG = {
    "wsgi": (
        "def app(environ, start_response): ...",
        "'app' takes 2 arguments, as WSGI applications do (environ, start_response); "
        "wrap it in asgiref.wsgi.WsgiToAsgi, and choose --loop asyncio",
    ),
    "flask": (
        "import flask\napp = flask.Flask(__name__)",
        "wrap it in asgiref.wsgi.WsgiToAsgi, and choose --loop asyncio; or use quart, which is flask for ASGI",
    ),
    "django": (
        "from django.conf import settings\nsettings.configured or settings.configure()\n"
        "from django.core.handlers.wsgi import WSGIHandler\napp = WSGIHandler.__new__(WSGIHandler)",
        "give django.core.asgi.get_asgi_application(), and choose --loop asyncio",
    ),
    "a function of ASGI 2": (
        "def app(scope): ...",
        "'app' takes 1 argument, as applications of ASGI 2 did (scope); "
        "wrap it in asgiref.compatibility.guarantee_single_callable",
    ),
    "a class of ASGI 2": (
        "class app:\n    def __init__(self, scope): ...\n    async def __call__(self, receive, send): ...",
        "as applications of ASGI 2 did (scope)",
    ),
    "a class": (
        "class app:\n    def __init__(self, a, b, c): ...\n    async def __call__(self, scope, receive, send): ...",
        "'app' is a class, not an ASGI application; give an object of it",
    ),
    "an async function of two": (
        "async def app(receive, send): ...",
        "'app' cannot be called with scope, receive, send: it takes 2 arguments; give it as package.module:app",
    ),
    "an async function of one": ("async def app(request): ...", "it takes 1 argument; give it"),
    "too many": ("def app(a, b, c, d): ...", "it takes 4 arguments; give it"),
    "too few": ("def app(a, b=1): ...", "it takes 1 to 2 arguments; give it"),
    "far too many": ("def app(a, b, c, d, *others): ...", "it takes 4 or more arguments; give it"),
    "a keyword": (
        "def app(a, b, c, *, shop): ...",
        "cannot be called with scope, receive, send: it needs 'shop'; give it",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_no_application_is_refused_with_what_to_give(here: Path, text: str, said: str) -> None:
    write(here, text)
    assert said in str(refusal(MODULE))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("async def app(scope, receive, send): ...", "'app' is an ASGI application already; leave --factory out"),
        ("app = 5", "'app' cannot be called without arguments; give it as package.module:factory"),
        ("def app(settings): ...", "'app' cannot be called without arguments; give it as package.module:factory"),
        ("def app(*, settings): ...", "'app' cannot be called without arguments; give it as package.module:factory"),
        ("def app(): return None", "what 'app' returns is of type NoneType, not an ASGI application; give it"),
        ("def app(): return lambda environ, start_response: []", "what 'app' returns takes 2 arguments, as WSGI"),
        ("async def app(): ...", "'app' is a coroutine function; make the application in a plain function"),
        ("def app(): 1 / 0", "calling 'app' failed: ZeroDivisionError: division by zero ("),
        ("import asyncio\ndef app(): asyncio.get_running_loop()", "; make what needs an event loop in the lifespan"),
    ],
)
def test_what_is_no_factory_is_refused_with_what_to_give(here: Path, text: str, said: str) -> None:
    write(here, text)
    assert said in str(refusal(MODULE, factory=True))


def test_an_error_in_a_factory_is_chained(here: Path) -> None:
    write(here, "def app(): raise LookupError('no database')")
    error = refusal(MODULE, factory=True)
    assert isinstance(error.__cause__, LookupError)
    assert details(MODULE, factory=True)[1] == f'  File "{here}/{MODULE}.py", line 1, in app'
    assert f"{MODULE}.py, line 1)" in str(error)
