"""Many idle connections: what they cost a server while nothing happens, and when they are cut.

Facts      The server advertises its idle timeout and closes a second later, so that a client's last request wins the
           race. Each connection has one timer in the heap.
Hazard     A timer per request that wakes the process in vain, or a scan over all connections, would use CPU time
           between the deadlines.
Answer     CPU time, wake-ups and memory are the kernel's counts of the server process, taken while every connection is
           idle and none is due.
Cost       As many descriptors as connections, here and in the server.

The benchmark `idle` measures this cost beside other servers; `measure` waits until ours has cut all connections.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from dataclasses import dataclass

from .report import quantiles
from .servers import Server, Usage, deadlined_command, raise_file_limit, running

APP = "loadtest.apps:hello"

_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_ANSWERED = b"Hello, world!"

# connections that are opened and send a request at a time: fewer than any backlog
_BATCH = 100
# connections opened before the first measurement: they load what is loaded once
_FIRST = 100
# seconds for a server to finish the work of its last answers
_SETTLING = 0.5
# seconds without progress after which opening, or waiting for the cuts, is abandoned
_STALLED = 15.0


@dataclass(frozen=True)
class Quiet:
    """The cost of idle connections: CPU seconds and wake-ups (`switches`) in `seconds`, resident bytes per connection.

    `opening`: seconds that opening them took.
    """

    opening: float
    seconds: float
    cpu: float
    switches: int
    bytes_per_connection: float


@dataclass(frozen=True)
class Outcome:
    """The cost of idle connections, and how they ended; times in seconds.

    `early`: connections that the client saw cut before the advertised timeout was over. `after`: quantiles of the
    seconds from the answer to the cut, seen by the client; `lateness`: those of the server's own figure.
    """

    connections: int
    idle: float
    quiet: Quiet
    cut: int
    early: int
    reasons: dict[str, int]
    after: dict[str, float]
    lateness: dict[str, float]

    @property
    def switches(self) -> int:
        """Wake-ups while all were idle."""
        return self.quiet.switches

    @property
    def good(self) -> bool:
        """True if all were cut as idle, and none before its time."""
        return self.cut == self.connections and self.reasons == {"idle_timeout": self.connections} and not self.early


class Crowd:
    """Client connections that have each made one request and are silent since.

    `answered`: the bytes with which an answer ends; by default those of a hello over HTTP.
    """

    def __init__(self, port: int, *, answered: bytes = _ANSWERED) -> None:
        self._port = port
        self._end = answered
        self._selector = selectors.DefaultSelector()
        # when each was answered, on the clock of `time.monotonic`
        self._answered: dict[socket.socket, float] = {}
        self.cut_after: list[float] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._answered:
            client.close()
        self._selector.close()

    def open(self, number: int) -> None:
        """Connect `number` clients, send one request on each, and read the answers. OSError if that stalls."""
        while number > 0:
            batch = min(number, _BATCH)
            clients = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(batch)]
            for client in clients:
                client.settimeout(_STALLED)
                client.sendall(_REQUEST)
            for client in clients:
                self._answered[client] = self._answer(client)
                client.setblocking(False)
                self._selector.register(client, selectors.EVENT_READ)
            number -= batch

    def cost(self, server: Server, connections: int, seconds: float) -> Quiet:
        """Open `connections` to `server` and watch it for `seconds`. RuntimeError if it closes one meanwhile."""
        self.open(min(_FIRST, connections))
        before = Usage.of(server.pid)
        began = time.monotonic()
        self.open(connections - min(_FIRST, connections))
        opening = time.monotonic() - began
        time.sleep(_SETTLING)
        full = Usage.of(server.pid)
        began = time.monotonic()
        time.sleep(seconds)
        after = Usage.of(server.pid)
        took = time.monotonic() - began
        if gone := len(self._selector.select(0)):
            raise RuntimeError(f"{gone} connections were closed while they should have been idle")
        return Quiet(
            opening=opening,
            seconds=took,
            cpu=after.cpu - full.cpu,
            switches=after.switches - full.switches,
            bytes_per_connection=(full.resident - before.resident) / max(connections - _FIRST, 1),
        )

    def wait_until_cut(self, idle: float) -> None:
        """Record when each connection is closed, until all are or nothing happens any more."""
        waiting = len(self._answered)
        while waiting and (events := self._selector.select(idle + _STALLED)):
            now = time.monotonic()
            for key, _ in events:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                self._selector.unregister(client)
                self.cut_after.append(now - self._answered[client])
                client.close()
                waiting -= 1

    def _answer(self, client: socket.socket) -> float:
        """Read one answer, and return the time at which it was complete."""
        received = b""
        while not received.endswith(self._end):
            data = client.recv(4096)
            if not data:
                raise RuntimeError(f"the server closed before it had answered: {received!r}")
            received += data
        return time.monotonic()


def measure(connections: int = 10_000, idle: float = 8.0, quiet: float = 3.0) -> Outcome:
    """Keep `connections` idle against a server of their own until it cuts them.

    RuntimeError if the limit of descriptors is too low, or if the machine is so slow that the first connection is due
    before the last has been idle for `quiet` seconds.
    """
    if raise_file_limit(connections + 500) < connections + 100:
        raise RuntimeError(f"{connections} connections need as many descriptors: raise the limit (ulimit -n)")
    with running(deadlined_command(APP, "--idle", f"{idle}s")) as server, Crowd(server.port) as crowd:
        cost = crowd.cost(server, connections, quiet)
        crowd.wait_until_cut(idle)
        server.wait_for(lambda self: len(self.connections()) >= connections, _STALLED)
    records = server.connections()
    return Outcome(
        connections=connections,
        idle=idle,
        quiet=cost,
        cut=len(crowd.cut_after),
        early=sum(seconds < idle for seconds in crowd.cut_after),
        reasons=dict(Counter(record["reason"] for record in records)),
        after=quantiles(crowd.cut_after),
        lateness=quantiles([record["lateness"] for record in records]),
    )
