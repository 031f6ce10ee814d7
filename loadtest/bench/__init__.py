"""Benchmarks: `python -m loadtest bench --list` names them.

`contest` defines what a benchmark is, `runner` runs them in turns, and `processes`, `builds` and `golang` start the
programs. Benchmark NAME is `BENCHMARK` in `loadtest/bench/NAME.py` (`http`: web.py) and is imported on demand. Modules
that run inside a measured process import only what they measure.
"""

from __future__ import annotations

# measured unless others are named
NAMES = ("reset", "heap", "echo", "http", "duel", "idle", "churn", "garbage", "lateness")

# measured only if they are named
ON_REQUEST = ("instructions", "tls", "websockets")
