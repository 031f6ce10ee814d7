"""Many idle connections: what they cost a server while nothing happens, and when they are cut.

Facts      The server advertises its idle timeout and closes a second later, so that a client's last request wins the
           race. Each connection has one timer in the heap.
Hazard     A timer per request that wakes the process in vain, or a scan over all connections, would use CPU time
           between the deadlines.
Answer     CPU time, wake-ups and memory are the kernel's counts of the server process, taken while every connection is
           idle and none is due.
Cost       As many descriptors as connections, here and in the server.

The benchmark `idle` measures this cost beside other servers.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass

from ..servers import Server, Usage

_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_ANSWERED = b"Hello, world!"

# connections that are opened and send a request at a time: fewer than any backlog
_BATCH = 100
# connections opened before the first measurement: they load what is loaded once
_FIRST = 100
# seconds for a server to finish the work of its last answers
_SETTLING = 0.5
# seconds without progress after which opening, or waiting for the cuts, is abandoned
STALLED = 15.0


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
                client.settimeout(STALLED)
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
        while waiting and (events := self._selector.select(idle + STALLED)):
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
