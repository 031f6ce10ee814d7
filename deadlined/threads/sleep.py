"""The sleep of a bucket's thread, which an earlier timer ends.

Facts      A Condition's `notify` needs the lock of the bucket. A `threading.Lock` may be released by any thread, and
           that is atomic.
Hazard     A stop in a finaliser must wake the thread, and may not wait for the bucket's lock.
Answer     The thread sleeps by acquiring a lock that it holds already. A release ends the sleep, or the next one at
           once. Of several releases only the first counts.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress

INF = math.inf


class ThreadSleep:
    """The sleeps of one thread. `guard` is the lock of its bucket."""

    __slots__ = ("_asleep", "_guard", "until", "wakeups")

    def __init__(self, guard: threading.Lock) -> None:
        self._guard = guard
        self._asleep = threading.Lock()
        self._asleep.acquire()
        # when the sleep ends by itself: inf if it does not, -inf while the thread is awake; guarded
        self.until: float = -INF
        self.wakeups: int = 0

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, or until a wake-up; `until` must be set. Without the guard."""
        self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX) if seconds < INF else -1)
        with self._guard:
            self.until = -INF
            self.wakeups += 1

    def wake(self) -> None:
        """End the sleep, or let the next one end at once. With or without the guard."""
        # it is awake or woken already
        with suppress(RuntimeError):
            self._asleep.release()

    def wake_by(self, when: float) -> None:
        """End the sleep if it would last beyond `when`. With the guard."""
        if when < self.until:
            # first: a signal handler that raises in it must not leave a thread that sleeps and counts as awake
            self.wake()
            # no other timer need wake it
            self.until = -INF
