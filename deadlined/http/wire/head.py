"""The head of a request: what it says, and the refusal of all that two readers could read in two ways.

Facts      RFC 9112 leaves room for leniency: bare LF, folded lines, repeated Content-Length, Content-Length beside
           Transfer-Encoding.
Hazard     Two parties on one path that read such a message differently see different messages (request smuggling).
Answer     A head is looked at as bytes before a parser sees it, and as fields after. Both looks are the same whichever
           parser stands between them, so that the stricter of two parsers does not matter.
Cost       A few passes over the bytes, in C; one over the fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..errors import BadRequest
from ..phases import Reason
from ..timeouts import Limits

# RFC 3986, 3.2.2 and 3.2.3, without user information
_HOST: Final = b"!$&'()*+,;=-._~%:[]0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# RFC 9110, 5.5: of all controls only a tab belongs into a line. Its CRLF must not be followed by a space, which would
# fold the next line into it (obsolete since RFC 7230)
_PLAIN_LINES: Final = re.compile(rb"(?:[^\x00-\x08\x0a-\x1f\x7f]++\r\n(?![ \t]))++\r\n")
# makes every control a NUL
_CONTROLS: Final = bytes(0 if byte < 0x20 or byte == 0x7F else byte for byte in range(256))
_LINE_END_ALONE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")

# hosts that were looked at; a server has a few. A client that makes them up must not fill the memory
_hosts: Final[set[bytes]] = set()
_MANY_HOSTS: Final = 1000
_LONG_HOST: Final = 256

# digits; a number that needs more is no length of anything
_LENGTH_DIGITS: Final = 20

_HOST_NAME: Final = b"host"
_CONNECTION: Final = b"connection"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"transfer-encoding"
_EXPECT: Final = b"expect"
_HEEDED: Final = frozenset((_HOST_NAME, _CONNECTION, _LENGTH, _ENCODING, _EXPECT))

# those of which a second one would be another message
_SINGLE: Final = frozenset((_HOST_NAME, _LENGTH, _ENCODING))

Headers = list[tuple[bytes, bytes]]


class Request:
    """A request's head. Header names are lower case, values without surrounding space, in the order of the wire."""

    __slots__ = (
        "chunked",
        "content_length",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "target",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        target: bytes,
        version: str,
        headers: Headers,
        content_length: int | None,
        chunked: bool,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.method: str = method
        self.target: bytes = target
        self.version: str = version
        self.headers: Headers = headers
        self.content_length: int | None = content_length
        self.chunked: bool = chunked
        self.keep_alive: bool = keep_alive
        self.expects_continue: bool = expects_continue

    @property
    def line(self) -> str:
        """Method and target, for the log."""
        return f"{self.method} {self.target.decode('ascii')}"

    @property
    def has_body(self) -> bool:
        """True if a body follows, be it of length 0 in chunks."""
        return self.chunked or bool(self.content_length)


# Makes a Request of the bytes of one complete head, up to and with its empty line, that passed `check_bytes`.
# BadRequest if it is none.
HeadParser = Callable[[bytes], Request]


def check_bytes(head: bytes, text: str, limits: Limits) -> None:
    """BadRequest for a complete head, and the same as latin-1 text, whose lines are not plainly lines, or too many."""
    lines = text.count("\r\n")
    controls = head.translate(_CONTROLS).decode("latin-1").count("\0")
    # in most heads the line ends are all the controls, which is found out faster; else the expression has the last word
    if (controls != 2 * lines or "\n " in text) and _PLAIN_LINES.fullmatch(head) is None:
        raise BadRequest(400, _what_is_wrong(head))
    # request line and empty line are no fields
    if lines - 2 > limits.max_headers:
        raise BadRequest(431, f"more than {limits.max_headers:g} header fields", Reason.HEADER_TOO_LARGE)


def _what_is_wrong(head: bytes) -> str:
    """Of a head that is not made of plain lines."""
    if _LINE_END_ALONE.search(head):
        return "a line of the head does not end in CRLF"
    if head.find(b"\n ") >= 0 or head.find(b"\n\t") >= 0:
        return "a folded header line (obsolete since RFC 7230)"
    return "a control character in the head"


def build_request(method: str, target: bytes, version: str, headers: Headers) -> Request:
    """The request that a parser has read, if nothing in it is ambiguous or unknown. BadRequest otherwise."""
    if not version.startswith("1."):
        raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    host = connection = length = encoding = expectation = None
    for name, value in headers:
        if name not in _HEEDED:
            continue
        if name == _HOST_NAME:
            host = _only(name, host, value)
        elif name == _LENGTH:
            length = _only(name, length, value)
        elif name == _ENCODING:
            encoding = _only(name, encoding, value)
        elif name == _CONNECTION:
            connection = _joined(connection, value)
        else:
            expectation = _joined(expectation, value)
    modern = version != "1.0"
    _check_host(host, modern)
    return Request(
        method,
        target,
        version,
        headers,
        None if length is None else _number(length),
        encoding is not None and _chunked(encoding, length, modern),
        modern if connection is None else _keeps_alive(connection, modern),
        modern and expectation is not None and _expects_continue(expectation),
    )


def _only(name: bytes, known: bytes | None, value: bytes) -> bytes:
    if known is not None:
        status = 501 if name == _ENCODING else 400
        raise BadRequest(status, f"more than one {name.decode('ascii').title()}")
    return value


def _joined(known: bytes | None, value: bytes) -> bytes:
    """Repeated fields are one list (RFC 9110, 5.3)."""
    return value if known is None else known + b"," + value


def _check_host(host: bytes | None, modern: bool) -> None:
    if host is None:
        if modern:
            raise BadRequest(400, "the Host header is missing")
    elif host not in _hosts:
        if host.translate(None, _HOST):
            raise BadRequest(400, "the Host header is not a host")
        if len(_hosts) < _MANY_HOSTS and len(host) < _LONG_HOST:
            _hosts.add(host)


def _number(length: bytes) -> int:
    if not length.isdigit() or len(length) > _LENGTH_DIGITS:
        raise BadRequest(400, "Content-Length is not a number")
    return int(length)


def _chunked(encoding: bytes, length: bytes | None, modern: bool) -> bool:
    if length is not None or not modern:
        raise BadRequest(
            400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0: where the body ends is ambiguous"
        )
    if encoding.lower() != b"chunked":
        raise BadRequest(501, "the only Transfer-Encoding that is understood is `chunked`")
    return True


def _expects_continue(expectation: bytes) -> bool:
    if expectation.lower() != b"100-continue":
        raise BadRequest(417, "only `Expect: 100-continue` is understood")
    return True


def _keeps_alive(connection: bytes, modern: bool) -> bool:
    tokens = [token.strip().lower() for token in connection.split(b",")]
    return b"close" not in tokens and (modern or b"keep-alive" in tokens)
