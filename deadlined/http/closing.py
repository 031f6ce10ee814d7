"""The close of a connection whose peer may still be sending, so that the peer can read the last response.

Facts      Closing a socket that holds unread bytes resets the connection, and a reset discards what the peer has not
           read yet (RFC 9112, 9.6).
Hazard     A client that is still sending its request would lose the response that tells it to stop. A server that waits
           until the client stops could wait for ever.
Answer     A lingering close: send what is left, end the server's side, then read and discard what still comes, for
           LINGER seconds at most.
Cost       A task and a descriptor for these seconds, only if the peer may be sending.
"""

from __future__ import annotations

from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError, Conn
from ..poll import Clock
from ..timing import sleep_until
from .policy import LINGER, write_deadline
from .timeouts import Timeouts
from .transport import Plain, Transport

# bytes that are read and discarded; a peer that sends more ignores the response
_DISCARD: Final = 256 * 1024


async def close_gracefully(
    transport: Transport, response: bytes, unread: bool, clock: Clock, timeouts: Timeouts
) -> None:
    """Send `response`, which may be empty, let the peer read it, and close. `unread`: the peer may be sending bytes
    that the server will not read. Errors of the connection and passed deadlines are not raised."""
    conn = transport.conn
    start = clock.now()
    try:
        if response:
            by = min(write_deadline(start, start, len(response), timeouts)[0], start + 2 * LINGER)
            await transport.send(response, by)
        if unread and conn.socket.fileno() >= 0:
            await transport.end(start + LINGER)
            await _discard_until(conn, start + LINGER)
        await transport.aclose(clock.now() + LINGER)
    except (DeadlineExceeded, BrokenResourceError, ClosedResourceError, BusyResourceError):
        # the peer has left, a deadline has passed, or a handler still uses the socket
        conn.close()


async def _discard_until(conn: Conn, deadline: float) -> None:
    """Discard what comes, encrypted or not, until the peer ends its side. Raise DeadlineExceeded at `deadline`."""
    plain = Plain(conn)
    left = _DISCARD
    while data := await plain.receive(deadline):
        left -= len(data)
        if left <= 0:
            # read no more: the kernel's buffers fill, and the peer cannot send on
            await sleep_until(deadline)
            return
