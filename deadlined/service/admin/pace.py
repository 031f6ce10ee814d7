"""A limit of the time that a process spends on answers about itself.

Facts      Counting ten thousand connections takes some milliseconds, in which nothing else is served.
Hazard     Somebody who asks every 10 ms, or a hundred who ask at once, take the time of the real clients.
Answer     A question waits for its turn. After a turn that took t seconds the next one begins no earlier than
           t * (1 / SHARE - 1) seconds later, so answers take SHARE of the time at most. An answer is never an old one.
           Who would have to wait longer than PATIENCE is told to come back later. A live page, which asks again by
           itself, waits for PAGE_PATIENCE only, so that open pages keep nobody else from an answer.
Cost       None for those who ask every second.
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
    """Gives turns. `now()` and `sleep(seconds)` are a clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._free_at = 0.0
        # seconds of the longest turn of late: what a turn is expected to take
        self._expected = 0.0

    def reserve(self, patience: float = PATIENCE) -> float:
        """Reserve a turn, and return the seconds until it begins. UnavailableError, and no turn, if they are more than
        `patience`."""
        now = self._now()
        at = max(now, self._free_at)
        if at - now > patience:
            raise UnavailableError("too many questions are waiting for an answer already; ask less often")
        self._free_at = at + self._expected / SHARE
        return at - now

    def spent(self, seconds: float) -> None:
        """Note what a turn took."""
        more = seconds - self._expected
        if more > 0.0:
            # the turn was reserved with less
            self._free_at += more / SHARE
        self._expected = max(seconds, 0.9 * self._expected)
