"""Benchmarks: `python -m loadtest bench --list` names them.

`contest` says what a benchmark is, `runner` runs them in turns, `processes`, `builds` and `golang` start what is
measured. A benchmark NAME is `loadtest/bench/NAME.py` with a `BENCHMARK` in it, and is loaded when it is asked for.
Modules that run inside a measured process import of this package only what they measure.
"""

from __future__ import annotations

# measured unless others are named
NAMES = ("reset", "heap", "echo", "http", "duel", "idle", "churn", "lateness")

# measured only if they are named
ON_REQUEST = ("instructions",)
