"""The end of a connection whose peer may still be sending: the last response, and a close that does not discard it.

Facts      A close over bytes that were not read is a reset, and a reset discards what the peer has not read yet
           (RFC 9112, 9.6).
Hazard     A client that is still sending its request loses the very response that tells it to stop; a server that
           waits for it to stop is held by it.
Answer     A lingering close: send what is left, end our side, read and discard what still comes, for LINGER seconds at
           most.
Cost       A task and a descriptor for these seconds, only where the peer may be sending.
"""

from __future__ import annotations

from typing import Final

import trio

from ..errors import DeadlineExceeded
from ..net import Conn
from ..poll import Clock
from .policy import LINGER, write_deadline
from .timeouts import Timeouts
from .transport import Plain, Transport

# bytes that are read and discarded; a peer that sends more does not stop because of what it is told
_DISCARD: Final = 256 * 1024


async def close_gracefully(
    transport: Transport, response: bytes, unread: bool, clock: Clock, timeouts: Timeouts
) -> None:
    """Send `response`, which may be empty, let the peer read it, and close. `unread`: the peer may be sending bytes
    that nobody will read. Never raises for what the peer does."""
    conn = transport.conn
    start = clock.now()
    try:
        if response:
            by = min(write_deadline(start, start, len(response), timeouts)[0], start + 2 * LINGER)
            await transport.send(response, 0, lambda _: by)
        if unread and conn.socket.fileno() >= 0:
            await _discard_until(conn, start + LINGER)
        await transport.aclose(clock.now() + LINGER)
    except (DeadlineExceeded, trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
        # the peer did not wait for the end, or a handler still uses the socket
        conn.close()


async def _discard_until(conn: Conn, deadline: float) -> None:
    """End our side, and read what still comes until the peer ends its side. DeadlineExceeded at `deadline`."""
    conn.shutdown_write()
    plain = Plain(conn)
    left = _DISCARD
    while data := await plain.receive(deadline):
        left -= len(data)
        if left <= 0:
            # let the kernel's buffers fill, so that the peer notices
            await trio.sleep_until(deadline)
            return
