"""Fresh processes that measure and print their figures as JSON.

Every measurement has a process of its own, so no contestant inherits the heap, the caches or the garbage of the one
before it. Python programs are started as `python -m loadtest.bench.MODULE ARGUMENTS`, which prints one JSON object of
metrics as its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from ..servers import ROOT, on_core
from .contest import ContestantError

# the cores of the measured process and of its client
SERVER_CORE = 0
CLIENT_CORE = 1

# seconds after which a measuring process is killed
PATIENCE = 300.0


def python(module: str, *arguments: str | int | float) -> list[str]:
    """Return the command of a module of this package: `python("idle_client", 1000)`."""
    return [sys.executable, "-m", f"loadtest.bench.{module}", *map(str, arguments)]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    core: int | None = SERVER_CORE,
    seconds: float = PATIENCE,
) -> dict[str, float]:
    """Run a command to its end and return the JSON object in its last line of output.

    `environment` is added to this process's own. ContestantError with its output if it fails, takes longer than
    `seconds` or prints something else.
    """
    with on_core(core):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    with process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise ContestantError(f"gave no answer in {seconds:g} s\n{output}{errors}") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ContestantError(f"exit code {process.returncode}\n{output}{errors}")
    return _figures(output, errors)


def _figures(output: str, errors: str) -> dict[str, float]:
    lines = output.splitlines() or [""]
    try:
        found = json.loads(lines[-1])
        return {str(name): float(value) for name, value in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise ContestantError(f"printed no figures\n{output}{errors}") from None
