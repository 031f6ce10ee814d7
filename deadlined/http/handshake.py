"""The first phase of a connection, where it speaks TLS: under one deadline, and refused politely where it does not."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import trio

from ..errors import DeadlineExceeded
from .errors import BadRequest
from .phases import RULES, Phase, Reason, handshake_deadline
from .transport import TLS_HELLO, Tls, first_byte

if TYPE_CHECKING:
    from .connection import HttpConnection


async def shake_hands(link: HttpConnection, context: ssl.SSLContext) -> None:
    """Give `link` a transport that has shaken hands, or finish it. BadRequest for who speaks plain HTTP."""
    deadline = handshake_deadline(link.accepted, link.timeouts)
    link.enter(Phase.HANDSHAKE, deadline)
    try:
        first = await first_byte(link.conn, deadline)
        if not first:
            link.finish(Reason.CLIENT_CLOSED)
            return
        if first != TLS_HELLO:
            raise BadRequest(400, "this port speaks TLS: use https://")
        link.transport = tls = Tls(link.conn, context)
        await tls.handshake(deadline)
    except DeadlineExceeded as late:
        if late.deadline < deadline:
            # the drain's
            link.finish(Reason.DONE)
        else:
            link.cut(RULES["handshake"], link.clock.now() - late.deadline)
    except trio.BrokenResourceError as error:
        if isinstance(error.__cause__, ssl.SSLError):
            link.finish(Reason.PROTOCOL_ERROR)
        raise
