"""The lateness of timers, on an idle core and beside a busy loop.

Facts      Python's epoll counts in milliseconds and rounds up: a timer fires up to one late. Beside a busy loop the
           scheduler decides, in slices of a few milliseconds.
Hazard     A loop that rounds the other way is punctual on average and early half of the time.
Answer     The quantiles of all timers, and the share of early ones, which fails a run of ours.
Cost       For trio, which has no timers that call a function, a task waits for each.

Every process runs on core 0; the busy loop is a second process there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Self

from ..servers import on_core
from .builds import INSTALLED, PURE, environment
from .contest import Metric, Target
from .processes import SERVER_CORE, run
from .programs import Programs

# ours, and the milliseconds by which 99 of 100 are late at most on an idle machine
_PROMISED = {
    **dict.fromkeys((INSTALLED, PURE, f"{INSTALLED}, TimerThread"), 1.2),
    f"{INSTALLED}, precise": 0.25,
}


@contextmanager
def busy_core() -> Iterator[subprocess.Popen[bytes]]:
    """Run a busy loop on the core of the timers."""
    with on_core(SERVER_CORE):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    with process:
        try:
            yield process
        finally:
            process.kill()


class Lateness(Programs):
    """The benchmark `lateness`: `timers` within `spread` seconds."""

    name = "lateness"
    metrics: Mapping[str, Metric] = {
        **dict.fromkeys(("p50", "p90", "p99", "p99.9", "max"), Metric("ms", "less")),
        "early": Metric("%", "less"),
    }

    def __init__(self, timers: int = 10_000, spread: float = 1.0) -> None:
        self._sizes = timers, spread
        self.idle = f"{timers:,} timers, idle machine"
        self.busy = f"{timers:,} timers, beside a busy loop"
        self.title = f"Lateness of {timers:,} timers within {spread:g} s"
        self.targets: Sequence[Target] = [
            *(Target(case, "early", ours, "", at_most=0.0, always=True) for case in self.cases() for ours in _PROMISED),
            *(Target(self.idle, "p99", ours, "", at_most=bound) for ours, bound in _PROMISED.items()),
        ]

    def cases(self) -> Sequence[str]:
        return self.idle, self.busy

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with busy_core() if case == self.busy else nullcontext():
            return run(self.command(contestant, *self._sizes), environment(contestant))

    def quick(self) -> Self:
        return type(self)(timers=200, spread=0.1)


BENCHMARK = Lateness()
