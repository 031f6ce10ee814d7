"""What is remembered of header fields: most of them come again and again, from one peer or from many.

Facts      A server sends the same dozen lines with most of its responses, and so does a client with its requests. A
           line with a date, a length or a token in it comes once, or for a second.
Hazard     A peer that makes lines up must not fill the memory, nor keep what others send from being remembered. A
           secret would stay in memory for longer than its connection.
Answer     A dictionary holds at most MANY entries of at most LONG bytes. When it is full, all of it is forgotten, and
           what is in use is remembered again. Fields whose names say that they may be secret are left out.
Cost       A line that is new takes a look-up and an entry more.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# entries of a dictionary, and bytes of a field: the longest lines that all browsers of a kind send have 150
MANY: Final = 1000
LONG: Final = 256

# what the names of secrets have in them, and other fields that may carry one: a URL, or a token for want of a better
# field (the API of browsers for websockets sets no other)
_SECRET: Final = re.compile(
    rb".*(?:auth|cookie|csrf|key|passw|secret|session|token|xsrf).*|location|referer|sec-websocket-protocol", re.DOTALL
)

# names that were looked at
_secret: Final[dict[bytes, bool]] = {}


def remember(known: dict[_Key, _Value], key: _Key, value: _Value, name: bytes, size: int) -> None:
    """Add to `known` what a field named `name`, in lower case, means, unless it may be secret or has more than LONG
    bytes. `size`: its bytes; `name` is b"" for what is no field."""
    if size <= LONG and not is_secret(name):
        _add(known, key, value)


def is_secret(name: bytes) -> bool:
    """Return True if fields of this name, in lower case, may be secret."""
    found = _secret.get(name)
    if found is None:
        found = _SECRET.fullmatch(name) is not None
        if len(name) <= LONG:
            _add(_secret, name, found)
    return found


def _add(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(known) >= MANY:
        known.clear()
    known[key] = value
