"""Conversion of durations and sizes between text with units, and seconds and numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal

# a number of seconds, or numbers with units from the largest to the smallest, each at most once
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(rf"({_NUMBER})|" + r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in _SECONDS))

_AMOUNT = re.compile(rf"({_NUMBER})\s*(k|m|g|t|)(?:i?b)?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}

# what a message says is allowed
DURATIONS = "write 500ms, 10s, 2m, 1m30s, 1h, 1d, a number of seconds, or off"
AMOUNTS = "write a whole number, 1.5k, 16k, 10m, 1g, or off"


def duration(text: str) -> float:
    """Return the seconds of `500ms`, `10s`, `1m30s`, `2h`, `1d`, a plain number of seconds, or `off` (inf). ValueError
    for other text."""
    stripped = text.strip()
    if stripped.lower() == "off":
        return math.inf
    match = _DURATION.fullmatch(stripped)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration: {DURATIONS}")
    plain, *parts = match.groups()
    if plain is not None:
        return float(plain)
    return sum(float(part) * factor for part, factor in zip(parts, _SECONDS.values(), strict=True) if part is not None)


def amount(text: str, kind: str = "an amount", allowed: str = AMOUNTS) -> float:
    """Return a whole number, with `k`, `m`, `g` or `t` for powers of 1024, or inf for `off`. ValueError, which says
    that it is not `kind` and what is `allowed`, for other text."""
    stripped = text.strip()
    if stripped.lower() == "off":
        return math.inf
    match = _AMOUNT.fullmatch(stripped)
    number = math.nan if match is None else float(match[1]) * _FACTORS[match[2].lower()]
    if number != math.inf and not number.is_integer():
        raise ValueError(f"{text!r} is not {kind}: {allowed}")
    return number


def show_duration(seconds: float) -> str:
    """Return the shortest text with one unit, `s` or `ms`, from which `duration` returns `seconds`."""
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
