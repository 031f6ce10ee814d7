"""The lateness of timers, on an idle core and beside a busy loop.

Facts      Python's epoll counts in milliseconds and rounds up: a timer fires up to one late. Beside a busy loop the
           scheduler decides, in slices of a few milliseconds.
Hazard     A loop that rounds the other way is punctual on average and early half of the time.
Answer     The quantiles of all timers, and the share of early ones, which fails a run of ours.
Cost       For a peer without timers that call a function (trio, connections), a task waits for each.

Every process runs on core 0; the busy loop is a second process there.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, Self

from ..servers import on_core, raise_file_limit
from . import builds, golang
from .contest import Benchmark, Contestant, Metric, Target
from .processes import SERVER_CORE, run

TRIO: Final = "trio sleep_until"
ASYNCIO: Final = "asyncio call_at"
UVLOOP: Final = "uvloop call_at"
GO: Final = "Go AfterFunc"
# the suffixes of ours, beside `after_func`
CONN: Final = ", Conn"
PRECISE: Final = ", precise"
THREAD: Final = ", TimerThread"

# a module of loadtest.peers and its variant; what is not here is `after_func` of ours
_PEERS: Final = {TRIO: "trio sleep", ASYNCIO: "asyncio asyncio", UVLOOP: "asyncio uvloop"}
_WAYS: Final = {CONN: "trio conn", THREAD: "trio thread"}


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


class Lateness(Benchmark):
    """The benchmark `lateness`: `timers` within `spread` seconds."""

    name = "lateness"
    metrics: Mapping[str, Metric] = {
        **{name: Metric("ms", "less") for name in ("p50", "p90", "p99", "p99.9", "max")},
        "early": Metric("%", "less"),
    }

    def __init__(self, timers: int = 10_000, spread: float = 1.0) -> None:
        self._timers = timers
        self._spread = spread
        self.idle = f"{timers:,} timers, idle machine"
        self.busy = f"{timers:,} timers, beside a busy loop"
        self.title = f"Lateness of {timers:,} timers within {spread:g} s"
        self.targets: Sequence[Target] = self._targets()

    def _targets(self) -> list[Target]:
        """Return that none of ours is early, and late by a millisecond at most, or by less where that is promised."""
        ours = (builds.INSTALLED, builds.PURE, *(_best() + suffix for suffix in (CONN, PRECISE, THREAD)))
        found = [Target(case, "early", name, "", at_most=0.0, always=True) for case in self.cases() for name in ours]
        bounds = {name: 0.25 if name.endswith(PRECISE) else 1.2 for name in ours}
        return found + [Target(self.idle, "p99", name, "", at_most=bound) for name, bound in bounds.items()]

    def contestants(self) -> Sequence[Contestant]:
        uvloop = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
        return [
            *builds.contestants(),
            *(Contestant(_best() + suffix) for suffix in (CONN, THREAD, PRECISE)),
            *map(Contestant, (TRIO, ASYNCIO)),
            Contestant(UVLOOP, uvloop),
            golang.contestant(GO),
        ]

    def cases(self) -> Sequence[str]:
        return self.idle, self.busy

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        raise_file_limit(self._timers + 500)
        command, environment = program(contestant)
        sizes = [str(self._timers), str(self._spread)]
        with busy_core() if case == self.busy else nullcontext():
            return run([*command, *sizes], environment)

    def quick(self) -> Self:
        return type(self)(timers=200, spread=0.1)


def _best() -> str:
    installed, pure = builds.contestants()
    return pure.name if installed.missing else installed.name


def program(contestant: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of a contestant without its arguments, and its environment."""
    if contestant == GO:
        # it is pinned to one core only after it has counted the machine's
        return [golang.program("lateness")], {"GOMAXPROCS": "1"}
    way = next((peer for suffix, peer in _WAYS.items() if contestant.endswith(suffix)), "trio func")
    module, variant = _PEERS.get(contestant, way).split()
    # makes the pump wake more finely than a millisecond
    precise = {"DEADLINED_PRECISE": "1"} if contestant.endswith(PRECISE) else {}
    command = [sys.executable, "-m", f"loadtest.peers.lateness_{module}", variant]
    return command, {**builds.environment(contestant), **precise}


BENCHMARK = Lateness()
