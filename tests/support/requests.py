"""Requests read with both parsers, which must agree, with each other and with the reader of plain heads."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from deadlined.http import BadRequest, Limits, Request
from deadlined.http.wire import plain_head
from deadlined.http.wire.head import check_bytes
from deadlined.http.wire.parsers import head_parser
from deadlined.http.wire.request import RequestParser

Message = tuple[tuple[object, ...], bytes]


PARSERS = ("h11", "httptools")


FIELDS = [
    *("method", "target", "path_and_query", "version", "headers"),
    *("content_length", "chunked", "keep_alive", "expects_continue", "upgrade"),
]


def as_tuple(request: Request) -> tuple[object, ...]:
    return tuple(getattr(request, name) for name in FIELDS)


def parse(*pieces: bytes, limits: Limits | None = None) -> list[Message]:
    """Return all requests and bodies of `pieces`, after checking that both parsers read the same."""
    _check_first_head(b"".join(pieces), limits or Limits())
    outcomes = [_outcome(name, pieces, limits or Limits()) for name in PARSERS]
    assert len({repr(outcome) for outcome in outcomes}) == 1, outcomes
    if isinstance(outcomes[0], BadRequest):
        raise outcomes[0]
    return outcomes[0]


def _check_first_head(data: bytes, limits: Limits) -> None:
    """Check that the first head is read as both parsers read it, if it is complete and not too long."""
    while data.startswith(b"\r\n"):
        data = data[2:]
    head, end, _ = data.partition(b"\r\n\r\n")
    if end and len(head) + len(end) <= limits.max_head:
        outcomes = [parsed_by(name, head + end, limits) for name in PARSERS]
        plain_head._lines._known.clear()
        outcomes += [read_head(head + end, limits) for _ in range(2)]
        assert len({repr(outcome) for outcome in outcomes}) == 1, outcomes


def parsed_by(parser: str, head: bytes, limits: Limits) -> tuple[object, ...]:
    """Return what a parser alone makes of a head: the fields of a request, or of a refusal."""
    try:
        check_bytes(head, head.decode("latin-1"), limits)
        return as_tuple(head_parser(parser)(head))
    except BadRequest as bad:
        return bad.status, bad.detail, bad.reason


def read_head(head: bytes, limits: Limits) -> tuple[object, ...]:
    """Return what the server makes of a head, with no bound on bodies."""
    parser = RequestParser(replace(limits, max_body=math.inf))
    parser.feed(head)
    try:
        request = parser.next_request()
    except BadRequest as bad:
        return bad.status, bad.detail, bad.reason
    assert request is not None
    return as_tuple(request)


class _Refusal(BadRequest):
    """A BadRequest whose repr contains everything that is sent to the client."""

    def __repr__(self) -> str:
        return f"{self.status} {self.detail} {self.reason}"


def _outcome(parser: str, pieces: tuple[bytes, ...], limits: Limits) -> list[Message] | BadRequest:
    try:
        return _messages(RequestParser(limits, head_parser(parser)), pieces)
    except BadRequest as bad:
        return _Refusal(bad.status, bad.detail, bad.reason)


def _messages(parser: RequestParser, pieces: tuple[bytes, ...]) -> list[Message]:
    messages: list[Message] = []
    request: Request | None = None
    body = b""
    for piece in pieces:
        parser.feed(piece)
        while True:
            if request is None:
                request = parser.next_request()
                body = b""
                if request is None:
                    break
            part = parser.next_body()
            if part is None:
                break
            body += part
            if not part:
                messages.append((as_tuple(request), body))
                request = None
    return messages


def one(data: bytes, limits: Limits | None = None) -> Request:
    """Return the only request in `data`."""
    parse(data, limits=limits)
    parser = RequestParser(limits or Limits(), head_parser("httptools"))
    parser.feed(data)
    request = parser.next_request()
    assert request is not None
    return request


def by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def refused(data: bytes, limits: Limits | None = None) -> BadRequest:
    """Return how `data` is refused, after checking that it is the same at once and byte by byte."""
    with pytest.raises(BadRequest) as at_once:
        parse(data, limits=limits)
    with pytest.raises(BadRequest) as piecemeal:
        parse(*by_byte(data), limits=limits)
    assert piecemeal.value.status == at_once.value.status
    assert piecemeal.value.reason is at_once.value.reason
    return at_once.value


def get(*fields: bytes, line: bytes = b"GET / HTTP/1.1", host: bytes | None = b"host: x") -> bytes:
    """Return a request without a body."""
    lines = [line, *([] if host is None else [host]), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"
