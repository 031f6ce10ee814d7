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

from .errors import BadRequest
from .head import Headers, Request, build_request
from .with_h11 import parse_with_h11

# what may follow the dot of the version, and the version
_VERSIONS: Final = {b"1\r\n": "1.1", b"0\r\n": "1.0"}


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
        self._headers.append((name.lower(), value.strip(b" \t")))

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
        version = _VERSIONS.get(head[len(line) : len(line) + 3])
        if version is None or head[: len(line)] != line or not target.isascii():
            return None
        try:
            return build_request(method.decode("ascii"), target, version, headers)
        except BadRequest:
            return None

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
