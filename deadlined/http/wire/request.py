"""Reading requests: bytes in, heads and pieces of body out.

The buffer and the bodies of a known length are read here, plain heads by `plain_head`, other heads by the parser that
was chosen, bodies in chunks by `chunks`. A refusal ends the connection, because nothing after it can be trusted.
"""

from __future__ import annotations

from typing import Final

from ..errors import BadRequest
from ..routes import Choice, Routes
from ..state import Reason
from ..timeouts import Limits
from .chunks import ChunkDecoder
from .grammar import METHOD_START, advance
from .head import LONGEST_METHOD, HeadParser, Request, check_bytes
from .plain_head import read_plain
from .with_h11 import parse_with_h11

_CR: Final = 0x0D

# empty lines before a request: RFC 9112, 2.2 asks for one at least. Without a bound they would be work for nothing
_MOST_EMPTY_LINES: Final = 8

# bytes; most of a longer buffer is a body, and only its head becomes text
_LONG: Final = 4096


class RequestParser:
    """Takes the bytes of a connection and gives one request after another, each followed by its body.

    `feed`, then `next_request` until it gives one; then `next_body` until it gives b"", or `at_end` is true. BadRequest
    from either ends the connection.
    """

    __slots__ = (
        "_buffer",
        "_chunks",
        "_empty_lines",
        "_left",
        "_limits",
        "_parse_head",
        "_routes",
        "_scanned",
        "_start",
        "_state",
        "_text",
        "choice",
        "received",
    )  # fmt: skip

    def __init__(self, limits: Limits, parse_head: HeadParser = parse_with_h11, routes: Routes | None = None) -> None:
        self._limits: Limits = limits
        self._routes: Routes | None = routes
        # the timeouts and limits of the latest request's route, None if it has none
        self.choice: Choice | None = None
        self._parse_head: HeadParser = parse_head
        # what was received and not given out begins at `_start`
        self._buffer: bytes = b""
        self._start: int = 0
        # the buffer as latin-1, once it is searched: compiled code searches text in a third of the time
        self._text: str | None = None
        # empty lines that were dropped before the next request
        self._empty_lines: int = 0
        # an incomplete head was checked up to `_scanned`, an offset from `_start`, where the grammar is in `_state`
        self._scanned: int = 0
        self._state: int = METHOD_START
        # of the current body: bytes to come, or the chunks
        self._left: int = 0
        self._chunks: ChunkDecoder | None = None
        # body bytes of the current request that were given out
        self.received: int = 0

    @property
    def buffered(self) -> int:
        """Bytes that wait to be parsed."""
        held = 0 if self._chunks is None else self._chunks.held
        return len(self._buffer) - self._start + held

    @property
    def at_end(self) -> bool:
        """True once the whole body was given out."""
        return not self._left and self._chunks is None

    @property
    def many_chunks(self) -> bool:
        """True if what was fed last had so many small chunks that other tasks should run before more is fed."""
        return self._chunks is not None and self._chunks.many

    @property
    def holds_last_chunk(self) -> bool:
        """True if the current body is one in chunks, and what was fed seems to end with its end."""
        return self._chunks is not None and self._chunks.holds_last

    @property
    def asks_for_head(self) -> bool:
        """True if a request that is incomplete or was refused is a HEAD, so that its answer must have no body."""
        return self._buffer.startswith(b"HEAD ", self._start)

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if self._chunks is not None:
            self._chunks.feed(data)
            return
        unread = len(self._buffer) - self._start
        self._buffer = self._buffer[self._start :] + data if unread else data
        self._text = None
        self._start = 0

    def drop_empty_lines(self) -> None:
        """Drop the empty lines before a request line, which are no part of it (RFC 9112, 2.2): some clients end a body
        with one. Those beyond _MOST_EMPTY_LINES stay, and `next_request` refuses them."""
        while self._begins_with_cr() and self._empty_lines < _MOST_EMPTY_LINES and self._begins_with_empty_line():
            self._empty_lines += 1
            self._skip(2)

    def next_request(self) -> Request | None:
        """Return the next head, None if it is not complete yet. The previous request's body must have been read.

        Raise BadRequest for a head that is refused, as soon as its beginning cannot become a head.
        """
        end = self._find_end()
        if end < 0:
            return None
        start = self._start
        head, text = self._buffer, self._text
        if start or end < len(head):
            head = head[start:end]
            text = None if text is None else text[start:end]
        if text is None:
            text = head.decode("latin-1")
        request = read_plain(text, self._limits)
        if request is None:
            check_bytes(head, text, self._limits)
            request = self._parse_head(head)
        limits = self._limits if self._routes is None else self._limits_of(request, self._routes)
        self._begin_body(request, limits)
        # not before, so that `asks_for_head` knows what was refused
        self._skip(end - start)
        if request.chunked:
            self._chunks = ChunkDecoder(self._buffer[self._start :], limits)
            self._replace(b"")
        return request

    def next_body(self) -> bytes | None:
        """Return the next piece of body, None if more must be fed first, b"" once the body is complete."""
        if self._chunks is not None:
            return self._next_of_chunks(self._chunks)
        if not self._left:
            return b""
        start = self._start
        piece = self._buffer[start : start + self._left] if start or len(self._buffer) > self._left else self._buffer
        if not piece:
            return None
        self._left -= len(piece)
        self._skip(len(piece))
        self.received += len(piece)
        return piece

    def take_rest(self) -> bytes:
        """Return what was received after the last request, which belongs to another protocol now. None of it is
        left."""
        rest = self._buffer[self._start :]
        self._replace(b"")
        return rest

    def configure(self, limits: Limits, routes: Routes | None) -> None:
        """Use other limits and routes from now on. A body that has begun keeps the limits that it began with."""
        self._limits = limits
        self._routes = routes
        self.choice = None

    def _limits_of(self, request: Request, routes: Routes) -> Limits:
        """Choose what holds for a request, and return its limits."""
        choice = self.choice = routes.choose(request.method, request.path_and_query)
        return self._limits if choice is None else choice.limits

    def _begin_body(self, request: Request, limits: Limits) -> None:
        length = request.content_length or 0
        if length > limits.max_body:
            raise BadRequest(413, f"the body is longer than the {limits.max_body:g} bytes that are allowed")
        self._left = length
        self._empty_lines = 0
        self.received = 0

    def _next_of_chunks(self, chunks: ChunkDecoder) -> bytes | None:
        piece = chunks.next_piece()
        if piece:
            self.received += len(piece)
        elif piece is not None:
            self._chunks = None
            self._replace(chunks.unread())
        return piece

    def _find_end(self) -> int:
        """Return where the next head ends in the buffer, -1 if it is not complete yet."""
        self.drop_empty_lines()
        start = self._start
        size = len(self._buffer) - start
        if not size:
            return -1
        if self._empty_lines == _MOST_EMPTY_LINES and self._begins_with_empty_line():
            raise BadRequest(400, f"more than {_MOST_EMPTY_LINES} empty lines before a request")
        end = self._find_empty_line(start + max(self._scanned - 3, 0))
        if end < 0:
            self._check_incomplete(size)
            return -1
        end += 4
        if end - start > self._limits.max_head:
            self._check_incomplete(end - start)
        return end

    def _find_empty_line(self, start: int) -> int:
        if self._text is None and len(self._buffer) > _LONG:
            return self._buffer.find(b"\r\n\r\n", start)
        text = self._text = self._text or self._buffer.decode("latin-1")
        return text.find("\r\n\r\n", start)

    def _begins_with_cr(self) -> bool:
        """Almost never true; comparing one byte is faster than comparing two."""
        return self._start < len(self._buffer) and self._buffer[self._start] == _CR

    def _begins_with_empty_line(self) -> bool:
        return self._buffer.startswith(b"\r\n", self._start)

    def _check_incomplete(self, size: int) -> None:
        """Check the `size` bytes at the beginning of the buffer, which are an incomplete head or too long a one."""
        if size == 1 and self._begins_with_cr():
            # the start of an empty line, or to be refused with the next byte
            return
        start = self._start
        checked = int(min(size, self._limits.max_head))
        self._state = advance(self._state, self._buffer, start + self._scanned, start + checked)
        self._scanned = checked
        if checked > LONGEST_METHOD and self._buffer.find(b" ", start, start + LONGEST_METHOD + 1) < 0:
            raise BadRequest(400, "this is not an HTTP request")
        if size > checked:
            self._refuse_size(start, checked)

    def _refuse_size(self, start: int, limit: int) -> None:
        if self._buffer.find(b"\r\n", start, start + limit) < 0:
            raise BadRequest(414, f"the request line is longer than {limit} bytes", Reason.HEADER_TOO_LARGE)
        raise BadRequest(431, f"the head is longer than {limit} bytes", Reason.HEADER_TOO_LARGE)

    def _replace(self, data: bytes) -> None:
        self._buffer = data
        self._text = None
        self._start = 0

    def _skip(self, size: int) -> None:
        """Drop `size` bytes that were given out; an empty buffer holds no memory."""
        self._start += size
        self._scanned = 0
        self._state = METHOD_START
        if self._start >= len(self._buffer):
            self._replace(b"")
