"""A limit of the time that a process spends on answers about itself.

Facts      Counting ten thousand connections takes some milliseconds, in which nothing else is served.
Hazard     A client that asks every 10 ms, or a hundred that ask at once, take the time of the real clients.
Answer     A question waits for its time slot. After one that took t seconds the next one begins no earlier than
           t * (1 / SHARE - 1) seconds later, so answers take SHARE of the time at most. An answer is never an old one.
           A question that would wait longer than PATIENCE is refused. A live page, which asks again by itself, waits
           for PAGE_PATIENCE only, so that open pages do not keep other questions from an answer.
Cost       None for a client that asks every second.
"""

from __future__ import annotations

from collections.abc import Callable

from .service import UnavailableError

# of the process's time
SHARE = 0.1

# seconds; a scrape of Prometheus gives up after ten
PATIENCE = 8.0
PAGE_PATIENCE = 2.0


class Pace:
    """Hands out time slots. `now()` returns seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._free_at = 0.0
        # seconds of the longest time slot of late: what one is expected to take
        self._expected = 0.0

    def reserve(self, patience: float = PATIENCE) -> float:
        """Reserve a time slot, and return the seconds until it begins. UnavailableError, and none is reserved, if they
        are more than `patience`."""
        now = self._now()
        at = max(now, self._free_at)
        if at - now > patience:
            raise UnavailableError("too many questions are waiting for an answer already; ask less often")
        self._free_at = at + self._expected / SHARE
        return at - now

    def spent(self, seconds: float) -> None:
        """Note how long an answer took."""
        more = seconds - self._expected
        if more > 0.0:
            # less was reserved for it
            self._free_at += more / SHARE
        self._expected = max(seconds, 0.9 * self._expected)
