"""Numbered bags of timers: what every wheel turns, and where an unsorted list keeps its own.

Facts      The literature links the timers of a slot in a doubly linked list, so that any of them leaves in O(1).
           Linux finds the next slot that is not empty by a bitmap, one bit per slot (kernel/time/timer.c).
Hazard     In Python a linked list costs two references per timer and a cache miss per step.
Answer     A bag is a list without order. A timer knows its bag (`slot`) and its place in it (`index`); one that leaves
           is replaced by the last. Order among timers that come due together is made when they are due.
Cost       O(1) to add and to remove. Empty bags do not exist, so that a thousand unused slots cost nothing.
"""

from __future__ import annotations

from .timer import INF, Timer


class Slots:
    """Bit i of `occupied` is set exactly if bag i holds a timer; `size` counts the timers of all bags."""

    __slots__ = ("_bags", "occupied", "size")

    def __init__(self) -> None:
        self._bags: dict[int, list[Timer]] = {}
        self.occupied: int = 0
        self.size: int = 0

    def add(self, number: int, timer: Timer) -> None:
        """Put `timer`, which is in no bag, into bag `number`."""
        bag = self._bags.get(number)
        if bag is None:
            bag = []
            self._bags[number] = bag
            self.occupied |= 1 << number
        timer.slot = number
        timer.index = len(bag)
        bag.append(timer)
        self.size += 1

    def remove(self, timer: Timer) -> None:
        """Take `timer` out of its bag."""
        number = timer.slot
        bag = self._bags[number]
        last = bag.pop()
        if last is not timer:
            bag[timer.index] = last
            last.index = timer.index
        timer.slot = -1
        timer.index = -1
        self.size -= 1
        if not bag:
            self._drop(number)

    def last(self, number: int) -> Timer:
        """Return the timer of bag `number` that can be removed at the least cost; the bag must not be empty."""
        return self._bags[number][-1]

    def first_of_all(self, number: int) -> Timer:
        """Return the timer of bag `number` with the smallest key. O(n); the bag must not be empty."""
        bag = self._bags[number]
        found = bag[0]
        for timer in bag:
            if timer.key < found.key:
                found = timer
        return found

    def members(self, number: int) -> list[Timer]:
        """Return a copy of bag `number`, which must not be empty."""
        return self._bags[number].copy()

    def remove_bag(self, number: int) -> list[Timer]:
        """Take out the whole bag `number`, which must not be empty."""
        bag = self._bags[number]
        self._drop(number)
        self.size -= len(bag)
        for timer in bag:
            timer.slot = -1
            timer.index = -1
        return bag

    def sweep(self) -> int:
        """Take out every zombie and leave it unfiled; return how many there were."""
        before = self.size
        for number in list(self._bags):
            for timer in self.remove_bag(number):
                if timer.when < INF:
                    self.add(number, timer)
                else:
                    timer.key = INF
        return before - self.size

    def clear(self) -> list[Timer]:
        """Take out and return everything, unfiled."""
        stored: list[Timer] = []
        for number in list(self._bags):
            stored += self.remove_bag(number)
        for timer in stored:
            timer.key = INF
        return stored

    def _drop(self, number: int) -> None:
        del self._bags[number]
        self.occupied ^= 1 << number
