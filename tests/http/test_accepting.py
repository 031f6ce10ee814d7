"""Connections that fail inside the server as they begin."""

from __future__ import annotations

import random
import socket as stdlib
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from deadlined import Listener, open_tcp_stream
from deadlined.http import HttpServer, Reason
from tests.support.http import GET, Client, Records, hello, only, serving
from tests.support.net import LOCALHOST


class OutOfMemory(stdlib.socket):
    """A socket for which there is no memory to receive."""

    def recv(self, *_: Any) -> bytes:
        raise MemoryError


class FirstLacksMemory(stdlib.socket):
    """A listening socket. There is no memory for its first connection."""

    accepted = 0

    def accept(self) -> tuple[stdlib.socket, Any]:
        descriptor, address = self._accept()  # type: ignore[attr-defined]
        self.accepted += 1
        return (OutOfMemory if self.accepted == 1 else stdlib.socket)(fileno=descriptor), address


async def test_a_lack_of_memory_for_a_new_connection_ends_that_one_only(caplog: pytest.LogCaptureFixture) -> None:
    socket = FirstLacksMemory()
    socket.bind((LOCALHOST, 0))
    socket.listen()
    records = Records()
    server = HttpServer(hello, timeouts=only(), observer=records)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: server.serve([Listener(socket)], task_status=task_status))
        port = socket.getsockname()[1]
        lost, other = [Client(await open_tcp_stream(LOCALHOST, port)) for _ in range(2)]
        assert (await records.ended()).reason is Reason.SERVER_ERROR
        assert await lost.end() in ("eof", "reset")
        assert (await other.get(GET)).status == 200
        for client in (lost, other):
            client.conn.close()
        await records.ended(2)
        nursery.cancel_scope.cancel()
    assert "failed inside the server" in caplog.text


async def test_a_connection_that_there_is_no_memory_to_begin_is_closed_and_the_next_one_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures: Iterator[Exception] = iter([MemoryError()])
    uniform = random.uniform

    def first_lacks_memory(least: float, most: float) -> float:
        for error in failures:
            raise error
        return uniform(least, most)

    # each connection draws the share of its age by which it ends earlier or later
    monkeypatch.setattr(random, "uniform", first_lacks_memory)
    async with serving(hello) as site:
        assert await (await site.connect()).end() in ("eof", "reset")
        assert (await (await site.connect()).get(GET)).status == 200
        assert site.server.statistics().reasons[Reason.SERVER_ERROR] == 1
    assert "a new connection could not be begun" in caplog.text
