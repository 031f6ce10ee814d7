"""Heads of requests that are plain, which almost all are: read line by line, without a parser.

Facts      A client sends the same fields with most of its requests, so most lines have been read before. A parser reads
           every byte of every head, and makes every field anew.
Hazard     A head that is read in another way than the parsers read it.
Answer     Plain is what all readers of RFC 9112 read in the same way: a usual method, a path with or without a query,
           HTTP/1.0 or 1.1, and lines that match the grammar of a field. The fields are judged like those that a parser
           has read. Whatever else comes is left to the parser, refusals too.
Cost       One look-up per line; what is new in a line is checked.
"""

from __future__ import annotations

from typing import Final

from ..errors import BadRequest
from ..timeouts import Limits
from .field_lines import AFTER_FIELDS, NO_FIELDS, FieldLines
from .head import HEEDED, Headers, Request, judge

# RFC 9110, 9.3, and RFC 5789
_METHODS: Final = {name: name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
_VERSIONS: Final = {"HTTP/1.1": "1.1", "HTTP/1.0": "1.0"}

_lines: Final = FieldLines(HEEDED)


def read_plain(text: str, limits: Limits) -> Request | None:
    """Read a complete head, which is `text` as latin-1. Return None if it is not plain, or must be refused."""
    # compiled code splits text faster than bytes
    lines = text.split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or len(lines) - NO_FIELDS > limits.max_headers:
        return None
    method = _METHODS.get(parts[0])
    target = parts[1]
    version = _VERSIONS.get(parts[2])
    if method is None or version is None or not _is_plain(target):
        return None
    headers: Headers = []
    heeded: Headers = []
    for place in range(1, len(lines) - AFTER_FIELDS):
        field = _lines.read(lines[place])
        if field is None:
            return None
        headers.append(field.pair)
        if field.heeded:
            heeded.append(field.pair)
    try:
        return judge(method, target.encode("ascii"), version, headers, heeded)
    except BadRequest:
        return None


def _is_plain(target: str) -> bool:
    """Return True for a path with or without a query."""
    return target.startswith("/") and target.isascii() and target.isprintable() and "#" not in target
