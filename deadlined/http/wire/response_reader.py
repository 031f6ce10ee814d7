"""Reading responses: bytes in, heads and pieces of body out. The counterpart of `response`, for a client.

Facts      Where a response ends depends on the request that it answers, on its status, and on one of three framings
           (RFC 9112, 6.3). Interim responses come before the final one.
Hazard     A proxy and its client that see different ends see different responses: the rest of one is taken for the
           beginning of another one's (response splitting). RFC 9112 leaves room for leniency.
Answer     A head is checked as bytes before it is read, as that of a request is. Two framings in one head, or a length
           that comes twice, are refused. So is everything else that two readers could read in two ways.
Cost       One search and one expression per head; nothing per byte of a body.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import BadRequest, BadResponse
from ..timeouts import Limits
from .chunks import LARGEST, ChunkDecoder
from .grammar import LINE, advance

# RFC 9112, 4 and 5: nothing in it can be matched in two ways, so the time is linear
_HEAD: Final = re.compile(
    rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
_BEGINNING: Final = b"HTTP/1."

# digits of a Content-Length, leading zeros included
_LENGTH_DIGITS: Final = 20

_CONNECTION: Final = b"connection"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"transfer-encoding"
_UPGRADE: Final = b"upgrade"
_HEEDED: Final = frozenset((_CONNECTION, _LENGTH, _ENCODING, _UPGRADE))


Fields = list[tuple[bytes, bytes]]


class Response:
    """The head of a response. Header names are in lower case, values as on the wire without surrounding whitespace, in
    the order of the wire.

    `keep_alive`: the connection can be used again after the response. `upgrade`: the protocol that the connection
    speaks after a 101, b"" if there is none.
    """

    __slots__ = ("chunked", "content_length", "headers", "keep_alive", "status", "upgrade", "version")

    def __init__(
        self,
        status: int,
        version: str,
        headers: Fields,
        content_length: int | None,
        chunked: bool,
        keep_alive: bool,
        upgrade: bytes,
    ) -> None:
        self.status: int = status
        self.version: str = version
        self.headers: Fields = headers
        self.content_length: int | None = content_length
        self.chunked: bool = chunked
        self.keep_alive: bool = keep_alive
        self.upgrade: bytes = upgrade


class ResponseReader:
    """Takes the bytes of a connection and gives one response after another, each followed by its body.

    `feed`, then `next_response` until it gives one; then `next_body` until it gives b"", or `at_end` is true. `end`
    when the peer has ended its side. BadResponse from any of them ends the connection. `limits.max_head` and
    `max_headers` bound a head, and the trailers and extensions of a body in chunks.
    """

    __slots__ = ("_buffer", "_chunks", "_left", "_limits", "_scanned", "_until_end", "received")

    def __init__(self, limits: Limits) -> None:
        self._limits: Limits = limits
        # what was fed and not given out
        self._buffer: bytes = b""
        # bytes of an incomplete head that have no end in them
        self._scanned: int = 0
        # of the current body: bytes to come, or the chunks, or all until the end of the connection
        self._left: int = 0
        self._chunks: ChunkDecoder | None = None
        self._until_end: bool = False
        # body bytes of the current response that were given out
        self.received: int = 0

    @property
    def buffered(self) -> int:
        """Bytes that wait to be read."""
        return len(self._buffer) + (0 if self._chunks is None else self._chunks.held)

    @property
    def at_end(self) -> bool:
        """True once the whole body was given out."""
        return not (self._left or self._until_end) and self._chunks is None

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if self._chunks is not None:
            self._chunks.feed(data)
        else:
            self._buffer = self._buffer + data if self._buffer else data

    def next_response(self, method: str) -> Response | None:
        """Return the next head, also that of an interim response; None if it is not complete yet. `method`: of the
        request that it answers. The body before must have been read.

        Raise BadResponse for a head that is refused, as soon as it is complete, longer than `max_head`, or does not
        begin like one.
        """
        end = self._buffer.find(b"\r\n\r\n", max(self._scanned - 3, 0)) + 4
        if end < 4:
            self._check_incomplete()
            return None
        head = self._buffer[:end]
        self._check_size(end)
        response = _read(head, self._limits)
        self._buffer = self._buffer[end:]
        self._scanned = 0
        self._begin_body(response, method)
        return response

    def next_body(self) -> bytes | None:
        """Return the next piece of body, None if more must be fed first, b"" once the body is complete."""
        if self._chunks is not None:
            return self._next_of_chunks(self._chunks)
        if self.at_end:
            return b""
        piece = self._buffer
        if not piece:
            return None
        if not self._until_end:
            if len(piece) > self._left:
                piece = piece[: self._left]
            self._left -= len(piece)
        # an empty buffer holds no memory
        self._buffer = b"" if len(piece) == len(self._buffer) else self._buffer[len(piece) :]
        self.received += len(piece)
        return piece

    def end(self) -> None:
        """Note that the peer has ended its side. Raise BadResponse if a response is incomplete; one that ends with the
        connection is complete now, once it was given out."""
        if self._until_end:
            self._until_end = False
            self._left = len(self._buffer)
        elif self._buffer or not self.at_end:
            raise BadResponse("it has ended too early")

    def take_rest(self) -> bytes:
        """Return what was received after a 101, which belongs to another protocol. None of it is left."""
        rest, self._buffer = self._buffer, b""
        return rest

    def _check_incomplete(self) -> None:
        buffer = self._buffer
        size = min(len(buffer), len(_BEGINNING))
        if not _BEGINNING.startswith(buffer[:size]):
            raise BadResponse("this is not HTTP/1.1")
        self._check_size(len(buffer))
        self._scanned = len(buffer)

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_head:
            raise BadResponse(f"the head is longer than {self._limits.max_head:g} bytes")

    def _begin_body(self, response: Response, method: str) -> None:
        self.received = 0
        status = response.status
        if method == "HEAD" or status in (204, 304) or status < 200:
            return
        if response.chunked:
            limits = Limits(max_head=self._limits.max_head, max_headers=self._limits.max_headers)
            self._chunks = ChunkDecoder(self._buffer, limits)
            self._buffer = b""
        elif response.content_length is not None:
            self._left = response.content_length
        else:
            self._until_end = True
            response.keep_alive = False

    def _next_of_chunks(self, chunks: ChunkDecoder) -> bytes | None:
        try:
            piece = chunks.next_piece()
        except BadRequest as bad:
            raise BadResponse(bad.detail) from bad
        if piece:
            self.received += len(piece)
        elif piece is not None:
            self._chunks = None
            self._buffer = chunks.unread()
        return piece


def _read(head: bytes, limits: Limits) -> Response:
    """Read a complete head. Raise BadResponse if it is malformed or ambiguous."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise BadResponse(_what_is_wrong(head))
    lines = head.split(b"\r\n")
    # the status line, and the two ends of the last lines
    if len(lines) - 3 > limits.max_headers:
        raise BadResponse(f"more than {limits.max_headers:g} header fields")
    return _response(int(match[2]), "1.0" if match[1] == b"0" else "1.1", [_field(line) for line in lines[1:-2]])


def _what_is_wrong(head: bytes) -> str:
    """Say what is wrong with a head that the expression does not match."""
    line = head.find(b"\r\n") + 2
    try:
        advance(LINE, head, line, len(head))
    except BadRequest as bad:
        return bad.detail
    return "the status line is malformed"


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


def _response(status: int, version: str, headers: Fields) -> Response:
    """Make the response of fields that were read. Raise BadResponse if they are ambiguous or not supported."""
    connection = upgrade = b""
    length = encoding = None
    for name, value in headers:
        if name not in _HEEDED:
            continue
        if name == _LENGTH:
            length = _only(name, length, value)
        elif name == _ENCODING:
            encoding = _only(name, encoding, value)
        elif name == _CONNECTION:
            connection = connection + b"," + value if connection else value
        else:
            upgrade = upgrade + b"," + value if upgrade else value
    modern = version != "1.0"
    if encoding is not None:
        _check_encoding(encoding, length, modern)
    options = [option.strip() for option in connection.lower().split(b",")]
    return Response(
        status,
        version,
        headers,
        None if length is None else _number(length),
        encoding is not None,
        b"close" not in options and (modern or b"keep-alive" in options),
        upgrade if _UPGRADE in options else b"",
    )


def _only(name: bytes, known: bytes | None, value: bytes) -> bytes:
    if known is not None:
        raise BadResponse(f"more than one {name.decode('ascii').title()}")
    return value


def _check_encoding(encoding: bytes, length: bytes | None, modern: bool) -> None:
    if length is not None or not modern:
        raise BadResponse("Transfer-Encoding beside Content-Length, or in HTTP/1.0: where it ends is ambiguous")
    if encoding.lower() != b"chunked":
        raise BadResponse("the only Transfer-Encoding that is supported is `chunked`")


def _number(length: bytes) -> int:
    number = int(length) if length.isdigit() and len(length) <= _LENGTH_DIGITS else LARGEST + 1
    if number > LARGEST:
        raise BadResponse("Content-Length is not a number, or too large for any body")
    return number
