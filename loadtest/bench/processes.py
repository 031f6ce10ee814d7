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
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..servers import ROOT, on_core
from .contest import ContestantError

# the cores of the measured process and of its client
SERVER_CORE = 0
CLIENT_CORE = 1

# disturbs a running process, given by its id, until the context ends
Pressure = Callable[[int], AbstractContextManager[Any]]

# what a process prints that can be disturbed from then on
_WARM = b"warm\n"

# seconds after which a measuring process is killed
PATIENCE = 300.0


def python(module: str, *arguments: str | int | float) -> list[str]:
    """Return the command of a module of this package: `python("heap_child", 1000)`."""
    return [sys.executable, "-m", f"loadtest.bench.{module}", *map(str, arguments)]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    core: int | None = SERVER_CORE,
    seconds: float = PATIENCE,
    beside: Pressure = nullcontext,
) -> dict[str, float]:
    """Run a command to its end and return the JSON object in its last line of output.

    `environment` is added to this process's own. `beside`: what disturbs the process, given by its id, from its line
    "warm" to its end; without it no such line is awaited. ContestantError with its output if it fails, takes longer
    than `seconds` or prints something else.
    """
    with on_core(core):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # `communicate` would not see what a buffer has read beyond the first line
            bufsize=0,
        )
    late = threading.Timer(seconds, process.kill)
    late.start()
    with process:
        try:
            assert process.stdout is not None
            first = b"" if beside is nullcontext else process.stdout.readline()
            with beside(process.pid) if first == _WARM else nullcontext():
                rest, said = process.communicate()
        finally:
            in_time = late.is_alive()
            late.cancel()
            process.kill()
    output, errors = ((first + rest).decode("utf-8", "replace"), said.decode("utf-8", "replace"))
    if not in_time:
        raise ContestantError(f"gave no answer in {seconds:g} s\n{output}{errors}")
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
