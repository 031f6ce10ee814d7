"""The end of a connection that is still to be heard: last words, and a close that does not throw them away.

Facts      A close over bytes that were not read is a reset, and a reset throws away what the peer has not read yet
           (RFC 9112, 9.6).
Hazard     A client that is still sending its request loses the very answer that tells it to stop; a server that waits
           for it to stop is held by it.
Answer     Say the last words, end our side, read and forget what still comes, for LINGER seconds at most.
Cost       A task and a descriptor for these seconds, only where the peer may be sending.
"""

from __future__ import annotations

from typing import Final

import trio

from ..errors import DeadlineExceeded
from ..net import Conn
from ..poll import Clock
from .phases import LINGER, write_deadline
from .timeouts import Timeouts
from .transport import Plain, Transport

# bytes that are read and forgotten; whoever sends more has stopped listening
_FORGET: Final = 256 * 1024


class Goodbye:
    """What is left to say on one connection. Set `unread` if the peer may be sending what nobody will read."""

    __slots__ = ("_conn", "_words", "unread")

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self._words = b""
        self.unread = False

    def tell(self, words: bytes, transport: Transport) -> None:
        """The last words: said at once if that can be done without waiting, else by `say`."""
        self.unread = True
        if not transport.send_last(words):
            self._words = words

    def nothing_to_say(self, transport: Transport) -> bool:
        """True if to close is all that is left."""
        return not self._words and not self.unread and transport.closes_at_once

    async def say(self, transport: Transport, clock: Clock, timeouts: Timeouts) -> None:
        """Say what was not said yet, let the peer read it, and close. Never raises for what the peer does."""
        deadline = clock.now() + LINGER
        try:
            if self._words:
                send = write_deadline(clock.now(), clock.now(), len(self._words), timeouts)[0]
                await transport.send(self._words, 0, lambda _: min(send, deadline + LINGER))
            if self.unread and self._conn.socket.fileno() >= 0:
                await self._linger(deadline)
            await transport.aclose(clock.now() + LINGER)
        except (DeadlineExceeded, trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            # the peer did not wait for the end, or a handler does not let go of the socket
            self._conn.close()

    async def _linger(self, deadline: float) -> None:
        self._conn.shutdown_write()
        plain = Plain(self._conn)
        left = _FORGET
        while data := await plain.receive(deadline):
            left -= len(data)
            if left <= 0:
                # let the kernel's buffers fill and the peer notice
                await trio.sleep_until(deadline)
                return
