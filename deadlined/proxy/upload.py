"""The body of a request, sent to an upstream while its response is awaited or received."""

from __future__ import annotations

from typing import Final

from ..http import LAST_CHUNK, Exchange, chunk
from ..runtime import checkpoint
from .connection import UpstreamConnection
from .errors import UpstreamError
from .progress import Progress

# pieces that have come already are joined until there are so many bytes
_JOINED: Final = 64 * 1024


class Upload:
    """Sends `begun`, the head with what has come of the body, framed, and then the rest of the body. Notes in
    `progress`, which says how fast the upstream must take it, when that has ended."""

    __slots__ = ("_begun", "_connection", "_exchange", "_progress", "done", "error")

    def __init__(self, exchange: Exchange, connection: UpstreamConnection, begun: bytes, progress: Progress) -> None:
        self._exchange = exchange
        self._connection = connection
        self._begun = begun
        self._progress = progress
        # head and body were handed to the connection
        self.done: bool = False
        # why it could not be sent
        self.error: UpstreamError | None = None

    async def run(self) -> None:
        """Send it. What the upstream does wrong is kept in `error`, for who awaits the response. Raise Disconnected if
        the client is gone or does not send the body; then the whole try is over."""
        try:
            await self._send()
        except UpstreamError as error:
            self.error = error
            self._progress.note_sent(refused=True)
            return
        self.done = True
        self._progress.note_sent()

    async def _send(self) -> None:
        await self._connection.send(self._begun, self._progress)
        while not self._exchange.body_done:
            await self._connection.send(await self._next_pieces(), self._progress)
            # a client that always has more must let others run
            await checkpoint()

    async def _next_pieces(self) -> bytes:
        """Receive the next piece of the body, and what has come with it. The body is done only with a piece that is
        returned, which may be empty."""
        exchange = self._exchange
        chunked = exchange.request.chunked
        pieces = [framed(await exchange.receive(), chunked, exchange.body_done)]
        size = len(pieces[0])
        while size < _JOINED and not exchange.body_done:
            piece = exchange.try_receive()
            if piece is None:
                break
            pieces.append(framed(piece, chunked, exchange.body_done))
            size += len(pieces[-1])
        return b"".join(pieces)


def framed(piece: bytes, chunked: bool, is_last: bool) -> bytes:
    """Return the bytes to send for a piece of a body; the piece may be empty."""
    if not chunked:
        return piece
    start = chunk(piece) if piece else b""
    return start + LAST_CHUNK if is_last else start
