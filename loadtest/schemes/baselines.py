"""Two baselines with the interface of `deadlined.timers.Timers`.

`LazyHeapq` is asyncio's method: the standard library's heap, in which a stopped timer stays until it is reached, or
until half of the entries are stopped. Its entries are tuples, which compare in C. asyncio's are objects that compare in
Python and are slower; the benchmark `heap` has asyncio itself, too. `EagerHeap` is Go's method up to 1.13: a 4-ary heap
of timers that know their index, from which a stopped one is deleted at once. Its sifts are plain Python in every build.

Neither is protected against callbacks that raise or that start timers for times already passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

INF = float("inf")

# asyncio's two limits: the entries, and the fraction of cancelled ones, from which on it removes these
LEAST_STORED = 100
CANCELLED_PART = 0.5


class Alarm:
    """A timer of either heap. `when` is inf while it is stopped."""

    __slots__ = ("arg", "callback", "index", "number", "period", "when")

    def __init__(self, callback: Callable[[Any, int, float], object], arg: Any = None) -> None:
        self.callback = callback
        self.arg = arg
        self.when = INF
        self.period = 0.0
        # `number`: that of its entry in the lazy heap, 0 if none; `index`: its place in the eager one, -1 if none
        self.number = 0
        self.index = -1


class LazyHeapq:
    """A `heapq` with lazy cancelling."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._cancelled = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def modify(self, timer: Alarm, when: float, period: float = 0.0) -> bool:
        """Start a timer, or move it by cancelling and starting it anew. True if it was pending."""
        pending = timer.when != INF
        if pending:
            self._cancelled += 1
        number = self._number = timer.number = self._number + 1
        timer.when = when
        timer.period = period
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
            if timer.period > 0.0:
                self.modify(timer, _next(when, timer.period, now), timer.period)
            timer.callback(timer.arg, 0, now - when)
        return self.wake_time()


class EagerHeap:
    """Go 1.8's heap: `addtimer` and `deltimer`; a move is both."""

    def __init__(self) -> None:
        self._heap: list[Alarm] = []

    def __len__(self) -> int:
        return len(self._heap)

    def modify(self, timer: Alarm, when: float, period: float = 0.0) -> bool:
        """Start a timer, or move it by deleting and adding it. True if it was pending."""
        pending = self.stop(timer)
        timer.when = when
        timer.period = period
        timer.index = len(self._heap)
        self._heap.append(timer)
        self._up(timer.index)
        return pending

    def stop(self, timer: Alarm) -> bool:
        """Delete the timer, and put the last one in its place. True if it was pending."""
        index = timer.index
        if index < 0:
            return False
        last = self._heap.pop()
        if last is not timer:
            self._heap[index] = last
            last.index = index
            self._up(index)
            self._down(last.index)
        timer.when = INF
        timer.index = -1
        return True

    def wake_time(self) -> float:
        """Return the time of the first timer; inf without one."""
        return self._heap[0].when if self._heap else INF

    def check(self, now: float) -> float:
        """Run what is due; a periodic timer sifts down. Returns the wake time."""
        heap = self._heap
        while heap and heap[0].when <= now:
            timer = heap[0]
            when = timer.when
            if timer.period > 0.0:
                timer.when = _next(when, timer.period, now)
                self._down(0)
            else:
                self.stop(timer)
            timer.callback(timer.arg, 0, now - when)
        return self.wake_time()

    def _up(self, index: int) -> None:
        heap = self._heap
        timer = heap[index]
        when = timer.when
        while index > 0:
            parent = (index - 1) // 4
            if when >= heap[parent].when:
                break
            heap[index] = heap[parent]
            heap[index].index = index
            index = parent
        heap[index] = timer
        timer.index = index

    def _down(self, index: int) -> None:
        heap = self._heap
        timer = heap[index]
        when = timer.when
        size = len(heap)
        while (child := 4 * index + 1) < size:
            best, best_when = child, heap[child].when
            for sibling in range(child + 1, min(child + 4, size)):
                if heap[sibling].when < best_when:
                    best, best_when = sibling, heap[sibling].when
            if when <= best_when:
                break
            heap[index] = heap[best]
            heap[index].index = index
            index = best
        heap[index] = timer
        timer.index = index


def _next(when: float, period: float, now: float) -> float:
    return when + period * (1 + (now - when) // period)
