"""What every timer wheel has in common: it hears the time from checks only, turns from one occupied slot to the next,
and keeps in a heap what its slots cannot hold.

Facts      A wheel files a timer by its distance from the present tick. Hardware and kernels have a tick that never
           stops; this wheel's clock is the last check, which may be an hour ago in an idle process.
Hazard     Filed by an old clock, a deadline of one second looks like one of an hour: too far for a small wheel, far too
           coarse for Linux's. A wheel that ticks while nothing is due keeps a laptop awake. And a deadline may be
           any float: 1e300, -inf, yesterday.
Answer     What is filed between two checks waits in a bag of arrivals, with its exact time as wake time, until the
           next check tells the time and gives it a slot (Netty's wheel has the same queue, for its threads).
           The wheel jumps to the next occupied slot, and no tick passes in between. What no slot can hold lies in a
           4-ary heap: times beyond the wheel's range (the paper's hybrid: a wheel for the near, a list or heap for
           the far), times already past, and what has come due. So all that is due at one check fires by exact
           time, and nothing fires before its own: a slot that has come only names the timers to check.
Cost       START O(1). Two moves per timer that lives to see a check, and O(log k) for each of k due together. If the
           soonest arrival is stopped before any check, the other arrivals go to the heap: O(log n) each, once.
"""

from __future__ import annotations

from abc import abstractmethod

from .heap4 import Heap4
from .scheme import Scheme
from .slots import Slots
from .ticks import FURTHEST, NEVER, check_tick, has_tick, tick_from, tick_until, time_of
from .timer import INF, Timer


class Clockwork(Scheme):
    """A wheel without its geometry, which two methods add: in which slot a tick lies, and which slot comes next.

    `timer.slot` is the slot in which the timer lies, or the number after the last slot among the arrivals, or -1 in
    the heap; `timer.index` is the place there.
    """

    __slots__ = (
        "_arrivals",
        "_heap",
        "_next_slot",
        "_next_tick",
        "_next_time",
        "_slots",
        "_soonest",
        "_turned",
        "tick",
    )

    def __init__(self, tick: float, slots: int, coarseness: float = 0.0, wakes_early: bool = False) -> None:
        super().__init__(check_tick(tick), coarseness, wakes_early)
        self.tick: float = tick
        self._heap: Heap4 = Heap4()
        self._slots: Slots = Slots()
        # the last tick that a check has seen; every occupied slot comes after it
        self._turned: int = -FURTHEST
        # the occupied slot that comes next, and when: NEVER and inf if there is none
        self._next_slot: int = -1
        self._next_tick: int = NEVER
        self._next_time: float = INF
        # the number of the arrivals' bag, and the arrival with the smallest key: None exactly if there are none
        self._arrivals: int = slots
        self._soonest: Timer | None = None

    def __len__(self) -> int:
        return self._slots.size + len(self._heap)

    def wake_time(self) -> float:
        wake = min(self._heap.wake_time(), self._next_time)
        soonest = self._soonest
        return wake if soonest is None else min(wake, soonest.key)

    def first(self) -> Timer:
        heap_time = self._heap.wake_time()
        soonest = self._soonest
        if soonest is not None and soonest.key < heap_time and soonest.key <= self._next_time:
            return soonest
        if heap_time <= self._next_time:
            return self._heap.first()
        return self._witness(self._next_slot)

    def due(self, now: float) -> Timer | None:
        if self._soonest is not None or self._next_time <= now:
            self._turn_to(now)
        return self._heap.due(now)

    def file(self, timer: Timer, key: float) -> None:
        slot = timer.slot
        if slot < 0 <= timer.index:
            if key < timer.key:
                # exact here already: it need not go back to the slots
                self._heap.file(timer, key)
                return
            self._heap.remove_first()
        elif 0 <= slot < self._arrivals:
            self._slots.remove(timer)
            if slot == self._next_slot:
                self._find_next()
        timer.key = key
        if timer.slot < 0:
            self._slots.add(self._arrivals, timer)
        if self._soonest is None or key < self._soonest.key:
            self._soonest = timer

    def remove_first(self) -> Timer:
        timer = self.first()
        slot = timer.slot
        if slot < 0:
            return self._heap.remove_first()
        self._slots.remove(timer)
        timer.key = INF
        if slot == self._arrivals:
            self._forgo_slots()
        else:
            self._find_next()
        return timer

    def sweep(self) -> int:
        swept = self._heap.sweep() + self._slots.sweep()
        if self._slots.occupied >> self._arrivals:
            self._soonest = self._slots.first_of_all(self._arrivals)
        else:
            self._soonest = None
        self._find_next()
        return swept

    def clear(self) -> list[Timer]:
        stored = self._heap.clear() + self._slots.clear()
        self._soonest = None
        self._find_next()
        return stored

    @abstractmethod
    def _locate(self, number: int) -> tuple[int, int]:
        """Return the tick at which a timer for tick `number`, which is to come, must be checked again, and its slot.

        Slot -1 if the wheel does not reach that far.
        """

    @abstractmethod
    def _next_turn(self) -> tuple[int, int]:
        """Return the tick at which an occupied slot comes next, not before the present one, and that slot; NEVER and
        -1 if no slot is occupied."""

    def _witness(self, slot: int) -> Timer:
        """Return a timer of the next slot that makes it come when it does."""
        return self._slots.last(slot)

    def _turn_to(self, now: float) -> None:
        """Empty every slot that has come, then give the arrivals their places."""
        while self._next_slot >= 0 and self._next_time <= now:
            self._turned = self._next_tick
            self._empty(self._next_slot, now)
            self._find_next()
        self._turned = max(self._turned, tick_until(now, self.tick))
        if self._soonest is not None:
            self._soonest = None
            for timer in self._slots.remove_bag(self._arrivals):
                self._place(timer, now)

    def _empty(self, slot: int, now: float) -> None:
        """Move the timers of each slot that has come into the heap or into a finer slot."""
        for timer in self._slots.remove_bag(slot):
            self._place(timer, now)

    def _place(self, timer: Timer, now: float) -> None:
        """Put a timer into its slot at the present tick, or into the heap if it has none or is due."""
        key = timer.key
        if key > now and has_tick(key, self.tick):
            number = tick_from(key, self.tick)
            if number > self._turned:
                turn, slot = self._locate(number)
                if slot >= 0:
                    self._slots.add(slot, timer)
                    if turn < self._next_tick:
                        self._set_next(turn, slot)
                    return
        self._heap.file(timer, key)

    def _forgo_slots(self) -> None:
        """Move the arrivals to the heap, because the soonest has left, and the next one may leave, too."""
        self._soonest = None
        if self._slots.occupied >> self._arrivals:
            for timer in self._slots.remove_bag(self._arrivals):
                self._heap.file(timer, timer.key)

    def _find_next(self) -> None:
        """Find the next slot that holds a timer."""
        turn, slot = self._next_turn()
        self._set_next(turn, slot)

    def _set_next(self, turn: int, slot: int) -> None:
        self._next_tick = turn
        self._next_slot = slot
        self._next_time = time_of(turn, self.tick)


def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set in `bits`, which is not 0."""
    return (bits & -bits).bit_length() - 1


def next_bit(bits: int, start: int, width: int) -> int:
    """Return how many places after `start` the first set bit lies on a ring of `width` bits; some bit is set."""
    return lowest_bit((bits >> start) | (bits << (width - start)))
