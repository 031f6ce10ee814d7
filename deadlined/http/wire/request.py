"""Reading requests: bytes in, a head and pieces of body out.

The buffer and the bodies of a known length are read here; heads by whichever parser was chosen; bodies in chunks by
h11. Whatever is refused ends the connection, because nothing after it can be trusted.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import BadRequest
from ..phases import Reason
from ..timeouts import Limits
from .head import HeadParser, Request, check_bytes
from .with_h11 import ChunkedBody, parse_with_h11

# a line end that is not CRLF, a CR elsewhere, or a NUL
_AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|\x00")
_TOKEN_START: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\r\n]")

_TLS_HELLO: Final = 0x16
_CR: Final = 0x0D


class RequestParser:
    """Feeds on a connection's bytes; gives one request after another, each followed by its body.

    `feed`, then `next_request` until it gives one; then `next_body` until it gives b"", or `at_end` is true. BadRequest
    from either ends the connection.
    """

    __slots__ = ("_buffer", "_chunks", "_left", "_limits", "_parse_head", "_scanned", "_start", "_text", "received")

    def __init__(self, limits: Limits, parse_head: HeadParser = parse_with_h11) -> None:
        self._limits: Limits = limits
        self._parse_head: HeadParser = parse_head
        # what was received and not given out begins at `_start`; before `_scanned` it was found unambiguous already
        self._buffer: bytes = b""
        # the buffer as latin-1, once it is searched: compiled code searches text in a third of the time
        self._text: str | None = None
        self._start: int = 0
        self._scanned: int = 0
        # of the current body: bytes to come, or the chunks
        self._left: int = 0
        self._chunks: ChunkedBody | None = None
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

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if self._chunks is not None:
            self._chunks.feed(data)
        elif self._start == len(self._buffer):
            self._replace(data)
        else:
            self._scanned -= self._start
            self._buffer = self._buffer[self._start :] + data
            self._text = None
            self._start = 0

    def next_request(self) -> Request | None:
        """The next head, None if it is not complete yet. The previous request's body must have been read."""
        head = self._cut_head()
        if head is None:
            return None
        request = self._parse_head(head)
        self.received = 0
        if request.has_body:
            self._expect_body(request)
        return request

    def next_body(self) -> bytes | None:
        """The next piece of body, None if more must be fed first, b"" once the body is complete."""
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

    def _expect_body(self, request: Request) -> None:
        length = request.content_length
        if length is None:
            self._chunks = ChunkedBody(self._buffer[self._start :], self._limits.max_head)
            self._replace(b"")
            return
        if length > self._limits.max_body:
            raise BadRequest(413, f"the body is longer than the {self._limits.max_body:g} bytes that are allowed")
        self._left = length

    def _next_of_chunks(self, chunks: ChunkedBody) -> bytes | None:
        piece = chunks.next_piece()
        if piece:
            self.received += len(piece)
            if self.received > self._limits.max_body:
                raise BadRequest(413, f"the body is longer than the {self._limits.max_body:g} bytes allowed")
        elif piece is not None:
            self._chunks = None
            self._replace(chunks.rest)
        return piece

    def _cut_head(self) -> bytes | None:
        """Take a complete head that is made of plain lines out of the buffer; refuse as early as can be what will never
        be one."""
        # RFC 9112, 2.2: empty lines before a request line are ignored
        while self._begins_with_cr() and self._buffer.startswith(b"\r\n", self._start):
            self._skip(2)
        buffer = self._buffer
        start = self._start
        size = len(buffer)
        if start >= size:
            return None
        text = self._text = self._text or buffer.decode("latin-1")
        end = text.find("\r\n\r\n", max(self._scanned - 3, start))
        if end < 0:
            # what comes next makes another text
            self._text = None
            self._check_beginning()
            self._check_size(size - start)
            return None
        end += 4
        self._check_size(end - start)
        self._skip(end - start)
        if start or end < size:
            buffer, text = buffer[start:end], text[start:end]
        check_bytes(buffer, text, self._limits)
        return buffer

    def _begins_with_cr(self) -> bool:
        """Hardly ever; one byte is compared faster than two."""
        return self._start < len(self._buffer) and self._buffer[self._start] == _CR

    def _check_beginning(self) -> None:
        """Of a head that is not complete yet: can it still become one?"""
        if not _TOKEN_START.match(self._buffer, self._start):
            hint = "; this port speaks plain HTTP, not TLS" if self._buffer[self._start] == _TLS_HELLO else ""
            raise BadRequest(400, f"this is not an HTTP request{hint}")
        if _AMBIGUOUS.search(self._buffer, max(self._scanned - 1, self._start)):
            raise BadRequest(400, "a line of the head does not end in CRLF, or it contains a NUL")
        self._scanned = len(self._buffer)

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_head:
            raise BadRequest(431, f"the head is longer than {self._limits.max_head:g} bytes", Reason.HEADER_TOO_LARGE)

    def _replace(self, data: bytes) -> None:
        self._buffer = data
        self._text = None
        self._start = self._scanned = 0

    def _skip(self, size: int) -> None:
        """Give out `size` bytes; an empty buffer holds no memory."""
        self._start += size
        if self._start >= len(self._buffer):
            self._replace(b"")
        else:
            self._scanned = self._start
