"""Writing responses: a status, header fields and pieces of body in, bytes out. No I/O.

Facts      The head of a response is a few lines; h11 spends more time on writing it than on reading the request.
Hazard     A header value with a line end in it is a second header (response splitting), and proxies refuse one with
           any other control character; a body that is longer or shorter than announced shifts every response after it.
Answer     Each field is checked, and remembered with its line. The body is counted against what was announced.
           The head leaves with the first piece of body, which may be empty.
           A large piece of body is handed on as it is.
Cost       One look-up per field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from ..errors import ResponseError
from .digits import digits_of
from .field_lines import TOKEN, VALUE
from .remembered import remember

# pairs of a name and a value: tuples, lists or any other sequence of two
Headers = Iterable[Sequence[bytes]]

# the fields that the writer reads, and mostly writes itself. Connection names none of them for the application
_FRAMING: Final = frozenset(
    (b"content-length", b"date", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


_NO_OPTIONS: Final[list[bytes]] = []


class _Line:
    """A field that was checked: its line, and its name in lower case if it is one of _FRAMING, else b""."""

    __slots__ = ("key", "text", "value")

    def __init__(self, name: bytes, value: bytes, lower: bytes) -> None:
        self.text: bytes = b"%b: %b\r\n" % (name, value)
        self.value: bytes = value
        self.key: bytes = lower if lower in _FRAMING else b""


# by pairs of a name and a value
_lines: Final[dict[Any, _Line]] = {}

_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode("ascii") for s in HTTPStatus}

# a piece of body of this many bytes or more is not copied to be joined with what comes before and after it. Copying a
# smaller one takes less time than giving the kernel several buffers
LARGE: Final = 32 * 1024

# a field that is for this connection only must be named by Connection (RFC 9110, 7.6.1), Keep-Alive too
_KEPT: Final = b"connection: keep-alive\r\n"

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ResponseWriter:
    """One response: `start` once, then `body` until `more` is False.

    `close` is True if this must be the connection's last response. `must_close` may be set until the first `body`,
    which announces it; after the response it is True if the connection cannot be used again. Each method raises
    ResponseError for what the application does wrong; a `start` that failed can be repeated.
    """

    __slots__ = (
        "_chunked",
        "_fields",
        "_has_date",
        "_head_only",
        "_http11",
        "_keep_alive",
        "_left",
        "_length",
        "_options",
        "_status",
        "complete",
        "must_close",
        "started",
    )  # fmt: skip

    def __init__(self, method: str, version: str, close: bool) -> None:
        self._head_only = method == "HEAD"
        self._http11 = version != "1.0"
        self._status = 0
        self._fields = b""
        self._length: int | None = None
        self._left = 0
        self._chunked = False
        self._has_date = False
        # lines about the connection that replace the server's, because the application has a Keep-Alive of its own
        self._keep_alive = b""
        # what Connection must name beside `close` and `keep-alive`
        self._options: list[bytes] = _NO_OPTIONS
        self.must_close: bool = close
        self.started: bool = False
        self.complete: bool = False

    @property
    def status(self) -> int:
        """The status that `start` was given, 0 before it."""
        return self._status

    @property
    def ends_by_close(self) -> bool:
        """True once the response has begun, if only the end of the connection ends its body."""
        return self.started and not (self._chunked or self._head_only or self._length is not None)

    @property
    def has_no_body(self) -> bool:
        """True once the head was given, if no body is sent: to a HEAD, with 204 and 304."""
        return self._status != 0 and self._head_only

    @property
    def left(self) -> int | None:
        """Bytes of body that `content-length` has announced and that were not given yet. None if it is unknown."""
        return None if self._length is None else self._left

    @property
    def is_all_made(self) -> bool:
        """True once no more bytes of the response follow on the wire: it is complete; or it has started, and
        `content-length` is reached, or no body is sent (HEAD, 204, 304)."""
        return self.complete or (self.started and (self._head_only or (self._length is not None and not self._left)))

    @property
    def shows_end(self) -> bool:
        """True if a client sees whether it got the whole body: an empty chunk ends it, or no more bytes follow. Many
        clients do not count the bytes that a Content-Length has announced."""
        return self._chunked or self.is_all_made

    def start(self, status: int, headers: Headers) -> None:
        """Check and store the head; the first `body` returns it."""
        if self._status:
            raise ResponseError("the response was started twice")
        if not 200 <= status <= 999:
            raise ResponseError(f"a final response has a status from 200 to 999, not {status!r}")
        self._set_checked(status, headers)

    def switch(self, headers: Headers, date: bytes) -> bytes:
        """Return the response that ends HTTP on the connection: 101 with `headers`, which name the next protocol. No
        body may follow."""
        if self._status:
            raise ResponseError("the response was started already")
        self._set_checked(101, headers)
        self.started = self.complete = True
        fields = (
            _STATUS_LINES[101],
            _connection([b"Upgrade", *self._options]),
            self._fields,
            b"" if self._has_date else date,
            b"\r\n",
        )
        return b"".join(fields)

    def hand_over(self) -> None:
        """Note that another protocol has the connection, without a response. Only for a raw connection."""
        raise ResponseError("only a raw connection can be handed over: a request is answered with `upgrade`")

    def _set_checked(self, status: int, headers: Headers) -> None:
        try:
            self._set_fields(status, headers)
        except (TypeError, ValueError, AttributeError) as error:
            raise no_headers(error) from error

    def _set_fields(self, status: int, headers: Headers) -> None:
        # what a `start` that failed has left
        self._length = None
        self._has_date = False
        self._keep_alive = b""
        self._options = _NO_OPTIONS
        fields: list[bytes] = []
        pair: Any
        for pair in headers:
            line = _remembered(pair) or _line_of(pair)
            if not line.key or self._keeps(line.key, line.value, status):
                fields.append(line.text)
        self._fields = b"".join(fields)
        self._head_only = self._head_only or status in (204, 304)
        self._status = status

    def body(self, data: bytes, more: bool, date: bytes, keep_alive: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the bytes to send for one piece of body, preceded by the head if it is the first piece.

        They are three parts, to be sent one after another. If `data` is shorter than LARGE, the first part has all, and
        the others are empty; else `data` is a part of its own. An empty first part means that there is nothing to send.

        `more` is False for the last piece. `date` and `keep_alive` are lines for the head, with their CRLF: what
        `date_line` and `keep_alive_lines` return, or nothing. Each is left out if `start` was given such a field.
        """
        if not self._status:
            raise ResponseError("a body was sent before the response was started")
        if self.complete:
            raise ResponseError("a body was sent after the response was complete")
        head = b"" if self.started else self._head(len(data), more, date, keep_alive)
        self._count(len(data), more)
        self.started = True
        self.complete = not more
        if self._head_only:
            return head, b"", b""
        large = len(data) >= LARGE
        if self._chunked:
            before, after = self._framing(len(data), more)
            before = head + before
            return (before, data, after) if large else (b"".join((before, data, after)), b"", b"")
        if large and head:
            return head, data, b""
        # in compiled code, adding even nothing makes a copy
        return head + data if head else data, b"", b""

    def _keeps(self, key: bytes, value: bytes, status: int) -> bool:
        """Apply a field of _FRAMING. Return True if it is sent as it is, False if the writer writes its own."""
        if key == b"content-length":
            self._set_length(value)
            # RFC 9110, 8.6: 101 and 204 have none
            return status not in (101, 204)
        if key == b"date":
            self._has_date = True
            return True
        if key == b"keep-alive":
            self._keep_alive = (self._keep_alive or _KEPT) + b"keep-alive: %b\r\n" % value
            return False
        if key == b"upgrade":
            self._options = [*self._options, b"Upgrade"]
            return True
        if key == b"connection":
            self._read_connection(value)
        # what is left is Transfer-Encoding: only the writer knows it, and ASGI has servers ignore the application's
        return False

    def _read_connection(self, value: bytes) -> None:
        """Apply the application's Connection. The fields that it names are for this connection only, and a proxy that
        does not learn of that passes them on (RFC 9110, 7.6.1)."""
        for item in value.split(b","):
            option = item.strip(b" \t")
            key = option.lower()
            if key == b"close":
                self.must_close = True
            elif key and key not in _FRAMING:
                self._options = [*self._options, option]

    def _set_length(self, value: bytes) -> None:
        length = digits_of(value)
        if length < 0:
            raise ResponseError(f"Content-Length must be given in digits, not {value!r}")
        if self._length is not None:
            raise ResponseError("Content-Length was given twice")
        self._length = self._left = length

    def _head(self, size: int, more: bool, date: bytes, keep_alive: bytes) -> bytes:
        framing = b""
        if self._length is None and self._status not in (204, 304):
            if not more:
                # the length of a GET's body is unknown if a HEAD is given no body
                framing = b"" if self._head_only and not size else b"content-length: %d\r\n" % size
                self._length = self._left = size
            elif self._http11:
                framing = b"transfer-encoding: chunked\r\n"
                self._chunked = True
            else:
                # only the end of the connection ends this body
                self.must_close = True
        if self._keep_alive:
            keep_alive = self._keep_alive
        elif not keep_alive and not self._http11:
            keep_alive = _KEPT
        if self._options:
            keep_alive = self._with_options(keep_alive)
        elif self.must_close:
            keep_alive = b"connection: close\r\n"
        line = _STATUS_LINES.get(self._status) or b"HTTP/1.1 %d \r\n" % self._status
        return b"".join((line, self._fields, framing, b"" if self._has_date else date, keep_alive, b"\r\n"))

    def _with_options(self, keep_alive: bytes) -> bytes:
        """Return the lines about the connection of a response with fields that are for this connection only. Connection
        is one field: some clients read only the first."""
        if self.must_close:
            return _connection([b"close", *self._options])
        options = [b"keep-alive", *self._options] if keep_alive else self._options
        return _connection(options) + keep_alive[len(_KEPT) :]

    def _count(self, size: int, more: bool) -> None:
        """Count a piece of body against the length that was announced, if one was."""
        if self._head_only or self._length is None:
            return
        left = self._left - size
        if left < 0:
            raise ResponseError(f"the body is longer than its Content-Length of {self._length} bytes")
        if left and not more:
            raise ResponseError(f"the body is {left} bytes shorter than its Content-Length of {self._length}")
        self._left = left

    def _framing(self, size: int, more: bool) -> tuple[bytes, bytes]:
        """Return what comes before and after the data of a chunk of `size` bytes; 0 bytes make no chunk."""
        end = b"" if more else b"0\r\n\r\n"
        return (b"%x\r\n" % size, b"\r\n" + end) if size else (end, b"")


def _connection(options: list[bytes]) -> bytes:
    """Return the line that names `options`, each once, in their order."""
    return b"connection: %b\r\n" % b", ".join(dict.fromkeys(options))


def no_headers(error: Exception) -> ResponseError:
    """Make the error of an application whose headers are not pairs of bytes; `error` is how that was noticed."""
    return ResponseError(f"the headers of a response must be pairs of bytes, a name and a value: {error}")


def _remembered(pair: Any) -> _Line | None:
    try:
        return _lines.get(pair)
    except TypeError:
        # a list, or a bytearray
        return None


def _line_of(pair: Any) -> _Line:
    """Return the line of a field, and remember it."""
    name, value = (bytes(memoryview(part)) for part in pair)
    if not TOKEN.fullmatch(name):
        raise ResponseError(f"a header field of the response has the invalid name {name!r}")
    if not VALUE.fullmatch(value):
        raise ResponseError(f"the header field {name!r} of the response has a line end or other control character")
    lower = name.lower()
    line = _Line(name, value, lower)
    remember(_lines, (name, value), line, lower, len(line.text))
    return line


def canned(status: int, reason: str, detail: str, head_only: bool = False) -> bytes:
    """Return a complete response of the server itself, which closes the connection; `head_only` to a HEAD. The body has
    problem details (RFC 9457): `reason` as the log has it, and `detail`, a sentence for people."""
    phrase = HTTPStatus(status).phrase
    body = problem(status, reason, detail)
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    return head.encode("ascii") + date_line() + b"\r\n" + (b"" if head_only else body)


def problem(status: int, reason: str, detail: str) -> bytes:
    """Return the body of an answer of the server itself, as in `canned`."""
    fields = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, "reason": reason}
    return json.dumps(fields).encode() + b"\n"


def keep_alive_lines(idle: float) -> bytes:
    """Return the fields that tell a client for how many seconds its connection may be idle, with their CRLF; b"" for
    `inf`."""
    return _KEPT + b"keep-alive: timeout=%d\r\n" % idle if idle < math.inf else b""


def date_line() -> bytes:
    """Return the Date field for the current time, with its CRLF."""
    return f"date: {formatdate(usegmt=True)}\r\n".encode("ascii")
