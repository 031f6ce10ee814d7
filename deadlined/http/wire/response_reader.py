"""Reading responses: bytes in, heads and pieces of body out. The counterpart of `response`, for a client.

Facts      Where a response ends depends on the request that it answers, on its status, and on one of three framings
           (RFC 9112, 6.3). Interim responses come before the final one.
Hazard     A proxy and its client that see different ends see different responses: the rest of one is taken for the
           beginning of another one's (response splitting). RFC 9112 leaves room for leniency.
Answer     `response_head` refuses what could be read in two ways. A head that comes in pieces is checked by the
           grammar's table as it comes, and refused at its first wrong byte. The framing decides where a body ends.
Cost       Nothing per byte of a body; one look-up per byte of a head that comes in pieces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..errors import BadRequest, BadResponse, TruncatedResponse
from ..timeouts import INF, Limits
from .chunks import ChunkDecoder
from .digits import LARGEST
from .response_head import EXAMPLE, PHRASE, STATUS_END, Response, advance_head, check_beginning, read_head

_EMPTY_LINE: Final = b"\r\n\r\n"


class ResponseReader:
    """Takes the bytes of a connection and gives one response after another, each followed by its body.

    `feed`, then `next_response` until it gives one; then `next_body` until it gives b"", or `at_end` is true. `end`
    when the peer has ended its side. BadResponse from any of them ends the connection. `limits.max_head` and
    `max_headers` bound a head, and the trailers and extensions of a body in chunks. Bodies have no bound.
    """

    __slots__ = (
        "_buffer",
        "_checked",
        "_chunk_limits",
        "_chunks",
        "_ended",
        "_late",
        "_left",
        "_limits",
        "_start",
        "_state",
        "_until_end",
        "received",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits: Limits = limits
        # without a bound for bodies. Making and checking one takes longer than all else here
        self._chunk_limits: Limits = limits if limits.max_body == INF else replace(limits, max_body=INF)
        # what was fed and not given out begins at `_start`
        self._buffer: bytes = b""
        self._start: int = 0
        # an incomplete head, which can grow without being copied; the buffer is empty then. It was checked up to
        # `_checked`, where the grammar is in `_state`
        self._late: bytearray = bytearray()
        self._checked: int = 0
        self._state: int = PHRASE
        # of the current body: bytes to come, LARGEST if all until the end of the connection, or the chunks
        self._left: int = 0
        self._until_end: bool = False
        self._chunks: ChunkDecoder | None = None
        # the peer has ended its side: nothing more will be fed
        self._ended: bool = False
        # body bytes of the current response that were given out
        self.received: int = 0

    @property
    def buffered(self) -> int:
        """Bytes that wait to be read."""
        held = 0 if self._chunks is None else self._chunks.held
        return len(self._buffer) - self._start + len(self._late) + held

    @property
    def at_end(self) -> bool:
        """True once the whole body was given out."""
        return not self._left and self._chunks is None

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if self._chunks is not None:
            self._chunks.feed(data)
        elif self._late:
            self._late += data
        else:
            unread = len(self._buffer) - self._start
            self._replace(self._buffer[self._start :] + data if unread else data)

    def next_response(self, method: str) -> Response | None:
        """Return the next head, also that of an interim response; None if it is not complete yet. `method`: of the
        request that it answers. The body before must have been read.

        Raise BadResponse for a head that is refused, as soon as its beginning cannot become a head.
        """
        head = self._take_head()
        if head is None:
            if self._ended and self._late:
                raise _cut()
            return None
        response = read_head(head, self._limits)
        self._begin_body(response, method)
        return response

    def next_body(self) -> bytes | None:
        """Return the next piece of body, None if more must be fed first, b"" once the body is complete.

        Raise BadResponse if its chunks are malformed, or if it is incomplete after `end`.
        """
        if self._chunks is not None:
            piece = self._next_of_chunks(self._chunks)
        elif self._left:
            piece = self._next_of_buffer()
        else:
            return b""
        if piece is None and self._ended:
            raise _cut()
        return piece

    def end(self) -> None:
        """Note that the peer has ended its side: a body that ends with the connection is complete now, once all of it
        was given out. What was fed before can still be read.

        Raise BadResponse if that is an incomplete response. If it is not known before more is read, the other methods
        raise it.
        """
        self._ended = True
        if self._until_end:
            self._begin_last()
        elif self._is_cut():
            raise _cut()

    def take_rest(self) -> bytes:
        """Return what was received after a 101, which belongs to another protocol. None of it is left."""
        rest = bytes(self._late) or self._buffer[self._start :]
        self._late = bytearray()
        self._replace(b"")
        return rest

    def _take_head(self) -> bytes | None:
        """Take the next head from the buffer, None if it is not complete yet."""
        if self._late:
            return self._take_late_head()
        start = self._start
        end = self._buffer.find(_EMPTY_LINE, start) + len(_EMPTY_LINE)
        if end < len(_EMPTY_LINE):
            if start < len(self._buffer):
                self._late = bytearray(self._buffer[start:])
                self._replace(b"")
                self._check_late()
            return None
        self._check_size(end - start)
        head = self._buffer[start:end]
        self._skip(end - start)
        return head

    def _take_late_head(self) -> bytes | None:
        """Take a head that has come in pieces; what follows it becomes the buffer."""
        late = self._late
        end = late.find(_EMPTY_LINE, max(self._checked - len(_EMPTY_LINE) + 1, 0)) + len(_EMPTY_LINE)
        if end < len(_EMPTY_LINE):
            self._check_late()
            return None
        self._check_size(end)
        self._replace(bytes(late[end:]))
        self._late = bytearray()
        self._checked = 0
        self._state = PHRASE
        return bytes(late[:end])

    def _check_late(self) -> None:
        """Check what has come of an incomplete head since the last check."""
        late = self._late
        if self._checked < len(EXAMPLE):
            check_beginning(bytes(late[: len(EXAMPLE)]))
        self._check_size(len(late))
        self._state = advance_head(self._state, bytes(late[max(self._checked, STATUS_END) :]))
        self._checked = len(late)

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_head:
            raise BadResponse(f"the head is longer than {self._limits.max_head:g} bytes")

    def _begin_body(self, response: Response, method: str) -> None:
        self.received = 0
        status = response.status
        if method == "HEAD" or status in (204, 304) or status < 200:
            return
        if response.chunked:
            self._chunks = ChunkDecoder(self._buffer[self._start :], self._chunk_limits)
            self._replace(b"")
        elif response.content_length is not None:
            self._left = response.content_length
        else:
            response.keep_alive = False
            self._until_end = True
            self._left = LARGEST
            if self._ended:
                self._begin_last()

    def _begin_last(self) -> None:
        """Let a body that ends with the connection end with the buffer."""
        self._until_end = False
        self._left = len(self._buffer) - self._start

    def _is_cut(self) -> bool:
        """Return True if it is plain that more was to come. Chunks that were not read yet may be complete."""
        if self._chunks is not None:
            return not self._chunks.held
        if self._late:
            return self._late.find(_EMPTY_LINE) < 0
        unread = len(self._buffer) - self._start
        if self._left:
            return self._left > unread
        return unread > 0 and self._buffer.find(_EMPTY_LINE, self._start) < 0

    def _next_of_buffer(self) -> bytes | None:
        start = self._start
        piece = self._buffer[start : start + self._left] if start or len(self._buffer) > self._left else self._buffer
        if not piece:
            return None
        self._left -= len(piece)
        self._skip(len(piece))
        self.received += len(piece)
        return piece

    def _next_of_chunks(self, chunks: ChunkDecoder) -> bytes | None:
        try:
            piece = chunks.next_piece()
        except BadRequest as bad:
            raise BadResponse(bad.detail) from bad
        if piece:
            self.received += len(piece)
        elif piece is not None:
            self._chunks = None
            self._replace(chunks.unread())
        return piece

    def _replace(self, data: bytes) -> None:
        self._buffer = data
        self._start = 0

    def _skip(self, size: int) -> None:
        """Drop `size` bytes that were given out; an empty buffer holds no memory."""
        self._start += size
        if self._start >= len(self._buffer):
            self._replace(b"")


def _cut() -> TruncatedResponse:
    return TruncatedResponse("it has ended too early")
