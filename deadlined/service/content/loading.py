"""Import of the application that a command names, and its check.

What is not an ASGI 3 application is refused before the first connection: called with three arguments it would fail at
every request.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any

from ..errors import WRONG_ARGUMENTS, StartupError
from .importing import GIVE, failed, find, wrong

_GIVE_FACTORY = "give it as package.module:factory"


def load_app(name: str, *, factory: bool = False, directory: str | None = None) -> Any:
    """Import `package.module:attribute` and return the object. `attribute` may be dotted; its default is `app`.

    With `factory` the object is called without arguments, and what it returns is the application.

    `directory` (default: the current one) is searched first. StartupError if the module does not exist, fails to import
    or lacks the attribute, if the factory fails, and if the result is not an ASGI 3 application; the message says what
    to give instead. An exception inside the module or the factory is chained, and the error's `details` are its
    traceback.
    """
    found, label = find(name, absolute(directory or ""), _is_app)
    if factory:
        found, label = _made(name, found, label), f"what {label} returns"
    elif _is_factory(found):
        is_one = "is a class" if inspect.isclass(found) else "takes no arguments"
        raise wrong(name, f"{label} {is_one}, so it is not an ASGI application but may make one", "add --factory")
    why, instead = _objection(found)
    if why:
        raise wrong(name, f"{label} {why}", instead)
    return found


def absolute(directory: str) -> Path:
    """Return the whole path of a directory; "" is the current one. StartupError if that is needed and was removed."""
    try:
        return Path(directory).absolute()
    except OSError as error:
        why = f"the current directory cannot be used: {error.strerror}; start in another one, or give a whole --app-dir"
        raise StartupError(why, WRONG_ARGUMENTS) from None


def _made(name: str, factory: Any, label: str) -> Any:
    """Return what the factory returns."""
    if not _is_factory(factory):
        is_app = callable(factory) and not _objection(factory)[0]
        why = "is an ASGI application already" if is_app else "cannot be called without arguments"
        instead = "leave --factory out" if is_app else _GIVE_FACTORY
        raise wrong(name, f"{label} {why}", instead)
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise failed(name, f"calling {label}", error) from error
    if inspect.iscoroutine(made):
        made.close()
        raise wrong(name, f"{label} is a coroutine function", "make the application in a plain function")
    return made


def _is_app(found: Any) -> bool:
    """Return True for a function or an object that is certainly meant to be served: one that is called with await."""
    return callable(found) and not inspect.isclass(found) and _is_async(found) and not _objection(found)[0]


def _is_factory(found: Any) -> bool:
    """Return True if `found` can be called without arguments, and is not one that takes any number of them."""
    takes = _takes(found) if callable(found) else None
    return takes is not None and takes.least == 0 and takes.most != math.inf and not takes.keywords


def _objection(found: Any) -> tuple[str, str]:
    """Return why `found` is not an ASGI 3 application, and what to give instead; two empty strings if it may be one."""
    if not callable(found):
        return f"is of type {type(found).__name__}, not an ASGI application", GIVE
    takes = _takes(found)
    if takes is None:
        return "", ""
    if takes.keywords:
        return f"cannot be called with scope, receive, send: it needs {takes.keywords[0]!r}", GIVE
    if takes.least <= 3 <= takes.most:
        if inspect.isclass(found) and not hasattr(found, "__await__"):
            return "is a class, not an ASGI application", "give an object of it"
        return "", ""
    if (takes.least, takes.most) == (2, 2) and not _is_async(found):
        return "takes 2 arguments, as WSGI applications do (environ, start_response)", _instead_of_wsgi(found)
    if (takes.least, takes.most) == (1, 1) and not _is_async(found):
        return (
            "takes 1 argument, as applications of ASGI 2 did (scope)",
            "wrap it in asgiref.compatibility.guarantee_single_callable",
        )
    return f"cannot be called with scope, receive, send: it takes {takes}", GIVE


def _instead_of_wsgi(found: Any) -> str:
    package = type(found).__module__.partition(".")[0]
    if package == "django":
        return "give django.core.asgi.get_asgi_application(), and choose --loop asyncio"
    wrap = "wrap it in asgiref.wsgi.WsgiToAsgi, and choose --loop asyncio"
    return f"{wrap}; or use quart, which is flask for ASGI" if package == "flask" else wrap


@dataclass(frozen=True)
class _Takes:
    """What a callable takes: the least and the greatest number of positional arguments, and the keywords it needs."""

    least: int
    most: float
    keywords: list[str]

    def __str__(self) -> str:
        if self.least == self.most:
            return "1 argument" if self.most == 1 else f"{self.most} arguments"
        return f"{self.least} or more arguments" if self.most == math.inf else f"{self.least} to {self.most} arguments"


def _takes(found: Callable[..., object]) -> _Takes | None:
    """Return what `found` takes, None if it does not say."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None
    needed = [p for p in parameters if p.default is Parameter.empty]
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    endless = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    return _Takes(
        least=sum(p.kind in positional for p in needed),
        most=math.inf if endless else sum(p.kind in positional for p in parameters),
        keywords=[p.name for p in needed if p.kind is Parameter.KEYWORD_ONLY],
    )


def _is_async(found: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__)
