"""The worker process's end of the connection between it and its supervisor.

It is a socket pair. The worker process sends one byte when it serves; the supervisor sends `END` to end it at once.
When either process dies, the kernel closes its end, and the other process notices.
"""

from __future__ import annotations

import signal
import socket as stdlib
from collections.abc import Callable

from ..net import BrokenResourceError, Conn
from ..runtime import Event

# sent by a supervisor that got a second signal: cut the drain short
END = b"e"


class Link:
    """The worker process's end; made after the fork. `number`: that of the worker process, from 1 on; one that replaces
    another has its number. `first`: no other was ready before."""

    def __init__(self, socket: stdlib.socket, number: int = 1, first: bool = True) -> None:
        self._socket = socket
        self.number = number
        self.first = first

    def report_ready(self) -> None:
        """Tell the supervisor that this process serves."""
        try:
            self._socket.send(b"r")
        except OSError:
            # the supervisor is gone; `follow` notices that as well
            return

    async def follow(self, end: Callable[[], object]) -> None:
        """Call `end` for each `END`, and drain as upon SIGTERM when the supervisor is gone. Never returns."""
        async with Conn.from_socket(self._socket) as conn:
            while await self._receive(conn):
                end()
            signal.raise_signal(signal.SIGTERM)
            await Event().wait()

    async def _receive(self, conn: Conn) -> bytes:
        """Return the next byte, or b"" when the supervisor is gone."""
        try:
            return await conn.receive_some(1)
        except BrokenResourceError:
            return b""
