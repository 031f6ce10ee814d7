"""The close of a connection whose peer may still be sending, so that the peer can read the last response.

Facts      Closing a socket that holds unread bytes resets the connection, and a reset discards what the peer has not
           read yet (RFC 9112, 9.6).
Hazard     A client that is still sending its request would lose the response that tells it to stop. Many a client, such
           as Python's requests, reads it only after all of the request was sent. A server that waits until the client
           stops could wait for ever. A task that is cancelled must not take along what is to be sent.
Answer     A lingering close: send what is left, end the server's side, then read and discard what still comes, for
           LINGER seconds; longer while the client sends at LINGER_RATE and does not pause for LINGER seconds, but not
           beyond LINGER_MOST. It is not prolonged in a drain, nor after an upgrade, where clients read while they send.
           What is left stays in the connection's output, and the deadlines run from one moment.
Cost       A task and a descriptor for these seconds, only if the peer may be sending.
"""

from __future__ import annotations

from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError
from ..poll import Clock
from ..timing import sleep_until
from .output import Output
from .policy import LINGER, LINGER_MOST, linger_deadline
from .transport import Plain, Transport

# bytes that are read and discarded; and after an upgrade: as many as a websocket's message may have, so that a client
# which has sent a longer one is likely to read that it was too long
_DISCARD: Final = 64 * 1024 * 1024
_DISCARD_UPGRADED: Final = 16 * 1024 * 1024


class GracefulClose:
    """The close of one connection, which begins now. `unread`: the peer may be sending bytes that the server will
    not read. `upgraded`: they are not HTTP's, and do not prolong the close. `deadline`: that of its current wait."""

    __slots__ = (
        "_began",
        "_clock",
        "_discard_most",
        "_discarded",
        "_output",
        "_read_until",
        "_send_until",
        "_transport",
        "_unread",
        "deadline",
    )

    def __init__(self, transport: Transport, output: Output, unread: bool, upgraded: bool, clock: Clock) -> None:
        self._transport = transport
        self._output = output
        self._unread = unread
        self._clock = clock
        self._began: float = clock.now()
        self._send_until: float = self._began + 2 * LINGER
        self._read_until: float = self._began + (LINGER if upgraded else LINGER_MOST)
        self._discard_most: int = _DISCARD_UPGRADED if upgraded else _DISCARD
        self._discarded: int = 0
        self.deadline: float = self._send_until
        output.send_by(self._send_until)

    def hurry(self) -> None:
        """Read on for LINGER seconds from now at most. No wait that is under way has a later deadline."""
        self._read_until = min(self._read_until, self._clock.now() + LINGER)

    async def run(self) -> None:
        """Send what is pending, let the peer read it, and close; after a cancellation, go on with that. Errors of the
        connection and passed deadlines are not raised."""
        conn = self._transport.conn
        try:
            self._output.flush()
            await self._output.wait(0)
            if self._unread and conn.socket.fileno() >= 0:
                await self._transport.end(self._began + LINGER)
                await self._discard()
            await self._transport.aclose(self._send_until)
        except (DeadlineExceeded, BrokenResourceError, ClosedResourceError, BusyResourceError):
            # the peer has left, a deadline has passed, or a handler still uses the socket
            conn.close()

    async def _discard(self) -> None:
        """Discard what comes, encrypted or not, until the peer ends its side. Raise DeadlineExceeded at the deadline
        of the close."""
        plain = Plain(self._transport.conn)
        while self._discarded < self._discard_most:
            self.deadline = linger_deadline(self._began, self._read_until, self._discarded, self._clock.now())
            data = await plain.receive(self.deadline)
            if not data:
                return
            self._discarded += len(data)
        # read no more: the kernel's buffers fill, and the peer cannot send on
        self.deadline = self._began + LINGER
        await sleep_until(self.deadline)
