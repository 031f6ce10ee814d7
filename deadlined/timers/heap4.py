"""A 4-ary min-heap of timers: Go's scheme since 1.2, and the default here.

Facts      A heap of arity 4 has half the levels of a binary one; the four children of a node lie side by side
           (parent (i-1)//4, children 4i+1 to 4i+4). Go measured it faster in 2013 and never went back.
Hazard     Comparing through the timer objects chases a pointer per comparison, which is where a large heap
           spends its time (golang/go#53953).
Answer     Keys lie in a list of their own beside the timers; a timer is looked at only when two keys are equal.
           Sifts move a hole and write the travelling timer once.
Cost       Each timer knows its index, one store per level moved. It buys a move in either direction in
           O(log n) with never more than one entry per timer, where Go scans the whole heap to move one earlier.
"""

from __future__ import annotations

from .scheme import Scheme
from .timer import INF, Timer


class Heap4(Scheme):
    """START O(log4 n), per-tick check O(1), extract O(log n) per due timer, sweep O(n)."""

    __slots__ = ("_keys", "_timers")

    def __init__(self) -> None:
        self._keys: list[float] = []
        self._timers: list[Timer] = []

    def __len__(self) -> int:
        return len(self._keys)

    def wake_time(self) -> float:
        return self._keys[0] if self._keys else INF

    def first(self) -> Timer:
        return self._timers[0]

    def file(self, timer: Timer, key: float) -> None:
        index = timer.index
        if index < 0:
            index = len(self._keys)
            self._keys.append(key)
            self._timers.append(timer)
            timer.key = key
            self._sift_up(index, key, timer)
        else:
            earlier = key < timer.key
            timer.key = key
            if earlier:
                self._sift_up(index, key, timer)
            else:
                self._sift_down(index, key, timer)

    def remove_first(self) -> Timer:
        first = self._timers[0]
        key = self._keys.pop()
        timer = self._timers.pop()
        if timer is not first:
            self._sift_down(0, key, timer)
        first.key = INF
        first.index = -1
        return first

    def sweep(self) -> int:
        stored = self.clear()
        live = [timer for timer in stored if timer.when < INF]
        for timer in stored:
            if timer.when == INF:
                timer.key = INF
                timer.index = -1
        self._timers = live
        self._keys = [timer.key for timer in live]
        for index, timer in enumerate(live):
            timer.index = index
        # Floyd's build, from the last parent to the root: O(n).
        for index in range((len(live) - 2) // 4, -1, -1):
            timer = live[index]
            self._sift_down(index, timer.key, timer)
        return len(stored) - len(live)

    def clear(self) -> list[Timer]:
        stored = self._timers
        self._timers = []
        self._keys = []
        return stored

    def _sift_up(self, index: int, key: float, timer: Timer) -> None:
        keys = self._keys
        timers = self._timers
        order = timer.order
        while index > 0:
            parent = (index - 1) // 4
            parent_key = keys[parent]
            if key > parent_key or (key == parent_key and order > timers[parent].order):
                break
            moved = timers[parent]
            keys[index] = parent_key
            timers[index] = moved
            moved.index = index
            index = parent
        keys[index] = key
        timers[index] = timer
        timer.index = index

    def _sift_down(self, index: int, key: float, timer: Timer) -> None:
        keys = self._keys
        timers = self._timers
        size = len(keys)
        order = timer.order
        child = 4 * index + 1
        while child < size:
            best = child
            best_key = keys[child]
            for sibling in range(child + 1, min(child + 4, size)):
                sibling_key = keys[sibling]
                if sibling_key < best_key or (sibling_key == best_key and timers[sibling].order < timers[best].order):
                    best = sibling
                    best_key = sibling_key
            if key < best_key or (key == best_key and order < timers[best].order):
                break
            moved = timers[best]
            keys[index] = best_key
            timers[index] = moved
            moved.index = index
            index = best
            child = 4 * index + 1
        keys[index] = key
        timers[index] = timer
        timer.index = index
