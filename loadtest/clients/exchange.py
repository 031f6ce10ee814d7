"""A plain HTTP client over blocking sockets: one request per connection at a time, and nothing done by the clock."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Final, Self

from ..wire import Answers

# seconds for one answer of a server that is slowed down by its observer
PATIENCE: Final = 60.0


class Client:
    """Kept connections to 127.0.0.1. Only answers with status 200 and a content-length are accepted."""

    def __init__(self, port: int, connections: int = 1) -> None:
        self._address = "127.0.0.1", port
        self._number = connections
        self._sockets: list[socket.socket] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for _ in range(self._number):
            connection = socket.create_connection(self._address, timeout=PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(self._open.enter_context(connection))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return self._number

    def ask(self, path: str, connections: int) -> None:
        """Send a request on the first connections, and read the answers."""
        self.send(path, connections)
        self.receive(connections)

    def send(self, path: str, connections: int | None = None) -> None:
        """Send a request on each connection, or on the first few."""
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for connection in self._sockets[:connections]:
            connection.sendall(head)

    def receive(self, connections: int | None = None) -> None:
        """Read one whole answer from each connection, or from the first few."""
        for connection in self._sockets[:connections]:
            _read(connection)


def _read(connection: socket.socket) -> None:
    """Read one answer. RuntimeError if it is not 200, has no length, or if the server closes first."""
    answers = Answers()
    while not answers.complete:
        received = connection.recv(65536)
        if not received:
            raise RuntimeError("the server closed the connection before the end of its answer")
        answers.feed(received, 0.0)
        if answers.status is not None and (answers.status != 200 or "content-length" not in answers.fields):
            raise RuntimeError(f"the server answered {answers.status} with {answers.fields}")
