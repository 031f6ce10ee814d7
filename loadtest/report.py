"""Tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console

import deadlined
from deadlined.timers import COMPILED

from .commands import as_text, now, put
from .output import OUTPUT
from .servers import told_version

# what is measured, and what it is measured with
_PEERS = (
    "uvicorn", "hypercorn", "granian", "fastpysgi", "socketify", "trio", "uvloop", "h11", "httptools", "websockets",
    "starlette", "fastapi", "pyperf",
)  # fmt: skip

RESULTS = Path(__file__).resolve().parent / "results"

# A pipe or a file has no width of its own. What a server calls itself may look like the name of an emoji.
console = Console(file=cast("IO[str]", OUTPUT), width=None if OUTPUT.isatty() else 120, emoji=False)


def machine() -> dict[str, Any]:
    """Describe the machine and the builds that figures were measured with."""
    return {
        "deadlined": deadlined.__version__,
        "timers": "compiled" if COMPILED else "pure Python",
        "python": platform.python_version(),
        # its speed depends on how it was built
        "python build": f"{platform.python_build()[1]}, {platform.python_compiler()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "governor": _kernel_says("cpu0/cpufreq/scaling_governor"),
        "smt": {"0": "off", "1": "on"}.get(_kernel_says("smt/active"), "unknown"),
        "malloc": malloc(),
    }


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of all peers, and of what measures them, as far as they are installed."""
    found = {}
    for name in _PEERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found | {name: told_version(name, "-v") for name in ("wrk", "nginx") if shutil.which(name)}


def revision(within: Path = Path(__file__).parent) -> dict[str, Any]:
    """Return the commit of this checkout, if files differ from it (`dirty`), and a digest of how (`changes`).

    Those in docs/, where results are kept, are no matter; of files that are in no commit, those of the packages count.
    None, False and "" where there is no git.
    """
    git = ["git", "-C", str(within), "-c", "safe.directory=*"]
    try:
        commit = subprocess.check_output([*git, "rev-parse", "HEAD"], stderr=subprocess.DEVNULL).decode().strip()
        changes = subprocess.check_output([*git, "diff", "HEAD", "--", ":/", ":(top,exclude)docs"])
        others = [*git, "ls-files", "-z", "--others", "--exclude-standard", "--", ":/deadlined", ":/loadtest"]
        for name in os.fsdecode(subprocess.check_output(others)).split("\0"):
            if (within / name).is_file():
                changes += os.fsencode(name) + (within / name).read_bytes()
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": False, "changes": ""}
    digest = hashlib.sha256(changes).hexdigest()[:12] if changes else ""
    return {"commit": commit, "dirty": bool(changes), "changes": digest}


def malloc(environment: Mapping[str, str] = os.environ) -> str:
    """Return the settings of the C library's allocator, which alone can make an event loop a third faster."""
    others = ("GLIBC_TUNABLES", "LD_PRELOAD", "PYTHONMALLOC")
    names = [name for name in sorted(environment) if name.startswith("MALLOC_") or name in others]
    return " ".join(f"{name}={environment[name]}" for name in names) or "defaults"


def _processor() -> str:
    # the only place where Linux names the model
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _kernel_says(path: str) -> str:
    """Return what Linux says of its processors; "unknown" where it does not, as in many virtual machines."""
    with contextlib.suppress(OSError):
        return Path("/sys/devices/system/cpu", path).read_text(encoding="utf-8").strip()
    return "unknown"


def save(path: Path, result: Mapping[str, Any]) -> None:
    """Write `result` and the time to a file of JSON, and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, as_text({"at": now(), **result}))
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    console.print(f"written to {shown}", markup=False)
