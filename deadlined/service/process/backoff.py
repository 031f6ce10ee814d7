"""How soon a worker process that has ended is replaced: at once if it lived long, else later and later."""

from __future__ import annotations

import math

# seconds; a worker process that lived for as long is replaced at once
LONG_LIFE = 10.0
# seconds; the delays before others are replaced, each twice the one before
FIRST_DELAY = 0.1
LONGEST_DELAY = 10.0


class Backoff:
    """The delay before the next start. Times are absolute seconds of any clock."""

    def __init__(self) -> None:
        self.delay: float = 0.0
        # when the next process may be started
        self.until: float = -math.inf

    def ended(self, started: float, now: float) -> float:
        """Note that a process has ended by itself, and return the seconds before the next start."""
        if now - started >= LONG_LIFE:
            self.delay, self.until = 0.0, -math.inf
        else:
            self.failed(now)
        return self.delay

    def failed(self, now: float) -> None:
        """Double the delay, unless one is pending: processes that end together count once."""
        if now >= self.until:
            self.delay = min(max(2 * self.delay, FIRST_DELAY), LONGEST_DELAY)
            self.until = now + self.delay
