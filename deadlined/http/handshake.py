"""The TLS handshake of a new connection, under one deadline. It detects a peer that speaks plain HTTP."""

from __future__ import annotations

import ssl

import trio

from ..net import Conn
from .errors import BadRequest
from .state import Reason
from .transport import TLS_HELLO, Tls, first_byte


async def tls_handshake(conn: Conn, context: ssl.SSLContext, deadline: float) -> Tls | Reason:
    """Set up TLS on `conn`. Return the transport, or the reason to end if the peer has closed its side or the TLS
    handshake has failed.

    Raise BadRequest if the peer does not begin with TLS; it can be answered in the clear. Raise DeadlineExceeded at
    `deadline`, or at an earlier read deadline that was set on `conn` meanwhile. Raise BrokenResourceError if the
    connection is gone.
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
