"""The body of a request, sent to an upstream while its response is awaited."""

from __future__ import annotations

from typing import Final

from ..http import LAST_CHUNK, Exchange, chunk
from .connection import UpstreamConnection
from .errors import UpstreamError
from .options import ProxyTimeouts

# seconds in which the response must come after the body could not be sent: an upstream that refuses a body may have
# answered before it has closed
_LAST_WORDS: Final = 1.0


class Upload:
    """Sends `begun`, the head with what has come of the body, and then the rest of it. The read deadline of
    `connection` is `by` until all is sent, and then that of the response."""

    __slots__ = ("_begun", "_by", "_connection", "_exchange", "_timeouts", "done", "error", "head_came")

    def __init__(
        self, exchange: Exchange, connection: UpstreamConnection, begun: bytes, timeouts: ProxyTimeouts, by: float
    ) -> None:
        self._exchange = exchange
        self._connection = connection
        self._begun = begun
        self._timeouts = timeouts
        self._by = by
        # the whole body was sent
        self.done: bool = False
        # why it could not be sent
        self.error: UpstreamError | None = None
        # the head of the response has come
        self.head_came: bool = False

    @property
    def waits_for_client(self) -> bool:
        """True while the upstream may wait for more of the body."""
        return not self.done and self.error is None

    async def run(self) -> None:
        """Send the body. Raise Disconnected if the client is gone or does not send it."""
        conn = self._connection.conn
        timeouts = self._timeouts
        try:
            await self._send()
        except UpstreamError as error:
            self.error = error
            conn.set_read_timeout(_LAST_WORDS)
            return
        self.done = True
        if self.head_came:
            conn.set_read_timeout(timeouts.upstream_idle)
            return
        conn.set_read_timeout(timeouts.upstream_first_byte)
        if self._by < conn.read_deadline:
            conn.set_read_deadline(self._by)

    async def _send(self) -> None:
        exchange = self._exchange
        chunked = exchange.request.chunked
        idle = self._timeouts.upstream_idle
        await self._connection.send(self._begun, idle)
        while not exchange.body_done:
            piece = await exchange.receive()
            await self._connection.send(framed(piece, chunked, exchange.body_done), idle)


def framed(piece: bytes, chunked: bool, is_last: bool) -> bytes:
    """Return the bytes to send for a piece of a body, which may be empty."""
    if not chunked:
        return piece
    start = chunk(piece) if piece else b""
    return start + LAST_CHUNK if is_last else start
