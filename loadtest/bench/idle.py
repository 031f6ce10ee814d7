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
from typing import Final, Self

from ..servers import raise_file_limit
from ..target import unverified
from .contest import Benchmark, Contestant
from .crowd import COMPRESSED, HELLO, WEBSOCKET, Crowd, Greeting
from .web_servers import ECHO, ENTRIES, Case, serving

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


class Idle(Benchmark):
    """The benchmark `idle`. Each measurement starts a server of its own. `most`: connections."""

    def __init__(self, most: int = 15_000, seconds: float = 4.0) -> None:
        super().__init__("idle", tuple(_CASES))
        self._most = most
        self._seconds = seconds

    def contestants(self) -> Sequence[Contestant]:
        return [entry.contestant() for entry in ENTRIES.values() if entry.idle]

    def skips(self, contestant: str, case: str) -> str | None:
        asked, _ = _CASES[case]
        return ENTRIES[contestant].refuses(asked) or asked.missing

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked, greeting = _CASES[case]
        # fewer if the machine does not allow as many
        connections = min(asked.connections, self._most)
        connections = min(connections, raise_file_limit(connections + _OTHERS) - _OTHERS)
        context = unverified() if asked.speaks == "tls" else None
        with serving(ENTRIES[contestant], asked) as server, Crowd(server.port, greeting, context) as crowd:
            return {**crowd.cost(server, connections, self._seconds), "connections": connections}

    def quick(self) -> Self:
        return type(self)(most=300, seconds=0.3)


BENCHMARK = Idle()
