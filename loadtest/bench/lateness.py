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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from ..servers import on_core
from .processes import SERVER_CORE
from .programs import Programs


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
    """The benchmark `lateness`."""

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with busy_core() if case.endswith("beside a busy loop") else nullcontext():
            return super().measure(contestant, case)


BENCHMARK = Lateness("lateness")
