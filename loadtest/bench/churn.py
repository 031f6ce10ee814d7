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
from collections.abc import Mapping
from typing import Final

from ..servers import raise_file_limit, running
from . import builds, processes
from .contest import ContestantError
from .processes import CLIENT_CORE, SERVER_CORE
from .programs import Programs

# descriptors beside those of the connections; a connection that is being replaced may have two
_SPARE: Final = 500
# seconds beyond the load, for opening and for the last deadlines
_PATIENCE: Final = 150.0


class Churn(Programs):
    """The benchmark `churn`. With the profile "steady" a connection makes about 1.6 requests in a period."""

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        most, period, seconds = self.numbers[case]
        connections = min(most, raise_file_limit(most + _SPARE) - _SPARE)
        around = {**os.environ, **builds.environment(contestant)}
        ours = builds.environment(builds.INSTALLED)
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            sizes = (server.port, server.pid, case, connections, period, seconds)
            client = [sys.executable, "-m", "loadtest.clients.churn", *map(str, sizes)]
            try:
                found = processes.run(client, ours, core=CLIENT_CORE, seconds=seconds + _PATIENCE)
            except ContestantError as error:
                raise ContestantError(f"{error}\n{''.join(server.output)}") from error
        if wrong := {name: count for name in ("wrong", "broken") if (count := found.pop(name))}:
            raise ContestantError(f"wrong answers or broken connections: {wrong}")
        return {**found, "connections": connections}


BENCHMARK = Churn("churn")
