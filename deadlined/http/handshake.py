"""The TLS handshake of a new connection: one deadline, and a plain answer for a peer that does not speak TLS."""

from __future__ import annotations

import ssl

import trio

from ..net import Conn
from .errors import BadRequest
from .state import Reason
from .transport import TLS_HELLO, Tls, first_byte


async def tls_handshake(conn: Conn, context: ssl.SSLContext, deadline: float) -> Tls | Reason:
    """Set up TLS on `conn` by `deadline`: the transport, or the reason why there is none.

    BadRequest for a peer that speaks plain HTTP; it can be answered in the clear. DeadlineExceeded at `deadline`, or at
    an earlier read deadline that was set on `conn` meanwhile. BrokenResourceError if the connection is gone.
    """
    first = await first_byte(conn, deadline)
    if not first:
        return Reason.CLIENT_CLOSED
    if first != TLS_HELLO:
        raise BadRequest(400, "this port speaks TLS: use https://")
    tls = Tls(conn, context)
    try:
        await tls.handshake(deadline)
    except trio.BrokenResourceError as error:
        if isinstance(error.__cause__, ssl.SSLError):
            return Reason.PROTOCOL_ERROR
        raise
    return tls
