"""Reading requests: bytes in, a head and pieces of body out. h11 parses; what h11 lets through and we do not is
refused here.

Facts      RFC 9112 leaves room for leniency: bare LF, folded lines, repeated Content-Length, Content-Length beside
           Transfer-Encoding.
Hazard     Two parties on one path that read such a message differently see different messages (request smuggling).
Answer     A head is looked at as bytes before h11 sees it: complete, within its limits, nothing ambiguous. Everything
           that two readers could read in two ways is refused.
Cost       One pass of two regular expressions over each head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import h11

from .errors import BadRequest
from .phases import Reason
from .timeouts import Limits

# a line end that is not CRLF, a CR elsewhere, or a NUL
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|\x00")
_REQUEST_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e]+ HTTP/([0-9])\.([0-9])")
_TOKEN_START = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\r\n]")
_LENGTHS = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_HEEDED = frozenset((b"host", b"connection", b"content-length", b"transfer-encoding", b"expect"))

_HOST = re.compile(rb"[!$&'()*+,;=\-._~%:\[\]0-9A-Za-z]*")

_TLS_HELLO = 0x16


@dataclass(slots=True)
class Request:
    """A request's head. Header names are lower case, values without surrounding space, in the order of the wire."""

    method: str
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    content_length: int | None
    chunked: bool
    keep_alive: bool
    expects_continue: bool

    @property
    def has_body(self) -> bool:
        """True if a body follows, be it of length 0 in chunks."""
        return self.chunked or bool(self.content_length)


class RequestParser:
    """Feeds on a connection's bytes; gives one request after another, each followed by its body.

    `feed`, then `next_request` until it gives one; then `next_body` until it gives b"". BadRequest from either ends the
    connection: nothing after it can be trusted.
    """

    __slots__ = ("_buffer", "_h11", "_held", "_limits", "_scanned", "_tail", "received")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        # how much of the buffer was found unambiguous already
        self._scanned = 0
        self._h11: h11.Connection | None = None
        # bytes that h11 was given and has not been asked for
        self._held = 0
        # of a chunked body: what h11 was given since it last asked for more, and three bytes from before that
        self._tail: bytearray | None = None
        # body bytes of the current request that were given out
        self.received = 0

    @property
    def buffered(self) -> int:
        """Bytes that wait to be parsed."""
        return len(self._buffer) + self._held

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if self._h11 is None:
            self._buffer += data
        else:
            self._h11.receive_data(data)
            self._held += len(data)
            if self._tail is not None:
                self._tail += data

    def next_request(self) -> Request | None:
        """The next head, None if it is not complete yet. The previous request's body must have been read."""
        head = self._cut_head()
        if head is None:
            return None
        self._check_head(head)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=int(min(self._limits.max_head, 2**31)))
        connection.receive_data(head)
        request = _request(_next_event(connection))
        if request.content_length is not None and request.content_length > self._limits.max_body:
            raise BadRequest(413, f"the body is longer than the {self._limits.max_body:g} bytes that are allowed")
        self.received = 0
        if request.has_body:
            self._tail = bytearray(self._buffer) if request.chunked else None
            if self._buffer:
                connection.receive_data(bytes(self._buffer))
                self._held = len(self._buffer)
                self._buffer.clear()
            self._h11 = connection
        return request

    def next_body(self) -> bytes | None:
        """The next piece of body, None if more must be fed first, b"" once the body is complete."""
        if self._h11 is None:
            return b""
        while True:
            event = _next_event(self._h11)
            if event is h11.NEED_DATA:
                self._held = 0
                if self._tail is not None:
                    del self._tail[:-3]
                return None
            if isinstance(event, h11.Data):
                self.received += len(event.data)
                if self.received > self._limits.max_body:
                    raise BadRequest(413, f"the body is longer than the {self._limits.max_body:g} bytes allowed")
                if event.data:
                    return bytes(event.data)
            else:
                rest = self._h11.trailing_data[0]
                self._check_end(len(rest))
                self._held = 0
                self._buffer += rest
                self._scanned = 0
                self._h11 = None
                return b""

    def _check_end(self, left: int) -> None:
        """A chunked body ends in an empty line; h11 takes a bare LF for one, and others do not."""
        if self._tail is not None:
            end = len(self._tail) - left
            if self._tail[max(end - 4, 0) : end] != b"\r\n\r\n":
                raise BadRequest(400, "the trailer of a chunked body does not end in CRLF")

    def _cut_head(self) -> bytes | None:
        """Take a complete head out of the buffer; refuse as early as can be what will never be one."""
        buffer = self._buffer
        # RFC 9112, 2.2: empty lines before a request line are ignored
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
            self._scanned = 0
        if not buffer:
            return None
        if not self._scanned and not _TOKEN_START.match(buffer):
            hint = "; this port speaks plain HTTP, not TLS" if buffer[0] == _TLS_HELLO else ""
            raise BadRequest(400, f"this is not an HTTP request{hint}")
        end = buffer.find(b"\r\n\r\n", max(self._scanned - 3, 0))
        size = len(buffer) if end < 0 else end + 4
        ambiguous = _AMBIGUOUS.search(buffer, max(self._scanned - 1, 0), size)
        if ambiguous:
            raise BadRequest(400, "a line of the head does not end in CRLF, or it contains a NUL")
        self._scanned = size
        if size > self._limits.max_head:
            raise BadRequest(431, f"the head is longer than {self._limits.max_head:g} bytes", Reason.HEADER_TOO_LARGE)
        if end < 0:
            return None
        head = bytes(buffer[:size])
        del buffer[:size]
        self._scanned = 0
        return head

    def _check_head(self, head: bytes) -> None:
        line = _REQUEST_LINE.fullmatch(head, 0, head.index(b"\r\n"))
        if line is None:
            raise BadRequest(400, "the request line is not `METHOD target HTTP/1.1`")
        if line[1] != b"1":
            raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
        if b"\r\n " in head or b"\r\n\t" in head:
            raise BadRequest(400, "a folded header line (obsolete since RFC 7230)")
        # h11 would fold equal ones into one
        lengths = _LENGTHS.findall(head)
        if len(lengths) > 1 or any(b"," in value for value in lengths):
            raise BadRequest(400, "more than one Content-Length")
        # request line and empty line are not header fields
        if head.count(b"\r\n") - 2 > self._limits.max_headers:
            raise BadRequest(431, f"more than {self._limits.max_headers:g} header fields", Reason.HEADER_TOO_LARGE)


def _next_event(connection: h11.Connection) -> object:
    try:
        return connection.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(error.error_status_hint, str(error)) from error


def _request(event: object) -> Request:
    """A head that h11 understood, if nothing in it is ambiguous or unknown."""
    assert isinstance(event, h11.Request), event
    headers = [(name.lower(), value) for name, value in event.headers.raw_items()]
    told = _told(headers)
    modern = event.http_version != b"1.0"
    length = told.get(b"content-length")
    chunked = b"transfer-encoding" in told
    if chunked and (length is not None or not modern):
        raise BadRequest(
            400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0: where the body ends is ambiguous"
        )
    if not _HOST.fullmatch(told.get(b"host", b"")):
        raise BadRequest(400, "the Host header is not a host")
    expectation = told.get(b"expect") if modern else None
    if expectation is not None and expectation.lower() != b"100-continue":
        raise BadRequest(417, "only `Expect: 100-continue` is understood")
    return Request(
        method=event.method.decode("ascii"),
        target=event.target,
        version=event.http_version.decode("ascii"),
        headers=headers,
        content_length=None if length is None else int(length),
        chunked=chunked,
        keep_alive=_keeps_alive(told.get(b"connection"), modern),
        expects_continue=expectation is not None,
    )


def _told(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The fields that concern the connection itself; repeated ones are joined as RFC 9110, 5.3 has it."""
    told: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _HEEDED:
            told[name] = told[name] + b"," + value if name in told else value
    return told


def _keeps_alive(connection: bytes | None, modern: bool) -> bool:
    if connection is None:
        return modern
    tokens = {token.strip().lower() for token in connection.split(b",")}
    return b"close" not in tokens and (modern or b"keep-alive" in tokens)
