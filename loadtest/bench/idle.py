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
from .web_servers import ECHO, ENTRIES, Case, any_certificate, serving

# descriptors beside those of the connections
_OTHERS: Final = 500

CASE: Final = "idle"
# memory under the allocator's defaults
_WEBSOCKETS: Final = Case(ECHO, connections=1_000, neutral=False, speaks="websocket")
# how the silent are served, and what they have said before
_CASES: Final[Mapping[str, tuple[Case, Greeting]]] = {
    CASE: (Case(connections=15_000, neutral=False), HELLO),
    "idle, TLS": (Case(connections=1_000, neutral=False, speaks="tls"), HELLO),
    "idle websockets": (_WEBSOCKETS, WEBSOCKET),
    "idle websockets, compressed": (_WEBSOCKETS, COMPRESSED),
}

METRICS: Final[Mapping[str, Metric]] = {
    "memory": Metric("B/connection", "less"),
    "wake-ups": Metric("1/s", "less"),
    "cpu": Metric("ms/s", "less"),
    "connections": Metric("", None),
}


@dataclass(frozen=True)
class Idle(Benchmark):
    """The benchmark `idle`. Each measurement starts a server of its own. `most`: connections."""

    name = "idle"
    title = "Idle connections: memory, wake-ups and CPU time of the server while no deadline is due"
    metrics = METRICS
    targets = tuple(
        Target(CASE, metric, name, "", at_most=most)
        for metric, most in (("memory", 2458), ("wake-ups", 0.5))
        for name in ("deadlined httptools", "deadlined h11")
    )
    repetitions = 10

    most: int = 15_000
    seconds: float = 4.0

    def contestants(self) -> Sequence[Contestant]:
        return [entry.contestant() for entry in ENTRIES.values() if entry.idle]

    def cases(self) -> Sequence[str]:
        return tuple(_CASES)

    def skips(self, contestant: str, case: str) -> str | None:
        asked, _ = _CASES[case]
        return ENTRIES[contestant].refuses(asked) or asked.missing

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked, greeting = _CASES[case]
        # fewer if the machine does not allow as many
        connections = min(asked.connections, self.most)
        connections = min(connections, raise_file_limit(connections + _OTHERS) - _OTHERS)
        context = any_certificate() if asked.speaks == "tls" else None
        with serving(ENTRIES[contestant], asked) as server, Crowd(server.port, greeting, context) as crowd:
            return {**crowd.cost(server, connections, self.seconds), "connections": connections}

    def quick(self) -> Self:
        return replace(self, most=300, seconds=0.3)


BENCHMARK = Idle()
