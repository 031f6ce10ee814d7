"""15,000 connections that were answered once and are silent since: memory, wake-ups, CPU time.

Facts      Each connection has deadlines of its own (a read and a write deadline, or the server's idle timeout and the
           age of the connection), none of which is due during the measurement.
Hazard     Memory that is resident at the start belongs to no connection; a thread that wakes by itself is easy to miss.
Answer     Memory is the growth after the first hundred connections. Wake-ups and CPU time are counted over all threads
           and processes of a server.
Cost       The kernel's memory for a connection, which is the same for all servers, is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self

from ..servers import Server, raise_file_limit, running
from . import builds, web_servers
from .contest import Benchmark, Contestant, Metric, Target
from .crowd import Crowd
from .echo import environment
from .processes import SERVER_CORE
from .web_servers import ENTRIES

CASE: Final = "idle"

CONN: Final = f"{builds.INSTALLED} Conn, echo without HTTP"
OURS: Final = (web_servers.OURS, web_servers.OURS_H11, CONN)
PEERS: Final = (web_servers.UVICORN_H11, web_servers.UVICORN_FAST, web_servers.GO)

# descriptors beside those of the connections
_OTHERS: Final = 500

METRICS: Final[Mapping[str, Metric]] = {
    "memory": Metric("B/connection", "less"),
    "wake-ups": Metric("1/s", "less"),
    "cpu": Metric("ms/s", "less"),
    "connections": Metric("", None),
}


class Idle(Benchmark):
    """The benchmark `idle`. Each measurement starts a server of its own."""

    name = "idle"
    title = "Idle connections: memory, wake-ups and CPU time of the server while no deadline is due"
    metrics = METRICS
    targets = (
        *(Target(CASE, "memory", name, "", at_most=6144) for name in OURS),
        *(Target(CASE, "wake-ups", name, "", at_most=0.5) for name in OURS),
    )

    repetitions = 10

    def __init__(self, connections: int = 15_000, seconds: float = 4.0) -> None:
        self._connections = connections
        self._seconds = seconds

    def contestants(self) -> Sequence[Contestant]:
        compiled = builds.contestants()[0]
        ours = [ENTRIES[name].contestant() for name in (web_servers.OURS, web_servers.OURS_H11)]
        peers = [ENTRIES[name].contestant() for name in PEERS]
        return [*ours, Contestant(CONN, compiled.missing), ENTRIES[web_servers.PURE_H11].contestant(), *peers]

    def cases(self) -> Sequence[str]:
        return (CASE,)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        # fewer if the machine does not allow as many
        connections = min(self._connections, raise_file_limit(self._connections + _OTHERS) - _OTHERS)
        with _serving(contestant) as server, _crowd(contestant, server.port) as crowd:
            found = crowd.cost(server, connections, self._seconds)
        return {
            "memory": found.bytes_per_connection,
            "wake-ups": found.switches / found.seconds,
            "cpu": found.cpu / found.seconds * 1000,
            "connections": connections,
        }

    def quick(self) -> Self:
        return type(self)(connections=300, seconds=0.3)


@contextmanager
def _serving(contestant: str) -> Iterator[Server]:
    around = environment(contestant, neutral=False)  # memory under the allocator's defaults
    if contestant != CONN:
        with web_servers.serving(ENTRIES[contestant], around) as server:
            yield server
        return
    command = [sys.executable, "-m", "loadtest.peers.echo_deadlined", "moved", str(web_servers.LONG)]
    with running(command, core=SERVER_CORE, environment=around) as server:
        yield server


def _crowd(contestant: str, port: int) -> Crowd:
    # an echo ends as the request does
    return Crowd(port, answered=b"\r\n\r\n") if contestant == CONN else Crowd(port)


BENCHMARK = Idle()
