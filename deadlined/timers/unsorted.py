"""An unsorted list of timers: scheme 1 of Varghese and Lauck.

Facts      START and STOP cannot be cheaper. The paper finds it right where there are few timers, or where the host
           looks at each of them at every tick anyway (in 1987: a timer chip with a register per timer).
Hazard     Every check looks at all n. One that finds k due, one after the other, would look k*n times.
Answer     The earliest is remembered until it leaves, so that an idle check costs one comparison. When it has come, one
           pass takes out all that are due; a small heap gives them back in order.
Cost       START O(1), STOP O(1), check O(1) while nothing is due, else O(n + k log k). O(n) also whenever the earliest
           leaves, zombies included.
"""

from __future__ import annotations

from typing import Final

from .heap4 import Heap4
from .scheme import Scheme
from .slots import Slots
from .timer import INF, Timer

# the number of the only bag
BAG: Final = 0


class UnsortedList(Scheme):
    """One bag, and a heap of what the last check found due. `timer.slot` is 0 in the bag, -1 in the heap."""

    __slots__ = ("_due", "_earliest", "_waiting")

    def __init__(self) -> None:
        super().__init__()
        self._waiting: Slots = Slots()
        # the timer with the smallest key in the bag; None: not known, look for it
        self._earliest: Timer | None = None
        self._due: Heap4 = Heap4()

    def __len__(self) -> int:
        return self._waiting.size + len(self._due)

    def wake_time(self) -> float:
        return min(self._next_time(), self._due.wake_time())

    def first(self) -> Timer:
        if self._due.wake_time() <= self._next_time():
            return self._due.first()
        return self._waiting.first_of_all(BAG) if self._earliest is None else self._earliest

    def due(self, now: float) -> Timer | None:
        if self._waiting.size and self._next_time() <= now:
            self._collect(now)
        return self._due.due(now)

    def file(self, timer: Timer, key: float) -> None:
        if timer.index < 0:
            self._waiting.add(BAG, timer)
        elif timer.slot < 0:
            if key < timer.key:
                # it is due, and stays so
                self._due.file(timer, key)
                return
            self._due.remove_first()
            self._waiting.add(BAG, timer)
        timer.key = key
        if self._waiting.size == 1 or (self._earliest is not None and key < self._earliest.key):
            self._earliest = timer

    def remove_first(self) -> Timer:
        timer = self.first()
        if timer.slot < 0:
            return self._due.remove_first()
        self._waiting.remove(timer)
        self._earliest = None
        timer.key = INF
        return timer

    def sweep(self) -> int:
        self._earliest = None
        return self._due.sweep() + self._waiting.sweep()

    def clear(self) -> list[Timer]:
        self._earliest = None
        return self._due.clear() + self._waiting.clear()

    def _next_time(self) -> float:
        """Return the smallest key in the bag, `inf` if it is empty."""
        if self._waiting.size == 0:
            return INF
        if self._earliest is None:
            self._earliest = self._waiting.first_of_all(BAG)
        return self._earliest.key

    def _collect(self, now: float) -> None:
        """Move what is due to the heap, in one pass."""
        self._earliest = None
        for timer in self._waiting.remove_bag(BAG):
            if timer.key <= now:
                self._due.file(timer, timer.key)
            else:
                self._waiting.add(BAG, timer)
