"""Import of the application that a command names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from .errors import WRONG_ARGUMENTS, StartupError


def load_app(name: str) -> Any:
    """Import `package.module:attribute` and return the object. `attribute` may be dotted; its default is `app`.

    The current directory is searched first. StartupError if the module does not exist, fails to import or lacks the
    attribute; an exception inside the module is chained, for its traceback.
    """
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _wrong(
            name, f"there is no module {error.name!r} (looked in {here} and the installed packages)"
        ) from error
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename}, line {where.lineno}"
        raise _wrong(name, f"importing {module_name!r} failed: {type(error).__name__}: {error} ({place})") from error
    for part in (attribute or "app").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _wrong(name, f"{module_name!r} has no {attribute or 'app'!r}") from None
    if not callable(found):
        raise _wrong(name, f"{attribute or 'app'!r} is a {type(found).__name__}, not an ASGI application")
    return found


def _wrong(name: str, why: str) -> StartupError:
    return StartupError(f"cannot load the application {name!r}: {why}; give it as package.module:app", WRONG_ARGUMENTS)
