"""The head of a response, and the refusal of everything that two readers could read in two ways.

Facts      RFC 9112 leaves room for leniency: bare LF, folded lines, repeated Content-Length, Content-Length beside
           Transfer-Encoding.
Hazard     A proxy and its client that read such a head differently see different responses (response splitting).
Answer     Each line must match the grammar as a whole. Two framings in one head, or a length that comes twice, are
           refused.
Cost       One look-up per line: what a line says is remembered, because a server sends most of its lines again and
           again. A new line takes a match.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import BadRequest, BadResponse
from ..timeouts import Limits
from .digits import LARGEST, length_of
from .field_lines import AFTER_FIELDS, NO_FIELDS, FieldLines
from .grammar import FIELD_NAME, NEXT, advance
from .remembered import remember

# RFC 9112, 4
_STATUS_LINE: Final = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?")
# how a head begins, up to the byte after its status, and an example of it
_BEGINNING: Final = re.compile(rb"HTTP/1\.[0-9] [1-9][0-9]{2}[ \r]")
EXAMPLE: Final = b"HTTP/1.1 200 "
STATUS_END: Final = 12
# the state of the grammar there: what follows is text up to CRLF, as after the colon of a field
_COLON: Final = 0x3A
PHRASE: Final = NEXT[256 * FIELD_NAME + _COLON]

_CONNECTION: Final = b"connection"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"transfer-encoding"
_UPGRADE: Final = b"upgrade"
_HEEDED: Final = frozenset((_CONNECTION, _LENGTH, _ENCODING, _UPGRADE))

Fields = list[tuple[bytes, bytes]]

_NO_OPTIONS: Final[list[bytes]] = []


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


class _Status:
    """What a status line says."""

    __slots__ = ("status", "version")

    def __init__(self, version: str, status: int) -> None:
        self.version: str = version
        self.status: int = status


# lines that were read
_statuses: Final[dict[str, _Status]] = {}
_lines: Final = FieldLines(_HEEDED)


def read_head(head: bytes, limits: Limits) -> Response:
    """Read a complete head. Raise BadResponse if it is malformed or ambiguous."""
    # compiled code splits text faster than bytes
    lines = head.decode("latin-1").split("\r\n")
    if len(lines) - NO_FIELDS > limits.max_headers:
        raise BadResponse(f"more than {limits.max_headers:g} header fields")
    status = _statuses.get(lines[0]) or _status_of(lines[0])
    if status is None:
        raise _malformed(head)
    headers: Fields = []
    heeded: Fields = []
    for place in range(1, len(lines) - AFTER_FIELDS):
        field = _lines.read(lines[place])
        if field is None:
            raise _malformed(head)
        headers.append(field.pair)
        if field.heeded:
            heeded.append(field.pair)
    return _response(status.status, status.version, headers, heeded)


def _status_of(line: str) -> _Status | None:
    """Return what a status line says, and remember it; None if it is none."""
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        return None
    status = _Status("1.0" if match[1] == "0" else "1.1", int(match[2]))
    remember(_statuses, line, status, b"", len(line))
    return status


def _malformed(head: bytes) -> BadResponse:
    """Make the error of a head that the grammar does not allow."""
    try:
        check_beginning(head[: len(EXAMPLE)])
        advance_head(PHRASE, head[STATUS_END:])
    except BadResponse as bad:
        return bad
    return BadResponse("the head is malformed")


def check_beginning(beginning: bytes) -> None:
    """Raise BadResponse if no head begins so. A beginning that is too short is completed by the example."""
    if _BEGINNING.fullmatch(beginning + EXAMPLE[len(beginning) :]) is None:
        known = beginning.startswith(EXAMPLE[: EXAMPLE.index(b".") + 1])
        raise BadResponse("the status line is malformed" if known else "this is not HTTP/1.1")


def advance_head(state: int, data: bytes) -> int:
    """Return the state of the grammar after `data`, which begins behind the status. Raise BadResponse at the first byte
    that is not allowed."""
    try:
        return advance(state, data, 0, len(data))
    except BadRequest as bad:
        raise BadResponse(bad.detail) from bad


def _response(status: int, version: str, headers: Fields, heeded: Fields) -> Response:
    """Make the response of fields that were read, of which some are `heeded`. Raise BadResponse if they are ambiguous
    or not supported."""
    connection = upgrade = b""
    length = encoding = None
    for name, value in heeded:
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
    options = [option.strip() for option in connection.lower().split(b",")] if connection else _NO_OPTIONS
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
    number = length_of(length)
    if not 0 <= number <= LARGEST:
        raise BadResponse("Content-Length is not a number, or too large for any body")
    return number
