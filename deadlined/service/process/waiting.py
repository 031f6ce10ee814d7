"""How long a process or thread without an event loop waits at once."""

from __future__ import annotations

from ...poll.port import MAX_WAIT


def at_once(seconds: float) -> float:
    """Return for how long to wait now if something is due in `seconds`, which may be negative or infinite: no less than
    0 and no more than MAX_WAIT. A selector refuses a wait of 25 days. So the caller must read its clock afterwards, and
    wait again."""
    return min(max(seconds, 0.0), MAX_WAIT)
