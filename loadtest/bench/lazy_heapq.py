"""A baseline with the interface of `deadlined.timers.Timers`: asyncio's method.

The standard library's heap, in which a stopped timer stays until it is reached, or until half of the entries are
stopped. Its entries are tuples, which compare in C; asyncio's are objects that compare in Python, and are slower. It
has no periods, and is not protected against callbacks that raise or that start timers for times already passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

INF = float("inf")

# asyncio's two limits: the entries, and the fraction of cancelled ones, from which on it removes these
LEAST_STORED = 100
CANCELLED_PART = 0.5

Callback = Callable[[Any, int, float], object]


class Alarm:
    """A timer. `when` is inf while it is stopped."""

    __slots__ = ("arg", "callback", "number", "when")

    def __init__(self, callback: Callback, arg: Any = None) -> None:
        self.callback = callback
        self.arg = arg
        self.when = INF
        # that of its entry in the heap, 0 if none
        self.number = 0


class LazyHeapq:
    """A `heapq` with lazy cancelling."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._cancelled = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def modify(self, timer: Alarm, when: float) -> bool:
        """Start a timer, or move it by cancelling and starting it anew. True if it was pending."""
        pending = timer.when != INF
        if pending:
            self._cancelled += 1
        number = self._number = timer.number = self._number + 1
        timer.when = when
        heapq.heappush(self._heap, (when, number, timer))
        return pending

    def stop(self, timer: Alarm) -> bool:
        """Mark the timer as cancelled; its entry stays. True if it was pending."""
        if timer.when == INF:
            return False
        timer.when = INF
        timer.number = 0
        self._cancelled += 1
        return True

    def wake_time(self) -> float:
        """Return the time of the first pending timer; inf without one."""
        heap = self._heap
        while heap and heap[0][2].number != heap[0][1]:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else INF

    def check(self, now: float) -> float:
        """Remove cancelled entries as asyncio does at every turn, then run what is due. Returns the wake time."""
        if len(self._heap) > LEAST_STORED and self._cancelled > CANCELLED_PART * len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].number == entry[1]]
            heapq.heapify(self._heap)
            self._cancelled = 0
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, number, timer = heapq.heappop(heap)
            if timer.number != number:
                self._cancelled -= 1
                continue
            timer.when = INF
            timer.number = 0
            timer.callback(timer.arg, 0, now - when)
        return self.wake_time()
