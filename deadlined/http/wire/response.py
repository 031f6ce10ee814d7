"""Writing responses: a status, header fields and pieces of body in, bytes out. No I/O.

Facts      The head of a response is a handful of validated lines; h11 spends more time on it than on reading the
           request.
Hazard     A header value with a line end in it is a second header (response splitting); a body that is longer or
           shorter than announced shifts every response after it.
Answer     The head is written as one join and checked as one text. The body is counted against what was announced.
           The head waits for the first piece of body, and both leave together.
Cost       One set look-up per field, and one pass over the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from ..errors import ResponseError

# pairs of a name and a value, of whatever kind
Headers = Iterable[Sequence[bytes]]

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

_ZERO: Final = 0x30
_NINE: Final = 0x39

# the fields that the writer heeds itself
_FRAMING: Final = frozenset((b"content-length", b"date", b"connection", b"transfer-encoding"))

# valid names, and what they are in lower case if they are heeded, else b"". An application uses a few; one that makes
# them up must not fill the memory
_keys: Final[dict[bytes, bytes]] = {}
_MANY_KEYS: Final = 1000

_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode("ascii") for s in HTTPStatus}

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ResponseWriter:
    """One response. `start`, then `body` until `more` is False; each gives the bytes that are to be sent.

    `close` says from outside that this is the connection's last response; `must_close` is then announced, and after the
    response it tells whether the connection can be used again. ResponseError for whatever the application does wrong.
    """

    __slots__ = (
        "_chunked",
        "_fields",
        "_has_date",
        "_head_only",
        "_http11",
        "_left",
        "_length",
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
        self.must_close = close
        self.started = False
        self.complete = False

    @property
    def status(self) -> int:
        """The status that was started, 0 if none was."""
        return self._status

    def start(self, status: int, headers: Headers) -> None:
        """Note the head; it leaves with the first piece of body."""
        if self._status:
            raise ResponseError("the response was started twice")
        if not 200 <= status <= 999:
            raise ResponseError(f"a final response has a status from 200 to 999, not {status!r}")
        fields: list[bytes] = []
        values: list[bytes] = []
        for pair in headers:
            # taken apart as what it mostly is, and so in a quarter of the time
            name, value = pair if isinstance(pair, tuple) else tuple(pair)
            key = _keys.get(name)
            if key is None:
                key = _key_of(name)
            if not key or not self._takes(key, value, status):
                fields.append(name)
                fields.append(b": ")
                fields.append(value)
                fields.append(b"\r\n")
                values.append(value)
        text = b"".join(values).decode("latin-1")
        if "\n" in text or "\r" in text or "\0" in text:
            raise ResponseError("a header field of the response has a line end or NUL in its value")
        self._fields = b"".join(fields)
        self._head_only = self._head_only or status in (204, 304)
        self._status = status

    def body(self, data: bytes, more: bool, date: bytes, keep_alive: bytes) -> bytes:
        """The bytes of one piece of body, preceded by the head if it is the first.

        `date` and `keep_alive` are whole lines for the head.
        """
        if not self._status:
            raise ResponseError("a body was sent before the response was started")
        if self.complete:
            raise ResponseError("a body was sent after the response was complete")
        head = b"" if self.started else self._head(len(data), more, date, keep_alive)
        framed = self._frame(data, more)
        self.started = True
        self.complete = not more
        return head + framed

    def _takes(self, key: bytes, value: bytes, status: int) -> bool:
        """Heed a field that concerns the framing; True if it must not be passed on because we write it ourselves."""
        if key == b"content-length":
            self._set_length(value)
            # RFC 9110, 8.6: not in a 204, which has none
            return status == 204
        if key == b"date":
            self._has_date = True
        elif key == b"connection":
            self.must_close = self.must_close or b"close" in value.lower()
            return True
        elif key == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ResponseError("the only Transfer-Encoding that an application may ask for is `chunked`")
            return True
        return False

    def _set_length(self, value: bytes) -> None:
        length = _number(value)
        if length < 0 or self._length is not None:
            raise ResponseError(f"Content-Length must be given once, in digits, not {value!r}")
        self._length = self._left = length

    def _head(self, size: int, more: bool, date: bytes, keep_alive: bytes) -> bytes:
        framing = b""
        if self._length is None and self._status not in (204, 304):
            if not more:
                # what a GET would have got is not known if a HEAD is given nothing
                framing = b"" if self._head_only and not size else b"content-length: %d\r\n" % size
                self._length = self._left = size
            elif self._http11:
                framing = b"transfer-encoding: chunked\r\n"
                self._chunked = True
            else:
                # only the end of the connection ends this body
                self.must_close = True
        if self.must_close:
            keep_alive = b"connection: close\r\n"
        elif not self._http11:
            keep_alive = b"connection: keep-alive\r\n" + keep_alive
        line = _STATUS_LINES.get(self._status) or b"HTTP/1.1 %d \r\n" % self._status
        return b"".join((line, self._fields, framing, b"" if self._has_date else date, keep_alive, b"\r\n"))

    def _frame(self, data: bytes, more: bool) -> bytes:
        if self._head_only:
            return b""
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            return piece if more else piece + b"0\r\n\r\n"
        if self._length is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ResponseError(f"the body is longer than its Content-Length of {self._length} bytes")
            if self._left and not more:
                raise ResponseError(f"the body is {self._left} bytes shorter than its Content-Length of {self._length}")
        return data


def _key_of(name: bytes) -> bytes:
    if not _NAME.fullmatch(name):
        raise ResponseError(f"a header field of the response has the invalid name {name!r}")
    lower = name.lower()
    key = lower if lower in _FRAMING else b""
    if len(_keys) < _MANY_KEYS:
        _keys[name] = key
    return key


def _number(digits: bytes) -> int:
    """What `digits` say, -1 if they are none. Compiled, this takes a quarter of what `isdigit` and `int` take."""
    number = 0 if digits else -1
    for digit in digits:
        if not _ZERO <= digit <= _NINE:
            return -1
        number = 10 * number + digit - _ZERO
    return number


def canned(status: int, detail: str, head_only: bool = False) -> bytes:
    """A whole small response that the server gives in its own name, and closes after; `head_only` for a HEAD."""
    phrase = HTTPStatus(status).phrase
    body = f"{status} {phrase}: {detail}\n".encode()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    return head.encode("ascii") + date_line() + b"\r\n" + (b"" if head_only else body)


def date_line() -> bytes:
    """The Date header field, as of now."""
    return f"date: {formatdate(usegmt=True)}\r\n".encode("ascii")
