"""Two builds of deadlined in one run: the one that is installed, and the same files without their machine code.

Facts      The hot rooms are typed Python that mypyc compiles when a C compiler is there; import prefers the compiled
           module that lies beside the file.
Hazard     A checkout's own folder shadows what is installed as soon as `python -m` is run inside it.
Answer     A subprocess is told by PYTHONPATH which build it gets, before anything else, and the current directory is
           kept off its path. The pure build is a copy of the package without compiled modules, made once per run.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import deadlined
from deadlined.timers import COMPILED

from ..servers import ROOT
from .contest import Contestant

INSTALLED: Final = "deadlined"
PURE: Final = "deadlined (pure)"

_PACKAGE = Path(deadlined.__file__).resolve().parent


def contestants() -> tuple[Contestant, Contestant]:
    """Both builds; the compiled one is missing where the installed one is not compiled."""
    why = None if COMPILED else "not compiled (pip install -e . with a C compiler)"
    return Contestant(INSTALLED, why), Contestant(PURE)


def environment(build: str) -> dict[str, str]:
    """What a subprocess needs to import this build: a contestant's name, or one that begins with it.

    Whatever is not a pure build of ours gets the installed one, which peers do not import anyway.
    """
    parent = _pure_copy() if build.startswith(PURE) else _PACKAGE.parent
    rest = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(parent), *rest])), "PYTHONSAFEPATH": "1"}


@functools.cache
def _pure_copy() -> Path:
    if not COMPILED:
        return _PACKAGE.parent
    directory = Path(tempfile.mkdtemp(prefix="deadlined-pure-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(_PACKAGE, directory / "deadlined", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    return directory
