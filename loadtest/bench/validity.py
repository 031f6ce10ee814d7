"""Figures that do not count, and why. Pure.

Facts      A server that waits for its client shows the client's rate. A deadline costs something, or nothing.
Hazard     Both give a figure like any other.
Answer     Where the server must be the bottleneck, one that used less than BUSY per cent of its core is invalid. So are
           two figures of one server of which that with deadlines is the better one, beyond the interval of their ratio.
Cost       Deadlines that cost nothing are found faster by chance, in one of forty pairs.
"""

from __future__ import annotations

from typing import Final

from .contest import Benchmark
from .results import Results

# per cent of a core
BUSY: Final = 85.0
# what a server with deadlines may seem to be better by; two starts differ by as much
SAME: Final = 0.01


def judge(benchmark: Benchmark, results: Results) -> dict[tuple[str, str], str]:
    """Return why the figures of a contestant in a case do not count, for each of which they do not."""
    found: dict[tuple[str, str], str] = {}
    for name, case in results.pairs:
        busy = results.median(name, case, "busy")
        if busy is not None and busy < BUSY and benchmark.saturates(case):
            found[name, case] = f"the server was not the bottleneck: it used {busy:.0f} % of its core"
    for case in results.cases:
        for ours, bare in benchmark.bare.items():
            if any(_better(results, case, metric, ours, bare) for metric in ("rate", "cpu")):
                found.setdefault((ours, case), f"it was faster with deadlines than without ({bare})")
                found.setdefault((bare, case), f"it was slower without deadlines than with them ({ours})")
    return found


def _better(results: Results, case: str, metric: str, ours: str, bare: str) -> bool:
    ratio = results.ratio(case, metric, ours, bare)
    kind = results.metrics.get(metric)
    if ratio is None or kind is None:
        return False
    return ratio.low > 1 + SAME if kind.better == "more" else ratio.high < 1 - SAME
