"""Thousands of connections whose deadlines move all the time: cost, lateness, and wrong firings.

Each request moves the read and the write deadline of its connection and is answered. Some deadlines are left to pass,
some are cleared, and some connections are closed by either side and opened anew. The client, not the server, decides
which firings were stale, early or lost (`loadtest/clients/churn_account.py`).

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

from ..clients.churn_profiles import PROFILES
from ..servers import raise_file_limit, running
from . import builds, golang, processes
from .contest import Benchmark, Contestant, ContestantError, Metric, Target
from .processes import CLIENT_CORE, SERVER_CORE

TRIO: Final = "trio"
ASYNCIO: Final = "asyncio"
GO: Final = "Go"

# descriptors beside those of the connections; a connection that is being replaced may have two
_SPARE: Final = 500
# seconds beyond the load, for opening and for the last deadlines
_PATIENCE: Final = 150.0

# MiB that the server may grow after the first third. This finds stopped and moved timers that pile up: at 10,000
# requests a second, an entry of 100 bytes kept for each would be 12 MiB in the remaining 13 seconds. Smaller changes
# are those of the allocator and the collector.
_GROWTH: Final = 8.0


class Churn(Benchmark):
    """The benchmark `churn`: `connections`, as far as descriptors allow, make `rate` requests per second together."""

    name = "churn"
    metrics: Mapping[str, Metric] = {
        "resets": Metric("/s", None),
        "rate reached": Metric("%", "more"),
        "firings": Metric("/s", None),
        "p50": Metric("ms", "less"),
        "p99": Metric("ms", "less"),
        "max": Metric("ms", "less"),
        "CPU": Metric("%", "less"),
        "per connection": Metric("KiB", "less"),
        "growth": Metric("MiB", "less"),
        "stale": Metric("", "less"),
        "early": Metric("", "less"),
        "lost": Metric("", "less"),
        "client's CPU": Metric("%", None),
    }

    def __init__(self, connections: int = 15_000, rate: float = 10_000.0, seconds: float = 20.0) -> None:
        self._connections = connections
        self._rate = rate
        self._seconds = seconds
        self.title = f"Churn of deadlines: {connections:,} connections, {rate:,.0f} requests/s, {seconds:g} s"
        self.targets: Sequence[Target] = [
            target for ours in (builds.INSTALLED, builds.PURE) for case in PROFILES for target in _targets(case, ours)
        ]

    def contestants(self) -> Sequence[Contestant]:
        return [*builds.contestants(), Contestant(TRIO), Contestant(ASYNCIO), golang.contestant(GO)]

    def cases(self) -> Sequence[str]:
        return list(PROFILES)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        connections = min(self._connections, raise_file_limit(self._connections + _SPARE) - _SPARE)
        command, environment = server(contestant)
        with running(command, core=SERVER_CORE, environment={**os.environ, **environment}) as process:
            sizes = (process.port, process.pid, case, connections, self._rate, self._seconds)
            client = [sys.executable, "-m", "loadtest.clients.churn", *map(str, sizes)]
            try:
                found = processes.run(
                    client, builds.environment(builds.INSTALLED), core=CLIENT_CORE, seconds=self._seconds + _PATIENCE
                )
            except ContestantError as error:
                raise ContestantError(f"{error}\n{''.join(process.output)}") from error
        if wrong := {name: count for name in ("wrong", "broken") if (count := found.pop(name))}:
            raise ContestantError(f"wrong answers or broken connections: {wrong}")
        return found

    def quick(self) -> Self:
        return type(self)(connections=200, rate=1000.0, seconds=2.0)


def _targets(case: str, ours: str) -> list[Target]:
    found = [Target(case, metric, ours, "", at_most=0.0) for metric in ("stale", "early", "lost")]
    found.append(Target(case, "growth", ours, "", at_most=_GROWTH))
    if case == "herd":
        found.append(Target(case, "p99", ours, TRIO, at_most=1.0))
    else:
        found.append(Target(case, "p99", ours, "", at_most=5.0))
    return found


def server(contestant: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a contestant's server."""
    if contestant == GO:
        # it is pinned to one core only after it has counted the machine's
        return [golang.program("churn")], {"GOMAXPROCS": "1"}
    module = {TRIO: "churn_trio", ASYNCIO: "churn_asyncio"}.get(contestant, "churn_server")
    return [sys.executable, "-m", f"loadtest.peers.{module}"], builds.environment(contestant)


BENCHMARK = Churn()
