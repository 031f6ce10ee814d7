"""Bytes in and out of a connection under a deadline: in the clear, or through TLS.

In the clear an operation that can be done at once is done at once, without a checkpoint and without arming anything;
the deadline is armed where the task must wait. TLS goes through trio's stream, so its deadlines are armed beforehand.
"""

from __future__ import annotations

import math
import socket as stdlib
import ssl
from collections.abc import Callable
from typing import Protocol

import trio

from ..errors import DeadlineExceeded
from ..net import Conn
from ..runtime import checkpoint

# the first byte of a TLS handshake
TLS_HELLO = b"\x16"

# receives or sends in a row that need not wait, after which other tasks are let in
_BUDGET = 16

# bytes that are encrypted at a time: between two of them a long send shows its progress
_PIECE = 128 * 1024

Deadline = Callable[[int], float]


class Transport(Protocol):
    """What the connection needs of either kind."""

    async def receive(self, deadline: float) -> bytes:
        """The next bytes, b"" at the end. DeadlineExceeded at `deadline`, also if bytes are there."""

    async def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all. `deadline(length)` says by when the peer must take more of it. DeadlineExceeded then."""

    def send_last(self, data: bytes) -> bool:
        """At once, from any task or callback: send a short farewell and end our side; False if that cannot be done."""

    async def aclose(self, deadline: float) -> None:
        """End politely, by `deadline`."""


class Plain:
    """A connection in the clear."""

    __slots__ = ("_budget", "_conn")

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self._budget = _BUDGET

    async def receive(self, deadline: float) -> bytes:
        conn = self._conn
        conn.set_read_deadline(deadline)
        data = conn.try_receive()
        if data is None:
            self._budget = _BUDGET
            while data is None:
                await conn.wait_readable()
                data = conn.try_receive()
            return data
        await self._take_a_turn()
        return data

    async def send(self, data: bytes, deadline: Deadline) -> None:
        # a peer that takes everything must not keep the others waiting
        await self._take_a_turn()
        conn = self._conn
        sent = conn.try_send(data)
        if sent == len(data):
            return
        length = len(data)
        conn.set_write_deadline(deadline(length))
        with memoryview(data) as view:
            while sent < length:
                await conn.wait_writable()
                taken = conn.try_send(view[sent:])
                sent += taken
                if taken:
                    conn.set_write_deadline(deadline(length))
        conn.set_write_deadline(math.inf)

    def send_last(self, data: bytes) -> bool:
        try:
            self._conn.set_write_deadline(math.inf)
            if not self._conn.try_send(data):
                return False
            self._conn.shutdown_write()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            return False
        return True

    async def aclose(self, deadline: float) -> None:
        self._conn.close()

    async def _take_a_turn(self) -> None:
        self._budget -= 1
        if not self._budget:
            self._budget = _BUDGET
            await checkpoint()


class Tls:
    """A connection through trio's SSLStream."""

    __slots__ = ("_conn", "_stream")

    def __init__(self, conn: Conn, context: ssl.SSLContext) -> None:
        self._conn = conn
        self._stream = trio.SSLStream(conn, context, server_side=True, https_compatible=True)

    async def handshake(self, deadline: float) -> None:
        """Shake hands by `deadline`. BrokenResourceError if the peer does not speak TLS, or not ours."""
        self._conn.set_deadline(deadline)
        await self._stream.do_handshake()
        self._conn.set_deadline(math.inf)

    async def receive(self, deadline: float) -> bytes:
        self._conn.set_read_deadline(deadline)
        return bytes(await self._stream.receive_some(65536))

    async def send(self, data: bytes, deadline: Deadline) -> None:
        with memoryview(data) as view:
            for start in range(0, len(data), _PIECE):
                self._conn.set_write_deadline(deadline(len(data)))
                await self._stream.send_all(view[start : start + _PIECE])
        self._conn.set_write_deadline(math.inf)

    def send_last(self, data: bytes) -> bool:
        return False

    async def aclose(self, deadline: float) -> None:
        try:
            self._conn.set_deadline(deadline)
            await self._stream.aclose()
        except (DeadlineExceeded, trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            # the peer did not wait for our close_notify: nothing is owed to it any more
            self._conn.close()


async def first_byte(conn: Conn, deadline: float) -> bytes:
    """Wait for the peer's first byte and leave it there; b"" at its end. BrokenResourceError if it is gone."""
    conn.set_read_deadline(deadline)
    while True:
        try:
            first = conn.socket.recv(1, stdlib.MSG_PEEK)
        except BlockingIOError:
            await conn.wait_readable()
        except OSError as error:
            raise trio.BrokenResourceError("the peer is gone") from error
        else:
            return first
