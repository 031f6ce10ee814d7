"""Conversion of durations and sizes between text with units, and seconds and numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}

_NUMBER = re.compile(r"([0-9]+)\s*(k|m|g|)(?:i?b)?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def duration(text: str) -> float:
    """Return the seconds of `500ms`, `10s`, `2m`, `1h`, a plain number of seconds, or `off` (inf). ValueError for
    other text."""
    if text.strip().lower() == "off":
        return math.inf
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 500ms, 10s, 2m, 1h, a number of seconds, or off")
    return float(match[1]) * _SECONDS[match[2]]


def amount(text: str) -> float:
    """Return a whole number, with `k`, `m` or `g` for powers of 1024, or inf for `off`. ValueError for other text."""
    if text.strip().lower() == "off":
        return math.inf
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount: write a whole number, 16k, 10m, 1g, or off")
    return float(match[1]) * _FACTORS[match[2].lower()]


def show_duration(seconds: float) -> str:
    """Return the shortest text from which `duration` returns `seconds`."""
    if seconds == math.inf:
        return "off"
    exact = Decimal(repr(seconds))
    if 0 < exact < 1:
        return f"{_plain(exact * 1000)}ms"
    return f"{_plain(exact)}s"


def show_amount(number: float) -> str:
    """Return the shortest text from which `amount` returns `number`."""
    return "off" if number == math.inf else f"{number:.0f}"


def _plain(number: Decimal) -> str:
    """Return all digits, without an exponent and trailing zeros."""
    return f"{number.normalize():f}"
