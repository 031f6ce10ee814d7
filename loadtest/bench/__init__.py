"""Benchmarks: `python -m loadtest bench --list` names them.

`contest` defines what a benchmark is, `runner` runs them in turns, and `processes`, `builds` and `golang` start the
programs. Each benchmark is `BENCHMARK` in its module, which is imported on demand, or one of programs, which
benchmarks.toml lists. Modules that run inside a measured process import only what they measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# by name, their modules
MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("reset", "heap", "wakes", "echo", "lateness", "churn"), f"{__name__}.programs"),
    "http": f"{__name__}.web",  # a module named http would hide the standard library's
    **{name: f"{__name__}.{name}" for name in ("duel", "idle", "instructions", "proxied")},
    "schemes": "loadtest.schemes.benchmark",
}

# measured only if they are named
ON_REQUEST: Final = ("instructions", "schemes")

# measured unless others are named
NAMES: Final = tuple(name for name in MODULES if name not in ON_REQUEST)
