"""The TLS handshake of a new connection, under one deadline. It detects a peer that speaks plain HTTP."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, Conn
from .errors import BadRequest
from .reporting import report
from .secure import TLS_HELLO, Tls
from .state import Reason
from .transport import Plain


class TlsHandshake:
    """The TLS handshake on `conn`. `peer` names the client in the log. `received`: length in bytes of the first read,
    0 before it."""

    def __init__(self, conn: Conn, context: ssl.SSLContext | None, peer: str) -> None:
        assert context is not None
        self._conn: Final = conn
        self._context: Final[ssl.SSLContext] = context
        self._peer: Final = peer
        # None until the peer's first bytes were read
        self._tls: Tls | None = None
        self.received: int = 0

    async def run(self, deadline: float) -> Tls | Reason:
        """Set up TLS, and return the transport. Called again after a cancellation, go on where that came.

        Return the reason to end the connection instead: CLIENT_CLOSED if the peer has closed its side, PROTOCOL_ERROR
        if the handshake has failed, which is logged for debugging, DONE if an earlier read deadline of `conn` has
        passed, which a drain sets.

        Raise BadRequest if the peer does not begin with TLS; it can be answered in the clear. Raise DeadlineExceeded at
        `deadline`, BrokenResourceError if the connection is gone.
        """
        by = min(deadline, self._conn.read_deadline)
        try:
            if self._tls is None:
                first = await self._first_bytes(by)
                if not first:
                    return Reason.CLIENT_CLOSED
                self.received = len(first)
                self._tls = Tls(self._conn, self._context, first)
            return await self._set_up(self._tls, by)
        except DeadlineExceeded as late:
            if late.deadline < deadline:
                return Reason.DONE
            raise

    async def _first_bytes(self, deadline: float) -> bytes:
        # bytes that have come in time may have waited for this turn of the loop
        first = self._conn.receive_ready()
        if first is None:
            first = await Plain(self._conn).receive(deadline)
        if first and not first.startswith(TLS_HELLO):
            raise BadRequest(400, "this port speaks TLS: use https://")
        return first

    async def _set_up(self, tls: Tls, deadline: float) -> Tls | Reason:
        try:
            await tls.handshake(deadline)
        except BrokenResourceError as error:
            report(logging.DEBUG, "no TLS with %s: %s", self._peer, error)
            if isinstance(error.__cause__, ssl.SSLError):
                return Reason.PROTOCOL_ERROR
            if tls.peer_ended:
                return Reason.CLIENT_CLOSED
            raise
        return tls
