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

# names that were checked. Clients use some dozens; one that makes them up must not fill the memory
_names: Final[set[bytes]] = set()
_MANY_NAMES: Final = 1000

# ends a body in chunks
LAST_CHUNK: Final = b"0\r\n\r\n"


def request_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request in HTTP/1.1. ValueError for a method or a name that is no token, a target that is
    not of visible ASCII, and a value with CR, LF or NUL in it."""
    if not _TOKEN.fullmatch(method.encode("ascii", "replace")) or not _TARGET.fullmatch(target):
        raise ValueError(f"{method!r} {target!r} is no request line")
    parts = [method.encode("ascii"), b" ", target, b" HTTP/1.1\r\n"]
    values: list[bytes] = []
    for name, value in headers:
        if name not in _names:
            _check_name(name)
        parts.append(name)
        parts.append(b": ")
        parts.append(value)
        parts.append(b"\r\n")
        values.append(value)
    text = b"".join(values).decode("latin-1")
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError("a header field of the request has a line end or NUL in its value")
    parts.append(b"\r\n")
    return b"".join(parts)


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a body. ValueError if it is empty: that would end the body, as LAST_CHUNK does."""
    if not data:
        raise ValueError("an empty chunk would end the body")
    return b"%x\r\n%b\r\n" % (len(data), data)


def _check_name(name: bytes) -> None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"a header field of the request has the invalid name {name!r}")
    if len(_names) < _MANY_NAMES:
        _names.add(name)
