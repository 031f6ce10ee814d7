"""SIGTERM while clients ask without pause: whoever had asked before it gets an answer."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.support.command import Process, Starter

CLIENTS = 50
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


class Loop:
    """A keep-alive client that asks until the server closes its connection."""

    def __init__(self, process: Process) -> None:
        self._socket = process.connect()
        self.answers = 0
        # when the last request was sent, and how much of its answer came
        self.sent = 0.0
        self.received = b""
        self.told_last = False

    def run(self, warm: Event) -> None:
        with self._socket:
            try:
                while not self.told_last:
                    self.received = b""
                    self._socket.sendall(REQUEST)
                    self.sent = time.monotonic()
                    self._receive_answer()
                    if self.answers == 20:
                        warm.set()
            except (ConnectionError, EOFError):
                return

    def _receive_answer(self) -> None:
        while not self._complete:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self.received += data
        self.answers += 1
        self.told_last = b"\r\nconnection: close\r\n" in self.received

    @property
    def _complete(self) -> bool:
        head, end, body = self.received.partition(b"\r\n\r\n")
        # the application's answer is the number of its process, in one chunk
        return bool(end) and (b"chunked" not in head or body.endswith(b"0\r\n\r\n"))

    def is_unanswered(self, before: float) -> bool:
        """Return True if a request that was sent before that moment got no whole answer."""
        return self.sent < before and not self._complete


@pytest.mark.parametrize("workers", [1, 2])
def test_each_request_that_was_sent_before_sigterm_is_answered(start: Starter, workers: int) -> None:
    process = start("apps:pid", "--workers", str(workers), "--no-access-log")
    if workers > 1:
        process.wait_for("listening")
    loops = [Loop(process) for _ in range(CLIENTS)]
    warm = Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(loop.run, warm) for loop in loops]
        assert warm.wait(30)
        before = time.monotonic()
        process.signal(signal.SIGTERM)
        for each in running:
            each.result(30)
    assert process.end() == (0, "")
    assert [loop for loop in loops if loop.is_unanswered(before)] == []
    # most were told that their answer was the last one, and asked nothing more
    assert sum(loop.told_last for loop in loops) > CLIENTS // 2
    answers = sum(loop.answers for loop in loops)
    assert answers <= sum(line["requests"] for line in process.events("stopped")) <= answers + CLIENTS


def test_connections_that_are_open_and_silent_do_not_hold_a_drain(start: Starter) -> None:
    process = start("apps:pid")
    silent = [process.connect() for _ in range(5)]
    for client in silent:
        client.sendall(REQUEST)
        assert client.recv(65536)
    process.signal(signal.SIGTERM)
    assert process.end() == (0, "")
    (stopped,) = process.events("stopped")
    assert stopped["reasons"] == {"done": 5}
    for client in silent:
        assert client.recv(65536) == b""
        client.close()


def test_a_connection_that_the_kernel_had_accepted_is_served(start: Starter) -> None:
    """The process is stopped, so that it can accept nothing before it sees the signal."""
    process = start("apps:pid")
    process.signal(signal.SIGSTOP)
    clients: list[socket.socket] = [process.begin() for _ in range(40)]
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGCONT)
    for client in clients:
        with client:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert process.end() == (0, "")
