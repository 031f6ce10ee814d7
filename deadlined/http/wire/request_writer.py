"""Writing requests: a method, a target and header fields in, bytes out. No I/O.

Hazard     A value with a line end in it is a second field, or a second request (request splitting).
Answer     Each field is checked, and remembered with its line, and the head is written as one join. Its framing is the
           caller's: a Content-Length, or `Transfer-Encoding: chunked` and a body that is written with `chunks.chunk`.
Cost       One look-up per field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from .field_lines import TOKEN, VALUE
from .remembered import remember

_TARGET: Final = re.compile(rb"[\x21-\x7e]+")

# the lines of fields that were checked, each with the end of the line before it
_lines: Final[dict[Any, bytes]] = {}

# the common methods
_VERBS: Final = {verb: verb.encode("ascii") for verb in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}


def request_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], lines: bytes = b"") -> bytes:
    """Return the head of a request in HTTP/1.1. `lines`: more fields, as `field_lines` has written them. ValueError for
    a method that is no token, and a target that is not of visible ASCII; else as `field_lines`."""
    verb = _VERBS.get(method) or _verb(method)
    if not (verb and _TARGET.fullmatch(target)):
        raise ValueError(f"{method!r} {target!r} is no request line")
    return b"".join((verb, b" ", target, b" HTTP/1.1", field_lines(headers), lines, b"\r\n\r\n"))


def field_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the lines of fields, each with the end of the line before it. ValueError for a name that is no token, and
    a value with a control character in it, except tabs (RFC 9110, 5.5)."""
    # not typed: compiled code would take each tuple apart and make it again
    fields: Iterable[Any] = headers
    return b"".join([_lines.get(field) or _line(field[0], field[1]) for field in fields])


def _verb(method: str) -> bytes:
    """Return the bytes of a method, b"" if it is none."""
    # no token has the `?` that replaces a character beyond ASCII
    verb = method.encode("ascii", "replace")
    return verb if TOKEN.fullmatch(verb) else b""


def _line(name: bytes, value: bytes) -> bytes:
    """Return the line of a field, and remember it."""
    if not TOKEN.fullmatch(name):
        raise ValueError(f"a header field of the request has the invalid name {name!r}")
    if not VALUE.fullmatch(value):
        raise ValueError(f"the header field {name!r} of the request has a line end or other control character")
    line = b"\r\n%b: %b" % (name, value)
    remember(_lines, (name, value), line, name.lower(), len(line))
    return line
