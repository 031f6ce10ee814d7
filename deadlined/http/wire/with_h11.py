"""Heads that h11 reads.

Each head is read by a fresh `h11.Connection`, which costs a microsecond. h11's state machine is not needed, because
our side of it is written by `response`.
"""

from __future__ import annotations

from typing import Final

import h11

from ..errors import BadRequest
from .head import LONGEST_METHOD, Request, build_request, check_grammar

# heads are within their limits when h11 gets them
_MANY_BYTES: Final = 2**31


def parse_with_h11(head: bytes) -> Request:
    """Parse a complete head; a `HeadParser`."""
    event = _read(head)
    return _build(head, event.method, event.target, event.http_version)


def _read(head: bytes) -> h11.Request:
    connection = h11.Connection(h11.SERVER, _MANY_BYTES)
    connection.receive_data(head)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        # its frames refer to it, and to those that have called them
        error.__traceback__ = None
        # its messages quote bytes of the client: let the checks that the parsers share say what is wrong
        check_grammar(head)
        method, target, version = head.partition(b"\r\n")[0].split(b" ")
        _build(head, method, target, version.removeprefix(b"HTTP/"))
        raise BadRequest(error.error_status_hint, "a header is malformed") from error
    assert isinstance(event, h11.Request), event
    return event


def _build(head: bytes, method: bytes, target: bytes, version: bytes) -> Request:
    if len(method) > LONGEST_METHOD:
        raise BadRequest(400, "this is not an HTTP request")
    # h11 changes the values of some fields
    fields = [_field(line) for line in head.split(b"\r\n")[1:-2]]
    return build_request(method.decode("ascii"), target, version.decode("ascii"), fields)


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")
