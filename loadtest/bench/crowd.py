"""Client connections that are answered and then silent, and what they cost a server: for `idle` and `instructions`.

And how many connections the machine allows a benchmark.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from ..servers import Server, Usage, raise_file_limit
from ..wire import Answers

# connections that are opened and send a request at a time: fewer than any backlog
_BATCH = 100
# connections opened before the first measurement: they load what is loaded once
_FIRST = 100
# fewer, of which half are opened before the first measurement, show nothing of the cost of one
_LEAST = 200
# descriptors beside those of the connections; one that is being replaced may have two, and our server keeps 500
_SPARE = 600
# seconds for a server to finish the work of its last answers
_SETTLING = 0.5
# seconds without progress after which a client gives up; a server under callgrind is slow
STALLED = 30.0


class Greeting(NamedTuple):
    """What a connection sends before it is silent, and what is answered: the status and the body."""

    request: bytes
    status: int
    body: bytes = b""


HELLO = Greeting(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200, b"Hello, world!")

_UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_DEFLATE = b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n"
WEBSOCKET = Greeting(_UPGRADE + b"\r\n", 101)
COMPRESSED = Greeting(_UPGRADE + _DEFLATE + b"\r\n", 101)


def allowed(wanted: int) -> int:
    """Return how many connections the limit of descriptors allows, `wanted` at most. RuntimeError if it is too low."""
    limit = raise_file_limit(wanted + _SPARE)
    if (found := min(wanted, limit - _SPARE)) < min(wanted, _LEAST):
        raise RuntimeError(f"{limit} descriptors are too few for {_LEAST} connections: raise the limit (ulimit -n)")
    return found


class Crowd(ExitStack):
    """Client connections to a server, with TLS if there is a `context`; they are closed at the end of the block.

    `answered`: those that have each been answered once and are silent since, and when, on the clock of
    `time.monotonic`.
    """

    def __init__(self, port: int, greeting: Greeting = HELLO, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._port = port
        self._greeting = greeting
        self._context = context
        self.answered: dict[socket.socket, float] = {}

    def connect(self, number: int) -> list[socket.socket]:
        """Connect so many clients, whose operations end after STALLED seconds at the latest."""
        return [self.enter_context(self._connect()) for _ in range(number)]

    def send(self, clients: Sequence[socket.socket], request: bytes = b"") -> None:
        """Send a request on each connection: that of the greeting, or another."""
        for client in clients:
            client.sendall(request or self._greeting.request)

    def receive(self, clients: Sequence[socket.socket]) -> None:
        """Read an answer from each connection. RuntimeError if it is another, or is cut; OSError if that stalls."""
        for client in clients:
            answers, received = Answers(), b""
            while not answers.complete:
                if not (data := client.recv(4096)):
                    raise RuntimeError(f"the server closed before it had answered: {received[:200]!r}")
                answers.feed(data, 0.0)
                received += data
            body = received.partition(b"\r\n\r\n")[2]
            if (answers.status, body) != (self._greeting.status, self._greeting.body):
                raise RuntimeError(f"something else is answered: {received[:200]!r}")
            self.answered[client] = time.monotonic()

    def open(self, number: int) -> None:
        """Connect `number` clients, send one request on each, and read the answers."""
        for first in range(0, number, _BATCH):
            clients = self.connect(min(_BATCH, number - first))
            self.send(clients)
            self.receive(clients)

    def cost(self, server: Server, connections: int, seconds: float) -> dict[str, float]:
        """Open `connections` to `server` and watch it for `seconds`.

        Returns `memory` in bytes of a connection, `wake-ups` per second, and `cpu` in milliseconds per second.
        RuntimeError if the server closes a connection meanwhile.
        """
        self.open(min(_FIRST, connections))
        time.sleep(_SETTLING)
        before = Usage.of(server.pid)
        self.open(connections - min(_FIRST, connections))
        time.sleep(_SETTLING)
        full = Usage.of(server.pid)
        began = time.monotonic()
        time.sleep(seconds)
        after = Usage.of(server.pid)
        took = time.monotonic() - began
        if gone := sum(map(_ended, self.answered)):
            raise RuntimeError(f"{gone} connections were closed while they should have been idle")
        return {
            "memory": (full.resident - before.resident) / max(connections - _FIRST, 1),
            "wake-ups": (after.switches - full.switches) / took,
            "cpu": (after.cpu - full.cpu) / took * 1000,
        }

    def _connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self._port), timeout=STALLED)
        # the end of a handshake and the request are two small sends
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client if self._context is None else self._context.wrap_socket(client)


def _ended(client: socket.socket) -> bool:
    """Tell if a connection has ended; a session ticket of TLS does not end it."""
    client.setblocking(False)
    try:
        return not client.recv(4096)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
