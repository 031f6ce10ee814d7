"""Bytes in and out of a connection under a deadline: in the clear, or through TLS.

In the clear an operation that need not wait is done without a checkpoint. A receive always sets its deadline first,
which costs a store. A send sets its deadline only when it must wait. TLS uses trio's SSLStream, so both set their
deadlines first.

Readiness beats expiry, as in Go: when a wait ends by its deadline, the kernel is asked once more for bytes. They may
have come in time and have waited because the event loop was blocked.
"""

from __future__ import annotations

import socket as stdlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

import trio

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError, Conn
from ..runtime import checkpoint
from .timeouts import INF

# the first byte of a TLS handshake
TLS_HELLO: Final = b"\x16"

# after this number of receives and sends in a row that need not wait, a checkpoint lets other tasks run
_BUDGET: Final = 16

# bytes of a TLS send that are encrypted at a time; after each piece the deadline of the send is computed again
_PIECE: Final = 128 * 1024

Buffer = bytes | memoryview

# a function from the length of a send to the time at which the peer must accept more of it
Deadline = Callable[[int], float]


class Transport(ABC):
    """The bytes of a connection, in and out. An abstract base class. `received` and `sent` count bytes of HTTP, before
    encryption."""

    __slots__ = ("conn", "received", "sent")

    # True if closing the socket is all that a graceful end needs
    closes_at_once: ClassVar[bool] = False
    # True if between two requests the transport holds no bytes outside the socket, so that it can wait without a task
    can_be_unattended: ClassVar[bool] = False

    def __init__(self, conn: Conn) -> None:
        self.conn: Conn = conn
        self.received: int = 0
        self.sent: int = 0

    @abstractmethod
    async def receive(self, deadline: float) -> bytes:
        """Receive the next bytes, b"" at the end. Raise DeadlineExceeded at `deadline`; if it has passed before the
        call, even if bytes are there."""

    def receive_ready(self) -> bytes | None:
        """Receive without waiting, even if the deadline has passed. None if no bytes are there. Only in the clear."""
        raise NotImplementedError

    @abstractmethod
    def try_send(self, data: Buffer) -> int:
        """Send what can be sent without waiting. Return the number of bytes."""

    @abstractmethod
    async def send(self, data: bytes, taken: int, deadline: Deadline) -> None:
        """Send what is left of `data` after the first `taken` bytes.

        `deadline(len(data))` is called when the send must wait and after each progress. It returns when the peer must
        have accepted more. Raise DeadlineExceeded at that time.
        """

    @abstractmethod
    def send_last(self, data: bytes) -> bool:
        """Send a short last response and end the server's side, both without waiting. Return False if that cannot be
        done now. May be called from any task or callback."""

    @abstractmethod
    async def aclose(self, deadline: float) -> None:
        """Close gracefully, and at `deadline` in any case."""


class Plain(Transport):
    """A connection in the clear."""

    __slots__ = ("_budget",)

    closes_at_once: ClassVar[bool] = True
    can_be_unattended: ClassVar[bool] = True

    def __init__(self, conn: Conn) -> None:
        super().__init__(conn)
        # receives and sends that may still be done before the next checkpoint
        self._budget: int = _BUDGET

    async def receive(self, deadline: float) -> bytes:
        conn = self.conn
        conn.set_read_deadline(deadline)
        data = None if conn.drained else conn.try_receive()
        if data is None:
            data = await self._wait_and_receive()
            self._budget = _BUDGET
        else:
            self._budget -= 1
            if self._budget <= 0:
                await self._let_others_run()
        self.received += len(data)
        return data

    def receive_ready(self) -> bytes | None:
        data = self.conn.receive_ready()
        if data is not None:
            self._budget = _BUDGET
            self.received += len(data)
        return data

    def try_send(self, data: Buffer) -> int:
        taken = self.conn.try_send(data)
        self.sent += taken
        return taken

    async def send(self, data: bytes, taken: int, deadline: Deadline) -> None:
        conn = self.conn
        length = len(data)
        if self._budget <= 0:
            await self._let_others_run()
        with memoryview(data) as view:
            taken += self._count(conn.try_send(view[taken:]))
            if taken == length:
                return
            conn.set_write_deadline(deadline(length))
            while taken < length:
                more = await self._wait_and_send(view[taken:])
                if more:
                    taken += more
                    conn.set_write_deadline(deadline(length))
        conn.set_write_deadline(INF)

    async def _wait_and_receive(self) -> bytes:
        conn = self.conn
        data = None
        while data is None:
            try:
                await conn.wait_readable()
            except DeadlineExceeded:
                data = conn.receive_ready()
                if data is None:
                    raise
            else:
                data = conn.receive_ready()
        return data

    async def _wait_and_send(self, data: memoryview) -> int:
        try:
            await self.conn.wait_writable()
        except DeadlineExceeded:
            more = self._count(self.conn.send_ready(data))
            if not more:
                raise
            return more
        return self._count(self.conn.send_ready(data))

    def _count(self, sent: int) -> int:
        self.sent += sent
        return sent

    def send_last(self, data: bytes) -> bool:
        try:
            self.conn.set_write_deadline(INF)
            if not self.conn.try_send(data):
                return False
            self.conn.shutdown_write()
        except (BrokenResourceError, ClosedResourceError, BusyResourceError):
            return False
        self.sent += len(data)
        return True

    async def aclose(self, deadline: float) -> None:
        self.conn.close()

    async def _let_others_run(self) -> None:
        self._budget = _BUDGET
        await checkpoint()


class _Ciphertext:
    """What an SSLStream needs of a connection, with readiness before expiry, as in `Plain`."""

    __slots__ = ("_conn", "aclose", "send_all", "wait_send_all_might_not_block")

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self.send_all = conn.send_all
        self.wait_send_all_might_not_block = conn.wait_send_all_might_not_block
        self.aclose = conn.aclose

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        conn = self._conn
        expired = conn.read_deadline <= trio.current_time()
        try:
            return await conn.receive_some(max_bytes)
        except DeadlineExceeded:
            data = None if expired else conn.receive_ready()
            if data is None:
                raise
            return data


class Tls(Transport):
    """A connection through trio's SSLStream."""

    __slots__ = ("_stream",)

    def __init__(self, conn: Conn, context: ssl.SSLContext) -> None:
        super().__init__(conn)
        below: Any = _Ciphertext(conn)
        self._stream: trio.SSLStream[Conn] = trio.SSLStream(below, context, server_side=True, https_compatible=True)

    async def handshake(self, deadline: float) -> None:
        """Set up TLS by `deadline`. Raise BrokenResourceError if the peer does not speak TLS, or no version that the
        server accepts."""
        self.conn.set_deadline(deadline)
        await self._stream.do_handshake()
        self.conn.set_deadline(INF)

    async def receive(self, deadline: float) -> bytes:
        self.conn.set_read_deadline(deadline)
        data = bytes(await self._stream.receive_some(65536))
        self.received += len(data)
        return data

    def try_send(self, data: Buffer) -> int:
        return 0

    async def send(self, data: bytes, taken: int, deadline: Deadline) -> None:
        with memoryview(data) as view:
            for start in range(taken, len(data), _PIECE):
                self.conn.set_write_deadline(deadline(len(data)))
                await self._stream.send_all(view[start : start + _PIECE])
        self.conn.set_write_deadline(INF)
        self.sent += len(data) - taken

    def send_last(self, data: bytes) -> bool:
        return False

    async def aclose(self, deadline: float) -> None:
        try:
            self.conn.set_deadline(deadline)
            await self._stream.aclose()
        except (DeadlineExceeded, trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            # the peer has left or did not take the close_notify in time
            self.conn.close()


async def first_byte(conn: Conn, deadline: float) -> bytes:
    """Wait for the peer's first byte and return it, but leave it in the socket. b"" if the peer has closed its side.
    Raise BrokenResourceError if the connection is gone."""
    conn.set_read_deadline(deadline)
    while True:
        try:
            first = conn.socket.recv(1, stdlib.MSG_PEEK)
        except BlockingIOError:
            await conn.wait_readable()
        except OSError as error:
            raise BrokenResourceError("the peer is gone") from error
        else:
            return first


def address_of(name: Callable[[], Any]) -> tuple[str, int] | None:
    """Return host and port of one end; None for a unix socket, or a peer that is gone already."""
    try:
        address = name()
    except OSError:
        return None
    return (address[0], address[1]) if isinstance(address, tuple) else None
