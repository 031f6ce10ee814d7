"""Writing requests: a method, a target and header fields in, bytes out. No I/O.

Hazard     A value with a line end in it is a second field, or a second request (request splitting).
Answer     The head is written as one join, and checked as one text. Its framing is the caller's: a Content-Length,
           or `Transfer-Encoding: chunked` and a body that is written with `chunk`.
Cost       One look-up per field, and one pass over the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# RFC 9110, 5.6.2
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")

# What begins the line of a field, by its name, once that was checked. Clients use some dozens of names; one that makes
# them up must not fill the memory
_beginnings: Final[dict[bytes, bytes]] = {}
_MANY_NAMES: Final = 1000
_LONG_NAME: Final = 64

# ends a body in chunks
LAST_CHUNK: Final = b"0\r\n\r\n"


def request_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request in HTTP/1.1. ValueError for a method or a name that is no token, a target that is
    not of visible ASCII, and a value with CR, LF or NUL in it."""
    # no token has the `?` that replaces a character beyond ASCII
    verb = method.encode("ascii", "replace")
    if not _TOKEN.fullmatch(verb) or not _TARGET.fullmatch(target):
        raise ValueError(f"{method!r} {target!r} is no request line")
    parts = [verb, b" ", target, b" HTTP/1.1"]
    lines = 2
    for name, value in headers:
        parts.append(_beginnings.get(name) or _beginning(name))
        parts.append(value)
        lines += 1
    parts.append(b"\r\n\r\n")
    head = b"".join(parts)
    text = head.decode("latin-1")
    # the line ends of the lines, and no others
    if text.count("\n") != lines or text.count("\r") != lines or "\0" in text:
        raise ValueError("a header field of the request has a line end or NUL in its value")
    return head


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a body. ValueError if it is empty: that would end the body, as LAST_CHUNK does."""
    if not data:
        raise ValueError("an empty chunk would end the body")
    return b"%x\r\n%b\r\n" % (len(data), data)


def _beginning(name: bytes) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"a header field of the request has the invalid name {name!r}")
    beginning = b"\r\n%b: " % name
    if len(_beginnings) < _MANY_NAMES and len(name) <= _LONG_NAME:
        _beginnings[name] = beginning
    return beginning
