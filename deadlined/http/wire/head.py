"""The head of a request, and the refusal of everything that two readers could read in two ways.

Facts      RFC 9112 leaves room for leniency: bare LF, folded lines, repeated Content-Length, Content-Length beside
           Transfer-Encoding.
Hazard     Two parties on one path that read such a message differently see different messages (request smuggling).
Answer     A head that goes to a parser is checked as bytes first. The fields of every head, of plain ones too, are
           judged here. Both checks are the same for both parsers, so it does not matter which of them is stricter.
Cost       For a parser a few passes over the bytes, in C; for every head one over the fields that are heeded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..errors import BadRequest
from ..state import Reason
from ..timeouts import Limits
from .digits import LARGEST, length_of
from .grammar import METHOD_START, advance
from .remembered import remember
from .target import is_authority, parse_target

# lines that end in CRLF, and a last one that is empty: a tab is the only control character in a line (RFC 9110, 5.5),
# and no line is folded, as a space after CRLF would do (obsolete since RFC 7230)
_WELL_ENDED: Final = re.compile(rb"(?:[^\x00-\x08\x0a-\x1f\x7f]++\r\n(?![ \t]))++\r\n")
# makes every control character a NUL
_CONTROLS: Final = bytes(0 if byte < 0x20 or byte == 0x7F else byte for byte in range(256))

# Host fields that were checked; a server has a few
_hosts: Final[dict[bytes, bool]] = {}

# characters of a method; the longest that is registered has 17 (UPDATEREDIRECTREF, RFC 4437), and others make up longer
# ones
LONGEST_METHOD: Final = 64

_SLASH: Final = 0x2F
# compiled code looks for a number much faster than for a byte string of length 1
_HASH: Final = 0x23

_HOST_NAME: Final = b"host"
_CONNECTION: Final = b"connection"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"transfer-encoding"
_EXPECT: Final = b"expect"
_UPGRADE: Final = b"upgrade"
HEEDED: Final = frozenset((_HOST_NAME, _CONNECTION, _LENGTH, _ENCODING, _EXPECT, _UPGRADE))

Headers = list[tuple[bytes, bytes]]


class Request:
    """The head of a request. Header names are in lower case, values as on the wire without surrounding whitespace, in
    the order of the wire.

    `path_and_query` is the target in origin-form: the target itself, or the part of a URL after its host; `*` for the
    server as a whole. `upgrade` are the protocols that the client would rather speak on this connection (RFC 9110,
    7.8), b"" if there are none.
    """

    __slots__ = (
        "chunked",
        "content_length",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "path_and_query",
        "target",
        "upgrade",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        target: bytes,
        path_and_query: bytes,
        version: str,
        headers: Headers,
        content_length: int | None,
        chunked: bool,
        keep_alive: bool,
        expects_continue: bool,
        upgrade: bytes = b"",
    ) -> None:
        self.method: str = method
        self.target: bytes = target
        self.path_and_query: bytes = path_and_query
        self.version: str = version
        self.headers: Headers = headers
        self.content_length: int | None = content_length
        self.chunked: bool = chunked
        self.keep_alive: bool = keep_alive
        self.expects_continue: bool = expects_continue
        self.upgrade: bytes = upgrade

    @property
    def line(self) -> str:
        """Method and target, for the log."""
        return f"{self.method} {self.target.decode('ascii')}"

    @property
    def path(self) -> bytes:
        """The target in origin-form, without its query."""
        return self.path_and_query.partition(b"?")[0]

    @property
    def has_body(self) -> bool:
        """True if a body follows, which may be of length 0 if it comes in chunks."""
        return self.chunked or bool(self.content_length)

    def offers(self, protocol: bytes) -> bool:
        """Return True if `protocol`, in lower case, is one of those that the client would rather speak."""
        return protocol in _tokens(self.upgrade)


# Makes a Request of the bytes of one complete head, its empty line included, that passed `check_bytes`. Raises
# BadRequest if it is malformed.
HeadParser = Callable[[bytes], Request]


def check_bytes(head: bytes, text: str, limits: Limits) -> None:
    """Check a complete head before any parser sees it; `text` is the same bytes as latin-1.

    Raise BadRequest on a bare CR or LF, control characters, folded lines, or more than `max_headers` fields.
    """
    lines = text.count("\r\n")
    controls = head.translate(_CONTROLS).decode("latin-1").count("\0")
    # in most heads the line ends are all the controls, which is faster to find out; else the expression decides
    if (controls != 2 * lines or "\n " in text) and _WELL_ENDED.fullmatch(head) is None:
        check_grammar(head)
        raise BadRequest(400, "the head is malformed")
    # request line and empty line are not fields
    if lines - 2 > limits.max_headers:
        raise BadRequest(431, f"more than {limits.max_headers:g} header fields", Reason.HEADER_TOO_LARGE)


def check_grammar(head: bytes) -> None:
    """Raise BadRequest, which says what is wrong, for a complete head that the grammar does not allow."""
    advance(METHOD_START, head, 0, len(head))


def build_request(method: str, target: bytes, version: str, headers: Headers) -> Request:
    """Make the request that a parser has read. Raise BadRequest if anything in it is ambiguous or not supported."""
    if not version.startswith("1."):
        raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    if method == "CONNECT":
        # RFC 9110, 9.1 and 9.3.6: not implemented for any target; 405 is for a method that others have
        raise BadRequest(501, "CONNECT is not implemented: this server makes no connections for its clients")
    # a higher minor version is read as the highest that is known (RFC 9110, 2.5)
    known = "1.0" if version == "1.0" else "1.1"
    return judge(method, target, known, headers, [field for field in headers if field[0] in HEEDED])


def judge(method: str, target: bytes, version: str, headers: Headers, heeded: Headers) -> Request:
    """Make the request of `headers`, of which `heeded` are those with a name of HEEDED. Raise BadRequest if they or the
    target are ambiguous or not supported."""
    host = connection = length = encoding = expectation = upgrade = None
    for name, value in heeded:
        if name == _HOST_NAME:
            host = _only(name, host, value)
        elif name == _LENGTH:
            length = _only(name, length, value)
        elif name == _ENCODING:
            encoding = _joined(encoding, value)
        elif name == _CONNECTION:
            connection = _joined(connection, value)
        elif name == _UPGRADE:
            upgrade = _joined(upgrade, value)
        else:
            expectation = _joined(expectation, value)
    modern = version != "1.0"
    _check_host(host, modern)
    return Request(
        method,
        target,
        target if target[0] == _SLASH and _HASH not in target else _path_and_query(method, target, headers),
        version,
        headers,
        None if length is None else _number(length),
        encoding is not None and _chunked(encoding, length, modern),
        modern if connection is None else _keeps_alive(connection, modern),
        modern and expectation is not None and _expects_continue(expectation),
        b"" if upgrade is None or connection is None or not modern else _asked_for(upgrade, connection),
    )


def _path_and_query(method: str, target: bytes, headers: Headers) -> bytes:
    """Return the target in origin-form. The host of a URL becomes the value of the Host field."""
    path_and_query, authority = parse_target(method, target)
    if authority is not None:
        headers[:] = [(_HOST_NAME, authority), *(field for field in headers if field[0] != _HOST_NAME)]
    return path_and_query


def _only(name: bytes, known: bytes | None, value: bytes) -> bytes:
    if known is not None:
        raise BadRequest(400, f"more than one {name.decode('ascii').title()}")
    return value


def _joined(known: bytes | None, value: bytes) -> bytes:
    """Join repeated fields into one list (RFC 9110, 5.3)."""
    return value if known is None else known + b"," + value


def _check_host(host: bytes | None, modern: bool) -> None:
    if host is None:
        if modern:
            raise BadRequest(400, "the Host header is missing")
    elif host not in _hosts:
        # RFC 9110, 7.2: empty where the target has no host
        if host and not is_authority(host):
            raise BadRequest(400, "the Host header is not a host")
        remember(_hosts, host, True, _HOST_NAME, len(host))


def _number(length: bytes) -> int:
    number = length_of(length)
    if number < 0:
        raise BadRequest(400, "Content-Length is not a number")
    if number > LARGEST:
        raise BadRequest(400, "Content-Length is too large for any body")
    return number


def _chunked(encoding: bytes, length: bytes | None, modern: bool) -> bool:
    if length is not None or not modern:
        raise BadRequest(
            400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0: where the body ends is ambiguous"
        )
    if encoding.lower() == b"chunked":
        return True
    # RFC 9112, 6.3: nobody knows where such a body ends, whichever codings are supported
    if _tokens(encoding)[-1] != b"chunked":
        raise BadRequest(400, "the last Transfer-Encoding is not `chunked`: where the body ends is unknown")
    raise BadRequest(501, "the only Transfer-Encoding that is supported is `chunked`")


def _expects_continue(expectation: bytes) -> bool:
    """RFC 9110, 10.1.1. A list may have empty elements (5.6.1)."""
    expected = [token for token in _tokens(expectation) if token]
    if any(token != b"100-continue" for token in expected):
        raise BadRequest(417, "only `Expect: 100-continue` is supported")
    return bool(expected)


def _keeps_alive(connection: bytes, modern: bool) -> bool:
    tokens = _tokens(connection)
    return b"close" not in tokens and (modern or b"keep-alive" in tokens)


def _asked_for(upgrade: bytes, connection: bytes) -> bytes:
    """Return the field Upgrade if Connection names it; without that it is not for this connection."""
    return upgrade if _UPGRADE in _tokens(connection) else b""


def _tokens(field: bytes) -> list[bytes]:
    return [token.strip().lower() for token in field.split(b",")]
