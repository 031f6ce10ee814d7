"""15,000 connections that were answered once and are silent since: memory, wake-ups, CPU time.

Facts      Each connection has deadlines of its own (the server's idle timeout and the age of the connection), none of
           which is due during the measurement.
Hazard     Memory that is resident at the start belongs to no connection; a thread that wakes by itself is easy to miss.
Answer     Memory is the growth after the first hundred connections. Wake-ups and CPU time are counted over all threads
           and processes of a server.
Cost       The kernel's memory for a connection, which is the same for all servers, is not counted.

Over TLS, and of websockets, of which some have agreed on permessage-deflate, there are 1,000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ..servers import raise_file_limit
from .contest import Benchmark, Contestant, Metric, Target
from .crowd import COMPRESSED, HELLO, WEBSOCKET, Crowd, Greeting
from .web_cases import ECHO, Case
from .web_servers import (
    ENTRIES,
    GO,
    GRANIAN,
    GRANIAN_WEBSOCKETS,
    OURS,
    OURS_H11,
    OURS_UVLOOP,
    PURE_H11,
    UVICORN_FAST,
    UVICORN_H11,
    UVICORN_WEBSOCKETS,
    any_certificate,
    serving,
)

# descriptors beside those of the connections
_OTHERS: Final = 500

METRICS: Final[Mapping[str, Metric]] = {
    "memory": Metric("B/connection", "less"),
    "wake-ups": Metric("1/s", "less"),
    "cpu": Metric("ms/s", "less"),
    "connections": Metric("", None),
}


@dataclass(frozen=True)
class Silence:
    """How many connections are silent, how they are served, and what they have said before."""

    connections: int
    case: Case
    greeting: Greeting = HELLO


CASE: Final = "idle"
# memory under the allocator's defaults
_WEBSOCKETS: Final = Case(ECHO, neutral=False, speaks="websocket")
CASES: Final[Mapping[str, Silence]] = {
    CASE: Silence(15_000, Case(neutral=False)),
    "idle, TLS": Silence(1_000, Case(neutral=False, speaks="tls")),
    "idle websockets": Silence(1_000, _WEBSOCKETS, WEBSOCKET),
    "idle websockets, compressed": Silence(1_000, _WEBSOCKETS, COMPRESSED),
}
_MEASURED: Final = (
    *(OURS, OURS_H11, OURS_UVLOOP, PURE_H11),
    *(UVICORN_H11, UVICORN_FAST, UVICORN_WEBSOCKETS, GRANIAN, GRANIAN_WEBSOCKETS, GO),
)


class Idle(Benchmark):
    """The benchmark `idle`. Each measurement starts a server of its own."""

    name = "idle"
    title = "Idle connections: memory, wake-ups and CPU time of the server while no deadline is due"
    metrics = METRICS
    targets = (
        *(Target(CASE, "memory", name, "", at_most=2458) for name in (OURS, OURS_H11)),
        *(Target(CASE, "wake-ups", name, "", at_most=0.5) for name in (OURS, OURS_H11)),
    )

    repetitions = 10

    def __init__(self, silences: Mapping[str, Silence] = CASES, seconds: float = 4.0) -> None:
        self._silences = silences
        self._seconds = seconds

    def contestants(self) -> Sequence[Contestant]:
        return [ENTRIES[name].contestant() for name in _MEASURED]

    def cases(self) -> Sequence[str]:
        return tuple(self._silences)

    def skips(self, contestant: str, case: str) -> str | None:
        served = self._silences[case].case
        return ENTRIES[contestant].refuses(served) or served.missing

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked = self._silences[case]
        # fewer if the machine does not allow as many
        connections = min(asked.connections, raise_file_limit(asked.connections + _OTHERS) - _OTHERS)
        context = any_certificate() if asked.case.speaks == "tls" else None
        with serving(ENTRIES[contestant], asked.case) as server, Crowd(server.port, asked.greeting, context) as crowd:
            found = crowd.cost(server, connections, self._seconds)
        return {
            "memory": found.bytes_per_connection,
            "wake-ups": found.switches / found.seconds,
            "cpu": found.cpu / found.seconds * 1000,
            "connections": connections,
        }

    def quick(self) -> Self:
        return type(self)({name: replace(silence, connections=300) for name, silence in CASES.items()}, seconds=0.3)


BENCHMARK = Idle()
