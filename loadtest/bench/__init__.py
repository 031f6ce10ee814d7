"""Benchmarks: `python -m loadtest bench --list` names them.

`contest` defines what a benchmark is, `runner` runs them in turns, and `processes`, `builds` and `golang` start the
programs. Each benchmark is one of `BENCHMARKS` in its module, which is imported on demand. Modules that run inside a
measured process import only what they measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# by name, their modules
MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("reset", "heap", "wakes", "echo", "lateness", "churn"), f"{__name__}.programs"),
    **dict.fromkeys(("http", "duel", "idle"), f"{__name__}.web"),
    "instructions": f"{__name__}.instructions",
    "proxied": f"{__name__}.web",
    "schemes": "loadtest.schemes.benchmark",
}

# measured only if they are named
ON_REQUEST: Final = ("instructions", "schemes")

# measured unless others are named
NAMES: Final = tuple(name for name in MODULES if name not in ON_REQUEST)
