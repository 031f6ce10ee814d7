"""Bytes in and out of a connection under a deadline: what every transport does, and the one without TLS.

An operation that need not wait is done without a checkpoint. A receive always sets its deadline first, which costs a
store. What is to be sent is offered, and `output.py` waits. `secure.py` does the same through TLS.

Readiness beats expiry, as in Go: when a wait ends by its deadline, the kernel is asked once more for bytes. They may
have come in time and have waited because the event loop was blocked.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Final

from ..errors import DeadlineExceeded
from ..net import Conn
from ..net.sockets import join_host_port, unsent
from ..runtime import checkpoint
from .tls_facts import TlsFacts

# after this number of receives in a row that need not wait, a checkpoint lets other tasks run
_BUDGET: Final = 16

# bytes of a receive, unless more are asked for
RECEIVE_SIZE: Final = 64 * 1024

Buffer = bytes | memoryview


class Transport(ABC):
    """The bytes of a connection, in and out. An abstract base class. `received` and `sent` count bytes of HTTP, before
    encryption."""

    __slots__ = ("_budget", "ahead", "conn", "received", "sent")

    # True if closing the socket is all that a graceful end needs
    closes_at_once: ClassVar[bool] = False

    # bytes of a response that may be pending once it is complete. What is sent at once is still in the processor's
    # caches when the kernel copies it
    most_last: ClassVar[int] = 64 * 1024

    def __init__(self, conn: Conn) -> None:
        self.conn: Conn = conn
        self.received: int = 0
        self.sent: int = 0
        # bytes at the front of what is to be sent that are encrypted already, and have not left yet
        self.ahead: int = 0
        # receives that may still be done before the next checkpoint
        self._budget: int = _BUDGET

    @property
    def tls(self) -> TlsFacts | None:
        """What TLS has agreed on; None without TLS. To be asked after the handshake."""
        return None

    @property
    def can_be_unattended(self) -> bool:
        """True if the transport holds no received bytes outside the socket, so that it can wait without a task."""
        return True

    @property
    def drained(self) -> bool:
        """True if `receive_ready` would return None, as far as is known."""
        return self.conn.drained

    @property
    def was_cut(self) -> bool:
        """True if what was received ends where no peer ends it: in the middle of a TLS record."""
        return False

    @property
    def taken(self) -> int:
        """How many bytes the peer's system has taken, since any moment: a number that grows."""
        return self.sent - self.untaken

    @property
    def untaken(self) -> int:
        """How many bytes that have left the peer's system has not taken."""
        return unsent(self.conn.socket)

    async def receive(self, deadline: float, max_bytes: int = RECEIVE_SIZE) -> bytes:
        """Receive the next bytes, b"" at the end. Raise DeadlineExceeded at `deadline`; if it has passed before the
        call, even if bytes are there."""
        self.conn.set_read_deadline(deadline)
        if not self._budget:
            # before the read: one that is cancelled here has taken no bytes
            await self._let_others_run()
        data = self._try_receive(max_bytes)
        if data is None:
            data = await self._wait_and_receive(max_bytes)
            self._budget = _BUDGET
        else:
            self._budget -= 1
        self.received += len(data)
        return data

    def receive_ready(self, max_bytes: int = RECEIVE_SIZE) -> bytes | None:
        """Receive without waiting, even if the deadline has passed. None if no bytes are there."""
        data = self._receive_now(max_bytes)
        if data is not None:
            self._budget = _BUDGET
            self.received += len(data)
        return data

    @abstractmethod
    def offer(self, data: Buffer) -> int:
        """Send what can be sent without waiting. Return the number of bytes that have left. The rest of `data` must be
        offered next, and may be followed by more: its first `ahead` bytes are not read again."""

    @abstractmethod
    def offer_parts(self, parts: list[Buffer]) -> int:
        """Do what `offer` does with `parts` one after another, or with the first of their bytes. Copy few of them at
        once, however often this is called."""

    @abstractmethod
    async def end(self, deadline: float) -> None:
        """End the server's side, so that the peer knows that all has come. Raise DeadlineExceeded at `deadline`."""

    @abstractmethod
    async def aclose(self, deadline: float) -> None:
        """Close gracefully, and at `deadline` in any case."""

    @abstractmethod
    def _try_receive(self, max_bytes: int) -> bytes | None:
        """Receive without waiting; None if that is impossible. Raise DeadlineExceeded if the deadline has passed."""

    @abstractmethod
    def _receive_now(self, max_bytes: int) -> bytes | None:
        """Receive without waiting, whatever the deadline; None if that is impossible."""

    async def _wait_and_receive(self, max_bytes: int) -> bytes:
        conn = self.conn
        data = None
        while data is None:
            try:
                await conn.wait_readable()
            except DeadlineExceeded:
                data = self._receive_now(max_bytes)
                if data is None:
                    raise
            else:
                data = self._receive_now(max_bytes)
        return data

    async def _let_others_run(self) -> None:
        self._budget = _BUDGET
        await checkpoint()


class Plain(Transport):
    """A connection without TLS."""

    __slots__ = ()

    closes_at_once: ClassVar[bool] = True

    def offer(self, data: Buffer) -> int:
        taken = self.conn.try_send(data)
        self.sent += taken
        return taken

    def offer_parts(self, parts: list[Buffer]) -> int:
        taken = self.conn.try_send_parts(parts)
        self.sent += taken
        return taken

    async def end(self, deadline: float) -> None:
        self.conn.shutdown_write()

    async def aclose(self, deadline: float) -> None:
        self.conn.close()

    def _try_receive(self, max_bytes: int) -> bytes | None:
        return None if self.conn.drained else self.conn.try_receive(max_bytes)

    def _receive_now(self, max_bytes: int) -> bytes | None:
        return self.conn.receive_ready(max_bytes)


def address_of(name: Callable[[], Any]) -> tuple[str, int] | None:
    """Return host and port of one end; None for a unix socket, or a peer that is gone already."""
    address = _name_of(name)
    return (address[0], address[1]) if isinstance(address, tuple) else None


def server_address_of(name: Callable[[], Any]) -> tuple[str, int | None] | None:
    """Return host and port of the server's end, or path and None of a unix socket; None for a socket without a name."""
    address = _name_of(name)
    if isinstance(address, tuple):
        return _one_of_equals(address[:2])  # type: ignore[no-any-return]
    # bytes for an abstract socket
    return _one_of_equals((os.fsdecode(address), None)) if address else None


# The types are what they are because compiled code takes a tuple that has a type apart, and makes another one.
@lru_cache(maxsize=64)
def _one_of_equals(address: Any) -> Any:
    """Return the same object for equal addresses. Each connection keeps the server's, and a server has few."""
    return address


def _name_of(name: Callable[[], Any]) -> Any:
    try:
        return name()
    except OSError:
        return None


def peer_name(address: tuple[str, int] | None) -> str:
    """Return the address of a client for the log. Port 0 means that it is not known, and is left out."""
    if address is None:
        return "unix"
    host, port = address
    return join_host_port(host, port) if port else host
