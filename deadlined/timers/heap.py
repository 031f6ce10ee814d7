"""What heaps of any arity share: two parallel lists, and a timer that knows its place in them.

Facts      In a heap of arity d the parent of i is (i-1)//d and its children are d*i+1 to d*i+d. Only the two sifts
           depend on d.
Hazard     Comparing through the timer objects chases a pointer per comparison, which is where a large heap
           spends its time (golang/go#53953).
Answer     Keys lie in a list of their own beside the timers; a timer is looked at only when two keys are equal.
           Sifts move a hole and write the travelling timer once. They are written out per arity: dividing by a
           variable alone makes START 4 percent slower when compiled, and a loop over d children more.
Cost       Each timer knows its index, one store per level moved. It buys a move in either direction in
           O(log n) with never more than one entry per timer, where Go scans the whole heap to move one earlier.
"""

from __future__ import annotations

from abc import abstractmethod

from .scheme import Scheme, unfile
from .timer import INF, Timer


class Heap(Scheme):
    """A min-heap by `(key, order)`. `timer.index` is the place in both lists."""

    __slots__ = ("_arity", "_keys", "_timers")

    def __init__(self, arity: int) -> None:
        super().__init__()
        self._arity: int = arity
        self._keys: list[float] = []
        self._timers: list[Timer] = []

    def __len__(self) -> int:
        return len(self._keys)

    def wake_time(self) -> float:
        return self._keys[0] if self._keys else INF

    def first(self) -> Timer:
        return self._timers[0]

    def due(self, now: float) -> Timer | None:
        return self._timers[0] if self._keys and self._keys[0] <= now else None

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
        stored = self._timers
        live = [timer for timer in stored if timer.when < INF]
        unfile([timer for timer in stored if timer.when == INF])
        self._timers = live
        self._keys = [timer.key for timer in live]
        for index, timer in enumerate(live):
            timer.index = index
        # Floyd's build, from the last parent to the root: O(n).
        for index in range((len(live) - 2) // self._arity, -1, -1):
            timer = live[index]
            self._sift_down(index, timer.key, timer)
        return len(stored) - len(live)

    def clear(self) -> list[Timer]:
        stored = self._timers
        self._timers = []
        self._keys = []
        unfile(stored)
        return stored

    @abstractmethod
    def _sift_up(self, index: int, key: float, timer: Timer) -> None:
        """Write `timer` where it belongs on the way from the hole at `index` to the root."""

    @abstractmethod
    def _sift_down(self, index: int, key: float, timer: Timer) -> None:
        """Write `timer` where it belongs on the way from the hole at `index` down."""
