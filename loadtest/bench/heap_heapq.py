"""The standard library's heap with lazy cancelling, in the benchmark `heap`.

    python -m loadtest.bench.heap_heapq tuples|handles many NUMBER
    python -m loadtest.bench.heap_heapq tuples|handles beside IDLE MOVED FEW

A stopped timer stays in the heap until it is reached, or until half of the entries are stopped: asyncio's rule.
`handles` are objects that compare in Python, as in asyncio. `tuples` begin with the time and compare in C.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from . import heap_phases
from .heap_phases import NOW

# asyncio's two limits: the entries, and the fraction of cancelled ones, from which on it removes these
LEAST_STORED = 100
CANCELLED_PART = 0.5


class Handle:
    """A timer that compares itself, as asyncio.TimerHandle does."""

    __slots__ = ("callback", "cancelled", "filed", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False
        self.filed = True

    def __lt__(self, other: Handle) -> bool:
        return self.when < other.when


# the time, a number that no other entry has, and the timer
Entry = tuple[float, int, Handle]
E = TypeVar("E", Handle, Entry)


class LazyHeap(Generic[E]):
    """A heap with lazy cancelling. Subclasses define what an entry is. An abstract base class."""

    def __init__(self) -> None:
        self.heap: list[E] = []
        self._cancelled = 0
        self._fired = 0

    def push(self, when: float) -> Handle:
        """Add a new timer that is due at `when`."""
        raise NotImplementedError

    def handle(self, entry: E) -> Handle:
        """Return the timer of an entry."""
        raise NotImplementedError

    def start(self, times: Sequence[float]) -> list[Handle]:
        push = self.push
        return [push(NOW + when) for when in times]

    def move(self, timers: list[Handle], times: Sequence[float]) -> None:
        push = self.push
        for place, when in enumerate(times):
            self._cancel(timers[place])
            timers[place] = push(when)
        self._tidy()

    def stop(self, timers: list[Handle]) -> None:
        cancel = self._cancel
        for handle in timers:
            cancel(handle)
        self._tidy()

    def fire(self, now: float) -> None:
        heap, pop, handle_of = self.heap, heapq.heappop, self.handle
        while heap:
            handle = handle_of(heap[0])
            if handle.when > now:
                break
            pop(heap)
            handle.filed = False
            if handle.cancelled:
                self._cancelled -= 1
            else:
                self._fired += 1
                handle.callback()

    def count(self) -> int:
        return self._fired

    def _cancel(self, handle: Handle) -> None:
        if handle.filed and not handle.cancelled:
            handle.cancelled = True
            self._cancelled += 1

    def _tidy(self) -> None:
        if len(self.heap) > LEAST_STORED and self._cancelled > CANCELLED_PART * len(self.heap):
            self.heap = [entry for entry in self.heap if not self.handle(entry).cancelled]
            heapq.heapify(self.heap)
            self._cancelled = 0


class Handles(LazyHeap[Handle]):
    """A heap of handles."""

    def push(self, when: float) -> Handle:
        handle = Handle(when, _nothing)
        heapq.heappush(self.heap, handle)
        return handle

    def handle(self, entry: Handle) -> Handle:
        return entry


class Tuples(LazyHeap[Entry]):
    """A heap of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self._number = itertools.count()

    def push(self, when: float) -> Handle:
        handle = Handle(when, _nothing)
        heapq.heappush(self.heap, (when, next(self._number), handle))
        return handle

    def handle(self, entry: Entry) -> Handle:
        return entry[2]


def _nothing() -> None:
    """Do nothing: the timers' callback."""


if __name__ == "__main__":
    queue: heap_phases.Queue[Handle] = Tuples() if sys.argv[1] == "tuples" else Handles()
    heap_phases.run(queue, sys.argv[2], *map(int, sys.argv[3:]))
