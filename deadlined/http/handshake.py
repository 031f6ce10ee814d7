"""The TLS handshake of a new connection, under one deadline. It detects a peer that speaks plain HTTP."""

from __future__ import annotations

import logging
import ssl

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, Conn
from .errors import BadRequest
from .reporting import report
from .secure import TLS_HELLO, Tls
from .state import Reason
from .transport import Plain


async def tls_handshake(conn: Conn, context: ssl.SSLContext | None, deadline: float, peer: str) -> Tls | Reason:
    """Set up TLS on `conn`. Return the transport, or the reason to end: the peer has closed its side, an earlier read
    deadline of `conn`, which a drain sets, has passed, or the TLS handshake has failed, which is logged for debugging
    with the name of the `peer`.

    Raise BadRequest if the peer does not begin with TLS; it can be answered in the clear. Raise DeadlineExceeded at
    `deadline`, BrokenResourceError if the connection is gone.
    """
    assert context is not None
    try:
        return await _set_up(conn, context, min(deadline, conn.read_deadline), peer)
    except DeadlineExceeded as late:
        if late.deadline < deadline:
            return Reason.DONE
        raise


async def _set_up(conn: Conn, context: ssl.SSLContext, deadline: float, peer: str) -> Tls | Reason:
    # bytes that have come in time may have waited for this turn of the loop
    first = conn.receive_ready()
    if first is None:
        first = await Plain(conn).receive(deadline)
    if not first:
        return Reason.CLIENT_CLOSED
    if not first.startswith(TLS_HELLO):
        raise BadRequest(400, "this port speaks TLS: use https://")
    tls = Tls(conn, context, first)
    try:
        await tls.handshake(deadline)
    except BrokenResourceError as error:
        report(logging.DEBUG, "no TLS with %s: %s", peer, error)
        if isinstance(error.__cause__, ssl.SSLError):
            return Reason.PROTOCOL_ERROR
        if tls.peer_ended:
            return Reason.CLIENT_CLOSED
        raise
    return tls
