"""Fresh processes that measure and print their figures as JSON.

Every measurement has a process of its own, so no contestant inherits the heap, the caches or the garbage of the one
before it. Python programs are started as `python -m loadtest.bench.MODULE ARGUMENTS`, which prints one JSON object of
metrics as its last line.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..servers import ROOT, on_core
from .contest import ContestantError

# the cores of the measured process and of its client: the first two of those that this process may use, or its only one
_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
SERVER_CORE, CLIENT_CORE = _CORES[0], _CORES[:2][-1]

# seconds after which a measuring process is killed
PATIENCE = 300.0


def output(
    command: Sequence[str], environment: Mapping[str, str] = {}, *, core: int | None = None, seconds: float = PATIENCE
) -> tuple[str, str]:
    """Run a command to its end, and return what it printed and its errors. `environment` is added to this process's.

    ContestantError with both if it fails, or takes longer than `seconds`.
    """
    around = {**os.environ, **environment}
    try:
        # this thread is on that core, too, but only waits
        with on_core(core):
            done = subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, encoding="utf-8",
                                  errors="replace", timeout=seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = b"".join(part for part in (error.stdout, error.stderr) if part).decode("utf-8", "replace")
        raise ContestantError(f"gave no answer in {seconds:g} s\n{said}") from None
    if done.returncode:
        raise ContestantError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def run(
    command: Sequence[str], environment: Mapping[str, str] = {}, *, core: int = SERVER_CORE, seconds: float = PATIENCE
) -> dict[str, float]:
    """Run a command to its end and return the JSON object in its last line of output.

    ContestantError with its output if it fails, takes longer than `seconds` or prints something else.
    """
    printed, errors = output(command, environment, core=core, seconds=seconds)
    try:
        found = json.loads((printed.splitlines() or [""])[-1])
        return {str(name): float(value) for name, value in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise ContestantError(f"printed no figures\n{printed}{errors}") from None


@functools.cache
def scratch() -> Path:
    """Make a folder for this process, which is deleted with it."""
    folder = Path(tempfile.mkdtemp(prefix="deadlined-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
