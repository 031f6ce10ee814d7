"""Two builds of deadlined in one run: the installed one, and the same files without compiled modules.

Facts      The hot modules are typed Python that mypyc compiles if a C compiler is there; import prefers a compiled
           module to the file beside it.
Hazard     A checkout's own folder shadows the installed package when `python -m` runs inside it.
Answer     PYTHONPATH tells a subprocess which build it gets, and the current directory is kept off its path. The pure
           build is a copy of the package without compiled modules, made once per run.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import deadlined
from deadlined.timers import COMPILED

from ..servers import ROOT, ToolMissingError
from .contest import table
from .processes import scratch

INSTALLED = "deadlined"
PURE = "deadlined (pure)"

# of the C library's allocator, which keeps freed memory
KEEP_MEMORY: Mapping[str, str] = table("servers.toml")["keep_memory"]

_PACKAGE = Path(deadlined.__file__).resolve().parent


def not_installed(modules: Iterable[str]) -> str | None:
    """Say which of these modules are not installed, and what would help; None if all are."""
    absent = [name for name in modules if find_spec(name) is None]
    return f"not installed (pip install {' '.join(absent)})" if absent else None


def require_pyperf() -> None:
    """Raise ToolMissingError without the package that times operations in the measured processes."""
    if find_spec("pyperf") is None:
        raise ToolMissingError("pyperf is not installed (pip install -e '.[bench]')")


def missing(contestant: str) -> str | None:
    """Say why a contestant of this name is not there, if it is the installed build; None for the pure one and peers."""
    installed = contestant.startswith(INSTALLED) and not contestant.startswith(PURE)
    return "not compiled (pip install -e . with a C compiler)" if installed and not COMPILED else None


def environment(build: str) -> dict[str, str]:
    """Return the variables with which a subprocess imports this build; `build` is a contestant's name.

    A name that does not begin with PURE gets the installed build; peers do not import it anyway.
    """
    parent = _pure_copy() if build.startswith(PURE) else _PACKAGE.parent
    paths = [str(parent), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1"}


def surroundings(build: str, *, neutral: bool) -> dict[str, str]:
    """Return the whole environment of a server: the build it imports, one core for Go, and the allocator's settings,
    which are those of KEEP_MEMORY if `neutral`, and the defaults if not."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUN"))}
    return {**inherited, **environment(build), "GOMAXPROCS": "1", **(KEEP_MEMORY if neutral else {})}


@functools.cache
def _pure_copy() -> Path:
    if not COMPILED:
        return _PACKAGE.parent
    copy = scratch() / "pure" / "deadlined"
    shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    return copy.parent
