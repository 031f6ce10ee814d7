"""The object that a command names as `package.module:attribute`, and suggestions for a name that does not exist.

Facts      A module that is not there and an import that fails inside of one raise the same error. The import system's
           frames lie around each import.
Hazard     A message that names the standard library's module hides the application's line that has failed.
Answer     The error of a look-up has no frames but the import system's. All others are the application's, and are
           shown from its own file on.
"""

from __future__ import annotations

import importlib
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import FAILED, WRONG_ARGUMENTS, StartupError
from ..log.style import harmless
from ..log.tracebacks import innermost, is_of_server, message, place, shown

GIVE = "give it as package.module:app"

# the most names that a message suggests
_MOST = 3


def wrong(name: str, why: str, instead: str) -> StartupError:
    """Make the error of an application that cannot be loaded under this name: why, and what to do instead."""
    return StartupError(f"cannot load the application {name!r}: {why}; {instead}", WRONG_ARGUMENTS)


def failed(name: str, what: str, error: BaseException) -> StartupError:
    """Make the error of an application whose own code has raised `error`. The name is right: what has failed, such as a
    database that is away, may succeed at the next start."""
    # what asyncio says; uvicorn imports in a loop that runs
    instead = "; make what needs an event loop in the lifespan" if "no running event loop" in str(error) else ""
    why = f"{what} failed: {told(error)}{instead}"
    return StartupError(f"cannot load the application {name!r}: {why}", FAILED, shown(error))


def told(error: BaseException) -> str:
    """Return the kind of an error, what it says in one line, and the application's line where it was raised; of a group
    those of its innermost error."""
    error = innermost(error)
    first = harmless(next(iter(message(error).strip().splitlines()), ""))
    frame = place(error)
    where = "" if frame is None else f" ({frame.filename}, line {frame.lineno})"
    return f"{type(error).__name__}{': ' if first else ''}{first}{where}"


def require_module(name: str, directory: Path) -> None:
    """Raise StartupError for `package.module:attribute` if no module can have such a name: it is that of a file, for
    example. Imports nothing. `directory` is where a file of Python would be looked for."""
    module_name, _, attribute = name.partition(":")
    if _is_of_settings(name):
        raise wrong(name, f"{name!r} is a file, not a module", f"did you mean --config {shlex.quote(name)}?")
    bare = module_name.removesuffix(".py")
    # with dots for directories, too
    file = f"{bare if '/' in bare else bare.replace('.', '/')}.py"
    if "/" in module_name or (bare != module_name and _is_file(directory / file)):
        parts = Path(file).with_suffix("").parts
        meant = ".".join(part for part in parts if part not in (".", "/"))
        exists = _is_file(directory / file) and not Path(file).is_absolute() and ".." not in parts
        near = [f"{meant}:{attribute or 'app'}"] if exists else []
        raise wrong(name, f"{module_name!r} is a file, not a module", _did_you_mean(near))
    if not all(module_name.split(".")):
        raise wrong(name, f"importing {module_name!r} failed: it is not the name of a module", GIVE)


def _is_of_settings(name: str) -> bool:
    """Return True if what was given for an application is the name of a file that is to be read with --config."""
    suffix = Path(name).suffix
    return ":" not in name and (suffix == ".toml" or (suffix not in ("", ".py") and _is_file(Path(name))))


def _is_file(path: Path) -> bool:
    """Return True if it is known to be a file: the user may not be allowed to search the directory."""
    try:
        return path.is_file()
    except OSError:
        return False


def find(name: str, directory: Path, is_app: Callable[[Any], bool]) -> tuple[Any, str]:
    """Import the module and return the object, and how a message calls it. `directory` is searched first.

    StartupError if there is none, or its import fails. `is_app` tells which objects may be suggested.
    """
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "app"
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    found: Any = _imported(name, module_name, attribute, directory)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            why = f"module {module_name!r} has no attribute {attribute!r}{_hiding(module_name, directory)}"
            # the suggestion replaces one part of a dotted name
            before = attribute[: len(attribute) - len(part)] if attribute.endswith(f".{part}") else ""
            near = [f"{module_name}:{before}{each}" for each in _near_attributes(found, part, is_app)]
            raise wrong(name, why, _did_you_mean(near)) from None
    return found, repr(attribute)


def _imported(name: str, module_name: str, attribute: str, directory: Path) -> Any:
    require_module(name, directory)
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not isinstance(error, ModuleNotFoundError) or any(not is_of_server(each.filename) for each in frames):
            raise failed(name, f"importing {module_name!r}", error) from error
        missing = error.name or module_name
        why = f"there is no module {missing!r} (looked in {directory} and the installed packages)"
        rest = module_name.removeprefix(missing)
        near = [f"{each}{rest}:{attribute}" for each in _near_modules(missing, directory)]
        raise wrong(name, why, _did_you_mean(near)) from error


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(map(repr, names))}?" if names else GIVE


def _hiding(module_name: str, directory: Path) -> str:
    """Say if the module is another one than the file in `directory` that has its name."""
    own = directory / f"{module_name.replace('.', '/')}.py"
    file = getattr(sys.modules.get(module_name), "__file__", None) or "a part of Python"
    if not own.is_file() or (Path(file).exists() and own.samefile(file)):
        return ""
    return f": it is {file}, which hides {own} because it was imported before; rename yours"


def _near_modules(missing: str, directory: Path) -> list[str]:
    """Return the full names of modules whose names are like that of the module that was not found."""
    parent, _, leaf = missing.rpartition(".")
    path = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [str(directory)]
    names = {module.name for module in pkgutil.iter_modules(path)} | set(_folders(path))
    return [f"{parent}.{each}" if parent else each for each in get_close_matches(leaf, sorted(names), _MOST)]


def _folders(path: Iterable[str]) -> Iterable[str]:
    """Give the folders that can be imported although they have no `__init__.py`."""
    for each in path:
        try:
            yield from (folder.parent.name for folder in Path(each).glob("*/*.py") if folder.parent.name.isidentifier())
        except OSError:
            continue


def _near_attributes(found: Any, missing: str, is_app: Callable[[Any], bool]) -> list[str]:
    """Return the attributes that may be meant: those with a similar name, applications first, or all applications if
    there are few."""
    public = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
    apps = [name for name in public if is_app(vars(found)[name])]
    near = get_close_matches(missing, apps, _MOST) or get_close_matches(missing, public, _MOST)
    return near or (apps if len(apps) <= _MOST else [])
