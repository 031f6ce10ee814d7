"""What is remembered of header fields: most of them come again and again, from one peer or from many.

Facts      A server sends the same dozen lines with most of its responses, and so does a client with its requests. A
           line with a date, a length or a token in it comes once, or for a second.
Hazard     A peer that makes lines up must not fill the memory, nor keep what others send from being remembered. A
           secret would stay in memory for longer than its connection.
Answer     A dictionary holds so many short entries. When it is full, all of it is forgotten, and what is in use is
           remembered again. Fields whose names say that they are somebody's secret are left out.
Cost       Making an entry costs as much as handling the field did without it.
"""

from __future__ import annotations

from typing import Final, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# entries of a dictionary, and bytes of a field
MANY: Final = 1000
LONG: Final = 128

# names of fields that are not remembered: their values belong to one client
PRIVATE: Final = frozenset(
    (
        *(b"set-cookie", b"cookie", b"authorization", b"proxy-authorization", b"authentication-info"),
        *(b"x-api-key", b"x-auth-token", b"x-access-token", b"x-csrf-token", b"x-xsrf-token"),
    )
)


def remember(known: dict[_Key, _Value], key: _Key, value: _Value, name: bytes, size: int) -> None:
    """Add to `known` what a field named `name`, in lower case, means. `size`: its bytes."""
    if size <= LONG and name not in PRIVATE:
        if len(known) >= MANY:
            known.clear()
        known[key] = value
