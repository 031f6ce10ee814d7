"""Options of an event loop's poller that come from the environment."""

from __future__ import annotations

import os

from ..timers import check_queue


def chosen_queue() -> str:
    """Return the name of the timer queue: DEADLINED_QUEUE if set and not empty, else "heap4". ValueError if unknown."""
    try:
        return check_queue(os.environ.get("DEADLINED_QUEUE") or "heap4")
    except ValueError as error:
        raise ValueError(f"DEADLINED_QUEUE: {error}") from None


def wants_precision() -> bool:
    """Return True if DEADLINED_PRECISE asks for wakes finer than a millisecond. ValueError if it is neither 1 nor 0."""
    value = os.environ.get("DEADLINED_PRECISE", "")
    if value not in ("", "0", "1"):
        raise ValueError(f"DEADLINED_PRECISE is 1 or 0, not {value!r}")
    return value == "1"
