"""How long a process or thread without an event loop waits at once."""

from __future__ import annotations

from ...poll.port import MAX_WAIT


def at_once(seconds: float) -> float:
    """Return for how long to wait now if something is due in `seconds`, which may be negative or infinite: at least 0,
    and at most MAX_WAIT, because a selector refuses a wait of 25 days. The caller must read its clock afterwards, and
    wait again if it is too early."""
    return min(max(seconds, 0.0), MAX_WAIT)
