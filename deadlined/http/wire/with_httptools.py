"""Heads that llhttp reads, through httptools: C, and about ten times as fast as h11.

Facts      llhttp is laxer than h11 here and there, and its callbacks see a message while it is being read.
Hazard     A message that only one of two parsers accepts is a different message to each.
Answer     It is given complete heads that passed the same checks as h11's. What it made of the request line is compared
           with the bytes, and its fields are checked like h11's. A head that it refuses is given to h11, which decides:
           the two differ in speed alone. It is never given a body.
Cost       One parser for all connections, replaced after a head that is refused, or that has a body, an upgrade or a
           close: llhttp does not begin another message then.
"""

from __future__ import annotations

from typing import Any, Final

import httptools  # type: ignore[import-not-found,unused-ignore]  # optional when this is compiled

from ..errors import BadRequest
from .head import Headers, Request, build_request
from .with_h11 import parse_with_h11

_ZERO: Final = 0x30
_ONE: Final = 0x31
_CR: Final = 0x0D
_SPACE: Final = 0x20


class HttptoolsHeads:
    """llhttp with its callbacks. `parse` is a `HeadParser`."""

    __slots__ = ("_headers", "_parser", "_target")

    def __init__(self) -> None:
        self._headers: Headers = []
        self._target: bytes = b""
        self._parser: Any = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        """Note the target. Called by llhttp, once, because it is given complete heads."""
        self._target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a field. Called by llhttp."""
        if value and value[-1] <= _SPACE:
            # llhttp strips whitespace only before a value
            value = value.rstrip(b" \t")
        self._headers.append((name.lower(), value))

    def parse(self, head: bytes) -> Request:
        """Parse a complete head. Raise the same BadRequest as h11's parser."""
        request = self._read(head)
        if request is None:
            self._renew()
            return parse_with_h11(head)
        if request.has_body or not request.keep_alive:
            self._renew()
        return request

    def _read(self, head: bytes) -> Request | None:
        """Return the request, None unless both llhttp and the checks that it shares with h11 accept it."""
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
        if not target:
            return None
        line = method + b" " + target + b" HTTP/1."
        size = len(line)
        # in range, because at least an empty line follows
        if head[:size] != line or head[size + 1] != _CR or not _ZERO <= head[size] <= _ONE:
            return None
        try:
            text = line.decode("ascii")
            return build_request(text[: len(method)], target, "1.1" if head[size] == _ONE else "1.0", headers)
        except (BadRequest, UnicodeDecodeError):
            return None

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
