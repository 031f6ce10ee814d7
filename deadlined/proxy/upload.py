"""The body of a request, sent to an upstream while its response is awaited or received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ..errors import Kept
from ..http import LAST_CHUNK, Exchange, chunk
from ..runtime import Group, checkpoint, open_group, within
from .connection import UpstreamConnection
from .errors import UpstreamError, bare

# pieces that have come already are joined until there are so many bytes
_JOINED: Final = 64 * 1024


class Upload:
    """Sends a request whose body is still coming: first `begun`, the head and the framed start of the body, then the
    rest of the body. Meanwhile the progress of the connection says how fast the upstream must take it; the end is noted
    there."""

    __slots__ = ("_begun", "_connection", "_exchange", "_response_done", "_response_error", "error")

    def __init__(self, exchange: Exchange, connection: UpstreamConnection, begun: bytes) -> None:
        self._exchange = exchange
        self._connection = connection
        self._begun = begun
        # why it could not be sent
        self.error: UpstreamError | None = None
        # what has become of the response that is awaited beside it: whether it is complete, or why there is none
        self._response_done = False
        self._response_error: Kept | None = None

    async def run_beside(self, respond: Callable[[], Awaitable[bool]]) -> None:
        """Send the request while `respond()` passes the response on. If that returns True, the response is complete,
        but the client may not have taken it: go on until it has, because it may read only after it has sent everything.

        Raise the UpstreamError of `respond` as it is, and all else in a group: Disconnected if the client is gone or
        does not send the body.
        """
        await within(open_group(), partial(self._run_beside, respond))
        if self._response_error is not None:
            self._response_error.reraise()

    async def _run_beside(self, respond: Callable[[], Awaitable[bool]], group: Group) -> None:
        group.start_soon(self._run, group)
        try:
            self._response_done = await respond()
        except UpstreamError as error:
            # a group would wrap it
            self._response_error = Kept(error)
        if self._response_done and not self._connection.request_sent and self.error is None:
            group.start_soon(self._wait_taken, group)
        else:
            group.cancel()

    async def _run(self, group: Group) -> None:
        """Send the request. Keep an error of the upstream in `error`. It counts if no response comes: an upstream may
        answer without all of the body. Raise Disconnected if the client is gone or does not send the body; then the
        whole try is over."""
        try:
            await self._send()
        except UpstreamError as error:
            self.error = bare(error)
        self._connection.progress.note_sent(refused=self.error is not None)
        if self._response_done:
            # the upstream has nothing to do any more, whatever the client has taken
            group.cancel()

    async def _wait_taken(self, group: Group) -> None:
        await self._exchange.wait_taken()
        group.cancel()

    async def _send(self) -> None:
        connection = self._connection
        await connection.send(self._begun, False)
        while not connection.request_sent:
            part, last = await self._next_part()
            await connection.send(part, last)
            # a client that always has more must let others run
            await checkpoint()

    async def _next_part(self) -> tuple[bytes, bool]:
        """Receive a piece of the body, which may be empty, and what has come with it. Return the framed bytes, and
        whether the body ends with them. The exchange cannot be asked for that later: more may have come by then."""
        exchange = self._exchange
        pieces = [await exchange.receive()]
        size = len(pieces[0])
        while size < _JOINED and not exchange.body_done:
            piece = exchange.try_receive()
            if piece is None:
                break
            pieces.append(piece)
            size += len(piece)
        last = exchange.body_done
        return framed(b"".join(pieces), exchange.request.chunked, last), last


def framed(piece: bytes, chunked: bool, is_last: bool) -> bytes:
    """Return the bytes to send for a piece of a body; the piece may be empty."""
    if not chunked:
        return piece
    start = chunk(piece) if piece else b""
    return start + LAST_CHUNK if is_last else start
