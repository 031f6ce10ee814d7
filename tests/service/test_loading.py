"""Finding the application that a command names."""

from __future__ import annotations

import shutil
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


def called(name: str) -> str:
    """Return what an application of these tests says of itself when it is called."""
    return str(load_app(name)(None, None, None))


def refusal(name: str, *, factory: bool = False) -> StartupError:
    with pytest.raises(StartupError) as caught:
        load_app(name, factory=factory)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"cannot load the application {name!r}: ")
    assert "\n" not in str(caught.value)
    return caught.value


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
    assert str(refusal(MODULE)).endswith("'app' is a int, not an ASGI application; give it as package.module:app")


def test_a_module_that_is_imported_already_is_taken(here: Path) -> None:
    assert load_app("shutil:copyfileobj") is shutil.copyfileobj


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
    assert str(refusal(MODULE)).endswith("so it is no ASGI application but may make one; add --factory")
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
        ("def app(): return None", "what 'app' returns is a NoneType, not an ASGI application; give it"),
        ("def app(): return lambda environ, start_response: []", "what 'app' returns takes 2 arguments, as WSGI"),
        ("async def app(): ...", "'app' is a coroutine function; make the application in a plain function"),
        ("def app(): 1 / 0", "calling 'app' failed: ZeroDivisionError: division by zero ("),
    ],
)
def test_what_is_no_factory_is_refused_with_what_to_give(here: Path, text: str, said: str) -> None:
    write(here, text)
    assert said in str(refusal(MODULE, factory=True))


def test_an_error_in_a_factory_is_chained(here: Path) -> None:
    write(here, "def app(): raise LookupError('no database')")
    error = refusal(MODULE, factory=True)
    assert isinstance(error.__cause__, LookupError)
    assert f"{MODULE}.py, line 1)" in str(error)
