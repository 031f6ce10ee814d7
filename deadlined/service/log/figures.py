"""Times and sizes as people read them."""

from __future__ import annotations

import math


def time_text(seconds: float) -> str:
    """Return a time with three digits or its two largest units: `0.3 ms`, `120 ms`, `75 s`, `2 min 3 s`; `off` for
    `inf`."""
    if seconds == math.inf:
        return "off"
    if seconds < 0.9995:
        return f"{seconds * 1000:.{1 if seconds < 0.00995 else 0}f} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for name, unit, smaller_name, smaller in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{whole} s"


def size_text(size: float) -> str:
    """Return a number of bytes with three digits: `345 B`, `12.3 kB`, `5.1 MB`. Units are powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def count_text(number: int, one: str, more: str = "") -> str:
    """Return a number and what is counted: `1 request`, `2 requests`."""
    return f"{number} {one if number == 1 else more or one + 's'}"
