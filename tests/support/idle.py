"""Idle connections against a server of their own, until it has cut all of them."""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loadtest.bench.crowd import STALLED, Crowd
from loadtest.histogram import histogram, milliseconds, record
from loadtest.servers import attempts, deadlined_command, raise_file_limit, running

APP = "loadtest.apps:hello"


@dataclass(frozen=True)
class Outcome:
    """The cost of idle connections, and how they ended; times in seconds.

    `wake_ups`: those of the server per second while all were idle. `early`: connections that the client saw cut before
    the advertised timeout was over. `after`: quantiles of the seconds from the answer to the cut, seen by the client;
    `lateness`: those of the server's own figure.
    """

    connections: int
    idle: float
    wake_ups: float
    cut: int
    early: int
    reasons: dict[str, int]
    after: dict[str, float]
    lateness: dict[str, float]

    @property
    def good(self) -> bool:
        """True if all were cut as idle, and none before its time."""
        return self.cut == self.connections and self.reasons == {"idle_timeout": self.connections} and not self.early


def measure(connections: int = 10_000, idle: float = 8.0, quiet: float = 3.0) -> Outcome:
    """Keep `connections` idle against a server of their own until it cuts them.

    RuntimeError if the limit of descriptors is too low, or if the machine is so slow that the first connection is due
    before the last has been idle for `quiet` seconds.
    """
    if raise_file_limit(connections + 500) < connections + 100:
        raise RuntimeError(f"{connections} connections need as many descriptors: raise the limit (ulimit -n)")
    with running(deadlined_command(APP, "--idle", f"{idle}s")) as server, Crowd(server.port) as crowd:
        cost = crowd.cost(server, connections, quiet)
        cut_after = list(cuts(crowd, idle))
        for _ in attempts(STALLED, 0.1):
            if len(server.connections()) >= connections:
                break
    records = server.connections()
    return Outcome(
        connections=connections,
        idle=idle,
        wake_ups=cost["wake-ups"],
        cut=len(cut_after),
        early=sum(seconds < idle for seconds in cut_after),
        reasons=dict(Counter(record["reason"] for record in records)),
        after=quantiles(cut_after),
        lateness=quantiles([record["lateness"] for record in records]),
    )


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """Return p50, p90, p99 and max of seconds, to three digits; all are 0 if there are no values."""
    found = histogram()
    for value in values:
        record(found, value)
    return {name: (value or 0.0) / 1000 for name, value in milliseconds(found, (50, 90, 99)).items()}


def cuts(crowd: Crowd, idle: float) -> Iterator[float]:
    """Yield for each connection how long after its answer it is closed, until all are or nothing happens any more."""
    waiting = dict(crowd.answered)
    with selectors.DefaultSelector() as selector:
        for client in waiting:
            selector.register(client, selectors.EVENT_READ, client)
        while waiting and (events := selector.select(idle + STALLED)):
            now = time.monotonic()
            for key, _ in events:
                selector.unregister(key.fileobj)
                key.data.close()
                yield now - waiting.pop(key.data)
