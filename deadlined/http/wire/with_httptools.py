"""Heads that llhttp reads, through httptools: C, and about ten times as fast as h11.

Facts      llhttp is laxer than h11 here and there, and its callbacks see a message while it is being read.
Hazard     What only one of two parsers takes is another message for each.
Answer     It is given whole heads that passed the same look as h11's, what it made of the request line is compared with
           the bytes, and its fields pass the same look afterwards. What it refuses h11 is asked about, whose word
           counts: the two differ in speed alone. A body is none of its business.
Cost       One parser for all connections, thrown away where it expects a body or was given nonsense.
"""

from __future__ import annotations

from typing import Any, Final

import httptools  # type: ignore[import-not-found,unused-ignore]  # it need not be there when this is compiled

from ..errors import BadRequest
from .head import Headers, Request, build_request
from .with_h11 import parse_with_h11

_ZERO: Final = 0x30
_ONE: Final = 0x31
_CR: Final = 0x0D
_SPACE: Final = 0x20


class HttptoolsHeads:
    """Its `parse` is a `HeadParser`."""

    __slots__ = ("_headers", "_parser", "_target")

    def __init__(self) -> None:
        self._headers: Headers = []
        self._target: bytes = b""
        self._parser: Any = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        """Called by llhttp, in pieces only where it is given pieces."""
        self._target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by llhttp."""
        if value and value[-1] <= _SPACE:
            # llhttp takes away only what stands before a value
            value = value.rstrip(b" \t")
        self._headers.append((name.lower(), value))

    def parse(self, head: bytes) -> Request:
        """The request of a whole head; BadRequest as h11 has it."""
        request = self._read(head)
        if request is None:
            self._renew()
            return parse_with_h11(head)
        if request.has_body or not request.keep_alive:
            self._renew()
        return request

    def _read(self, head: bytes) -> Request | None:
        """What llhttp and the looks that it shares with h11 let through."""
        headers: Headers = []
        self._headers = headers
        self._target = b""
        parser = self._parser
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._renew()
        except httptools.HttpParserError:
            return None
        method: bytes = parser.get_method()
        target = self._target
        line = method + b" " + target + b" HTTP/1."
        size = len(line)
        # after which there is an empty line at least
        if head[:size] != line or head[size + 1] != _CR or not _ZERO <= head[size] <= _ONE:
            return None
        try:
            text = line.decode("ascii")
            return build_request(text[: len(method)], target, "1.1" if head[size] == _ONE else "1.0", headers)
        except (BadRequest, UnicodeDecodeError):
            return None

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
