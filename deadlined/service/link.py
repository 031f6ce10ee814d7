"""A worker's end of the line between it and its supervisor.

The line is a socket pair. The worker says once where it listens; the supervisor says `END`. Whoever is killed closes
its end, which the other notices.
"""

from __future__ import annotations

import signal
import socket as stdlib
from collections.abc import Callable

import trio

from ..net import Conn

# what a supervisor says to end a worker whose drain takes too long for somebody
END = b"e"


class Link:
    """Made in the worker, after the fork."""

    def __init__(self, socket: stdlib.socket) -> None:
        self._socket = socket

    def tell_ready(self) -> None:
        """The worker serves."""
        try:
            self._socket.send(b"r")
        except OSError:
            # the supervisor is gone, which `follow` will hear, too
            return

    async def follow(self, end: Callable[[], object]) -> None:
        """Drain as upon SIGTERM when the supervisor is gone, and call `end` when it says so. Never returns."""
        async with Conn.from_socket(self._socket) as conn:
            word = await self._next_word(conn)
            while word:
                end()
                word = await self._next_word(conn)
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep_forever()

    async def _next_word(self, conn: Conn) -> bytes:
        try:
            return await conn.receive_some(1)
        except trio.BrokenResourceError:
            return b""
