"""Thousands of connections whose deadlines move all the time: cost, lateness, and wrong firings.

Each request moves the read and the write deadline of its connection and is answered. Some deadlines are left to pass,
some are cleared, and some connections are closed by either side and opened anew; the profiles are those of
`python -m loadtest churn`. The client, not the server, decides which firings were stale, early or lost
(`loadtest/clients/churn_account.py`).

Facts      Servers under a fixed rate below their limit are compared by cost, not by speed. CPython's garbage collector
           walks the objects of all connections now and then.
Hazard     That walk takes a tenth of a second with 15,000 connections, whatever the timers do.
Answer     All Python servers set the collector as `deadlined serve` does (`deadlined.service.tune_gc`).
Cost       In the profile "herd" all deadlines are at one instant, so the last one is late by all the others. A p99 of
           milliseconds is impossible there (15,000 tasks in 5 ms would be 0.3 us each); the target is trio's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Self

from ..servers import raise_file_limit, running
from . import builds, processes
from .contest import ContestantError, Metric, Target
from .processes import CLIENT_CORE, SERVER_CORE
from .programs import Programs

# the tool's profile "ramp" is "steady" here, because all connections are opened before the load
CASES: Final = ("steady", "burst", "herd")

# descriptors beside those of the connections; a connection that is being replaced may have two
_SPARE: Final = 500
# seconds beyond the load, for opening and for the last deadlines
_PATIENCE: Final = 150.0

# MiB that the server may grow in the second half, which is two herds. This finds stopped and moved timers that pile up:
# at 10,000 requests a second, an entry of 100 bytes kept for each would be 9.5 MiB in ten seconds. Smaller changes are
# those of the allocator and the collector.
_GROWTH: Final = 8.0


class Churn(Programs):
    """The benchmark `churn`: `connections`, as far as descriptors allow, whose deadlines are of `period` seconds.

    With the profile "steady" a connection makes about 1.6 requests in a period.
    """

    name = "churn"
    metrics: Mapping[str, Metric] = {
        "resets": Metric("/s", None),
        "rate reached": Metric("%", "more"),
        "firings": Metric("/s", None),
        **dict.fromkeys(("p50", "p99", "max"), Metric("ms", "less")),
        "CPU": Metric("%", "less"),
        "per connection": Metric("KiB", "less"),
        "growth": Metric("MiB", "less"),
        **dict.fromkeys(("stale", "early", "lost"), Metric("", "less")),
        "client's CPU": Metric("%", None),
    }

    def __init__(self, connections: int = 15_000, period: float = 2.5, seconds: float = 20.0) -> None:
        self._connections = connections
        self._period = period
        self._seconds = seconds
        self.title = f"Churn of deadlines: {connections:,} connections, deadlines of {period:g} s, {seconds:g} s"
        self.targets: Sequence[Target] = [
            target for ours in (builds.INSTALLED, builds.PURE) for case in CASES for target in _targets(case, ours)
        ]

    def cases(self) -> Sequence[str]:
        return CASES

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        connections = min(self._connections, raise_file_limit(self._connections + _SPARE) - _SPARE)
        around = {**os.environ, **builds.environment(contestant)}
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            sizes = (server.port, server.pid, case, connections, self._period, self._seconds)
            client = [sys.executable, "-m", "loadtest.clients.churn", *map(str, sizes)]
            try:
                found = processes.run(
                    client, builds.environment(builds.INSTALLED), core=CLIENT_CORE, seconds=self._seconds + _PATIENCE
                )
            except ContestantError as error:
                raise ContestantError(f"{error}\n{''.join(server.output)}") from error
        if wrong := {name: count for name in ("wrong", "broken") if (count := found.pop(name))}:
            raise ContestantError(f"wrong answers or broken connections: {wrong}")
        return found

    def quick(self) -> Self:
        return type(self)(connections=200, period=0.5, seconds=2.0)


def _targets(case: str, ours: str) -> list[Target]:
    found = [Target(case, metric, ours, "", at_most=0.0) for metric in ("stale", "early", "lost")]
    found.append(Target(case, "growth", ours, "", at_most=_GROWTH))
    theirs, bound = ("trio", 1.0) if case == "herd" else ("", 5.0)
    return [*found, Target(case, "p99", ours, theirs, at_most=bound)]


BENCHMARK = Churn()
