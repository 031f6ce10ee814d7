"""Text on a terminal: colours, and nothing by which a client could forge a line or move the cursor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from .tracebacks import parts

_CODES = {"dim": "2", "bold": "1", "good": "32", "note": "36", "warn": "33", "bad": "31", "worst": "1;31"}

_TRACEBACK = {"header": "dim", "own": "", "library": "dim", "text": "bad"}

# joiners, which scripts and emoji need; all other invisible characters are shown as escapes
_HARMLESS = "\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"


class Style:
    """Paints text, if `colour`. `terminal`: the text is shown on one."""

    def __init__(self, colour: bool, terminal: bool = False) -> None:
        self.colour = colour
        self.terminal = terminal

    def paint(self, kind: str, text: str) -> str:
        """Return `text` in a colour: dim, bold, good, note, warn, bad, worst, or "" for none."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.colour and kind and text else text

    def traceback(self, text: str) -> str:
        """Return a text with each traceback in it cut to what begins with the application: the exceptions red, the
        frames of libraries dim, and no line of it forged."""
        return "\n".join(self.paint(_TRACEBACK[kind], harmless(line)) for kind, line in parts(text))


def wants_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if text on `stream` is to be coloured: if it is a terminal that can show it.

    NO_COLOR switches colours off, FORCE_COLOR on; if both are set, NO_COLOR holds. Empty variables are as good as none.
    """
    if environment.get("NO_COLOR"):
        return False
    forced = environment.get("FORCE_COLOR")
    if forced:
        return forced.lower() not in ("0", "false")
    return stream.isatty() and environment.get("TERM") != "dumb"


def harmless(text: str) -> str:
    """Return `text` with escapes in place of line ends, control characters and other invisible characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _HARMLESS else _escaped(char) for char in text)


def value_text(text: str) -> str:
    """Return a value of a field: in quotes if it has blanks, or characters that are shown as escapes."""
    return harmless(text if text and text.isprintable() and " " not in text else repr(text))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
