"""A list of timers kept in order: scheme 2 of Varghese and Lauck, and the timer queue of VMS and early UNIX.

Facts      The head is the next to come, so check and extract are O(1); START searches for its place. The paper walks a
           linked list, from the end whose timers the new one is likelier to be near.
Hazard     A walk in Python costs tens of nanoseconds a step: at ten thousand timers, START would take a millisecond.
Answer     An array instead of links: a binary search finds the place, and one memmove makes room. It is as much O(n)
           as the walk, with a constant a thousand times smaller. The earliest lies at the end, where leaving moves
           nothing; fixed timeouts enter at the front, which moves everything: the paper's worst case, kept.
Cost       START O(n), a memmove of 16 bytes per timer that lies later. STOP O(1) lazily, check and extract O(1),
           sweep O(n).

A moved timer is found by its rank. `timer.order` is new by then, so `timer.index` keeps the order it was filed with.
"""

from __future__ import annotations

from .scheme import Scheme, unfile
from .timer import INF, Timer


class SortedList(Scheme):
    """Two parallel lists, by falling `(key, order)`. `timer.index` is the order that the timer was filed with."""

    __slots__ = ("_keys", "_timers")

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[float] = []
        self._timers: list[Timer] = []

    def __len__(self) -> int:
        return len(self._keys)

    def wake_time(self) -> float:
        return self._keys[-1] if self._keys else INF

    def first(self) -> Timer:
        return self._timers[-1]

    def due(self, now: float) -> Timer | None:
        return self._timers[-1] if self._keys and self._keys[-1] <= now else None

    def file(self, timer: Timer, key: float) -> None:
        if timer.index >= 0:
            place = self._search(timer.key, timer.index)
            del self._keys[place]
            del self._timers[place]
        place = self._search(key, timer.order)
        self._keys.insert(place, key)
        self._timers.insert(place, timer)
        timer.key = key
        timer.index = timer.order

    def remove_first(self) -> Timer:
        self._keys.pop()
        timer = self._timers.pop()
        timer.key = INF
        timer.index = -1
        return timer

    def sweep(self) -> int:
        stored = self._timers
        self._timers = [timer for timer in stored if timer.when < INF]
        self._keys = [timer.key for timer in self._timers]
        unfile([timer for timer in stored if timer.when == INF])
        return len(stored) - len(self._timers)

    def clear(self) -> list[Timer]:
        stored = self._timers
        self._timers = []
        self._keys = []
        unfile(stored)
        return stored

    def _search(self, key: float, order: int) -> int:
        """Return the first place whose `(key, order)` is not above the given one."""
        keys = self._keys
        timers = self._timers
        low = 0
        high = len(keys)
        while low < high:
            middle = (low + high) // 2
            other = keys[middle]
            if other > key or (other == key and timers[middle].index > order):
                low = middle + 1
            else:
                high = middle
        return low
