"""What h11 reads: heads, and bodies in chunks.

A request is read by a fresh `h11.Connection`, which costs a microsecond; its state machine is not needed, because our
side of it is written by `response`.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import h11

from ..errors import BadRequest
from .head import Request, build_request

_LENGTHS: Final = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)

# the shortest head that a body in chunks may follow
_HEAD_OF_CHUNKS: Final = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"

# heads are within their limits when h11 gets them
_MANY_BYTES: Final = 2**31


def parse_with_h11(head: bytes) -> Request:
    """A `HeadParser`."""
    if head.lower().find(b"\r\ncontent-length:") >= 0:
        _check_length(head)
    connection = h11.Connection(h11.SERVER, _MANY_BYTES)
    connection.receive_data(head)
    event = _next_event(connection)
    assert isinstance(event, h11.Request), event
    version = event.http_version.decode("ascii")
    headers = [(name.lower(), value) for name, value in event.headers.raw_items()]
    return build_request(event.method.decode("ascii"), event.target, version, headers)


def _check_length(head: bytes) -> None:
    """h11 would fold equal ones into one."""
    lengths = _LENGTHS.findall(head)
    if len(lengths) > 1 or lengths[0].find(b",") >= 0:
        raise BadRequest(400, "more than one Content-Length")


class ChunkedBody:
    """A body in chunks. `feed`, then `next_piece` until it gives b""; then `rest` is what followed the body.

    A line between chunks, and the trailer, may have `max_line` bytes.
    """

    __slots__ = ("_connection", "_tail", "held", "rest")

    def __init__(self, data: bytes, max_line: float) -> None:
        self._connection: h11.Connection = h11.Connection(h11.SERVER, int(min(max_line, _MANY_BYTES)))
        self._connection.receive_data(_HEAD_OF_CHUNKS)
        self._connection.next_event()
        # bytes that h11 was given and has not been asked for
        self.held: int = 0
        # what h11 was given since it last asked for more, and three bytes from before that
        self._tail: bytearray = bytearray()
        self.rest: bytes = b""
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Append what was received."""
        if data:
            self._connection.receive_data(data)
            self._tail += data
            self.held += len(data)

    def next_piece(self) -> bytes | None:
        """The next piece, None if more must be fed first, b"" once the body is complete. BadRequest if it is none."""
        while True:
            event = _next_event(self._connection)
            if event is h11.NEED_DATA:
                self.held = 0
                del self._tail[:-3]
                return None
            if not isinstance(event, h11.Data):
                self.rest = self._connection.trailing_data[0]
                self._check_end()
                return b""
            # said to be bytes, and is a bytearray
            data = bytes(cast(Any, event).data)
            if data:
                return data

    def _check_end(self) -> None:
        """A body in chunks ends in an empty line; h11 takes a bare LF for one, and others do not."""
        end = len(self._tail) - len(self.rest)
        if self._tail[max(end - 4, 0) : end] != b"\r\n\r\n":
            raise BadRequest(400, "the trailer of a chunked body does not end in CRLF")


def _next_event(connection: h11.Connection) -> object:
    try:
        return connection.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(error.error_status_hint, str(error)) from error
