"""Lines of header fields, of which most have come before.

Facts      A field is a name, a colon and a value on one line (RFC 9112, 5). A peer sends the same lines with most of
           its messages, and many peers send the same ones.
Hazard     A line that two readers read in two ways, or that means something else beside other lines.
Answer     A line is a field if all of it matches the grammar, whatever stands around it. What depends on several fields
           is judged by the readers, for each head anew.
Cost       One look-up per line that is remembered (`remembered`). A new line is checked; its name is mostly known.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, Final

from .remembered import remember

# RFC 9110, 5.6.2 and 5.5, as latin-1: a tab is the only control character in a line
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*+")

# the same as bytes: what the writers may send as a name, or as a method, and as a value
TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*+")

# texts of a head that is split at its line ends: those behind the fields are the empty line, and an empty text for what
# follows it; before the fields there is one line
AFTER_FIELDS: Final = 2
NO_FIELDS: Final = 1 + AFTER_FIELDS


class Field:
    """What a line says: `pair`, a tuple of the name, in lower case, and the value without surrounding whitespace.
    `heeded`: those who read heads heed fields of this name themselves."""

    __slots__ = ("heeded", "pair")

    def __init__(self, name: bytes, value: bytes, heeded: bool) -> None:
        # not typed as a tuple: compiled code would make a new one at each use
        self.pair: Any = (name, value)
        self.heeded: bool = heeded


class FieldLines:
    """Reads the lines of one kind of head, and remembers them. `heeded`: names in lower case."""

    __slots__ = ("_heeded", "_known", "_names")

    def __init__(self, heeded: Set[bytes]) -> None:
        self._heeded: Set[bytes] = heeded
        self._known: dict[str, Field] = {}
        # names as they came, and in lower case
        self._names: dict[str, bytes] = {}

    def read(self, line: str) -> Field | None:
        """Return what a line says, which is given as latin-1, without its end. None if it is no field."""
        field = self._known.get(line)
        return self._read_new(line) if field is None else field

    def _read_new(self, line: str) -> Field | None:
        colon = line.find(":")
        if colon <= 0:
            return None
        text = line[:colon]
        name = self._names.get(text) or self._name_of(text)
        value = line[colon + 1 :]
        if name is None or not _is_value(value):
            return None
        field = Field(name, value.strip(" \t").encode("latin-1"), name in self._heeded)
        remember(self._known, line, field, name, len(line))
        return field

    def _name_of(self, text: str) -> bytes | None:
        """Return a name in lower case, and remember it; None if it is none."""
        if _NAME.fullmatch(text) is None:
            return None
        name = text.encode("ascii").lower()
        remember(self._names, text, name, b"", len(text))
        return name


def _is_value(text: str) -> bool:
    # almost always true, and faster to find out than by a match
    return (text.isascii() and text.isprintable()) or _VALUE.fullmatch(text) is not None
