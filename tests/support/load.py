"""Clients that ask without pause, in threads, and count what fails."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0


class Load:
    """Clients of one address. `kept` of them keep their connection until the server ends it, `fresh` of them make one
    for each request. Every answer that is not complete, and every connection that is refused or reset, is a failure."""

    def __init__(self, address: object, kept: int, fresh: int) -> None:
        self._address = address
        self._kept, self._fresh = kept, fresh
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._grown = threading.Condition(self._lock)
        # answers by their bodies, and failures by what they were
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Ask until the block ends."""
        threads = [threading.Thread(target=self._ask, args=(True,)) for _ in range(self._kept)]
        threads += [threading.Thread(target=self._ask, args=(False,)) for _ in range(self._fresh)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._done.set()
            for thread in threads:
                thread.join(PATIENCE)

    def wait_for_more(self, number: int) -> None:
        """Wait until so many more requests were answered."""
        with self._grown:
            wanted = self.answers.total() + number
            assert self._grown.wait_for(lambda: self.answers.total() >= wanted, PATIENCE), "no answers come"

    def _ask(self, keep: bool) -> None:
        while not self._done.is_set():
            try:
                with self._connect() as client:
                    self._ask_on(client, keep)
            except OSError as error:
                self._count(self.failures, f"{'kept' if keep else 'fresh'}: {type(error).__name__}: {error}")

    def _connect(self) -> socket.socket:
        family = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        client = socket.socket(family)
        client.settimeout(PATIENCE)
        try:
            client.connect(self._address)  # type: ignore[arg-type]
        except OSError:
            client.close()
            raise
        return client

    def _ask_on(self, client: socket.socket, keep: bool) -> None:
        field = b"" if keep else b"connection: close\r\n"
        while True:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n" + field + b"\r\n")
            head, body = _answer(client)
            self._count(self.answers, body)
            if b"\r\nconnection: close" in head.lower() or self._done.is_set():
                return

    def _count(self, where: Counter[str], what: str) -> None:
        with self._grown:
            where[what] += 1
            self._grown.notify_all()


def _answer(client: socket.socket) -> tuple[bytes, str]:
    """Return the head and the body of a response that is one chunk, or has a length. ConnectionError if it is cut."""
    received = b""
    while True:
        data = client.recv(65536)
        received += data
        head, _, body = received.partition(b"\r\n\r\n")
        if b"chunked" in head and body.endswith(b"\r\n0\r\n\r\n"):
            return head, body.split(b"\r\n")[1].decode()
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length and len(body) >= int(length):
            return head, body.decode()
        if not data:
            raise ConnectionError(f"cut after {len(received)} bytes")
