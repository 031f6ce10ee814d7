"""The head of a response, and the refusal of everything that two readers could read in two ways.

Facts      RFC 9112 leaves room for leniency: bare LF, folded lines, repeated Content-Length, Content-Length beside
           Transfer-Encoding.
Hazard     A proxy and its client that read such a head differently see different responses (response splitting).
Answer     A head is checked as bytes before it is read, as that of a request is (`head`). Two framings in one head, or
           a length that comes twice, are refused.
Cost       A few passes over the bytes, in C; one over the fields.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import BadRequest, BadResponse
from ..timeouts import Limits
from .chunks import LARGEST
from .grammar import FIELD_NAME, NEXT, advance

# RFC 9112, 4
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?")
# RFC 9110, 5.6.2
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# makes every control character but a tab a NUL (RFC 9110, 5.5)
_CONTROLS: Final = bytes(0 if (byte < 0x20 and byte != 0x09) or byte == 0x7F else byte for byte in range(256))

# Status lines that were read: version and status. Field names that were checked: in lower case. A server has a few; one
# that makes them up must not fill the memory
_status_lines: Final[dict[bytes, tuple[str, int]]] = {}
_names: Final[dict[bytes, bytes]] = {}
_MANY: Final = 1000
_LONG: Final = 64

# how a head begins, up to the byte after its status, and an example of it
_BEGINNING: Final = re.compile(rb"HTTP/1\.[0-9] [1-9][0-9]{2}[ \r]")
EXAMPLE: Final = b"HTTP/1.1 200 "
STATUS_END: Final = 12
# the state of the grammar there: what follows is text up to CRLF, as after the colon of a field
_COLON: Final = 0x3A
PHRASE: Final = NEXT[256 * FIELD_NAME + _COLON]

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


def read_head(head: bytes, limits: Limits) -> Response:
    """Read a complete head. Raise BadResponse if it is malformed or ambiguous."""
    lines = head.split(b"\r\n")
    # the line ends must be all the controls
    if head.translate(_CONTROLS).decode("latin-1").count("\0") != 2 * (len(lines) - 1):
        raise _malformed(head)
    # the status line, and the two ends of the last lines
    if len(lines) - 3 > limits.max_headers:
        raise BadResponse(f"more than {limits.max_headers:g} header fields")
    read = _status_lines.get(lines[0]) or _status_line(lines[0])
    if read is None:
        raise _malformed(head)
    headers: Fields = []
    for place in range(1, len(lines) - 2):
        name, colon, value = lines[place].partition(b":")
        lower = _names.get(name) or _lower_name(name)
        if not (lower and colon):
            raise _malformed(head)
        headers.append((lower, value.strip(b" \t")))
    return _response(read[1], read[0], headers)


def _status_line(line: bytes) -> tuple[str, int] | None:
    """Return the version and the status that a line says, None if it is no status line."""
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        return None
    read = ("1.0" if match[1] == b"0" else "1.1", int(match[2]))
    if len(_status_lines) < _MANY and len(line) <= _LONG:
        _status_lines[line] = read
    return read


def _lower_name(name: bytes) -> bytes:
    """Return a field name in lower case, b"" if it is none."""
    if not _NAME.fullmatch(name):
        return b""
    lower = name.lower()
    if len(_names) < _MANY and len(name) <= _LONG:
        _names[name] = lower
    return lower


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
