"""Linux's timer wheel since 4.8: no cascade, and late by at most an eighth of the delay.

Facts      Most timeouts are cancelled before they fire, so both the cascades of a hierarchical wheel and the precision
           they keep are wasted work. Thomas Gleixner's wheel (kernel/time/timer.c, 2016) has levels of 64 slots, each
           level eight times coarser than the one below. A timer is filed once, by its delay, its time rounded up
           to its level's granularity, and fires when that slot comes.
Hazard     A level begins at a delay of 63 slots of the level below, not of 64: the slot at which the hand stands is
           taken. So Linux's 12.5 percent are really up to 8/63, or 12.7. And a delay is a distance from now: by a clock
           that lags behind, everything is filed too coarsely (the kernel forwards it at every start; here the
           arrivals wait for the next check).
Answer     The bound is the condition: what rounding up would delay by more than an eighth is left to the heap, which
           is exact. That is one timer in a thousand, just where a level begins.
Cost       START O(1), no cascade, one wake per occupied slot. A timer fires up to an eighth of its delay late: right
           for "the peer is dead" and wrong for "tell me at noon". The eighth is of the delay that its entry was filed
           with: one that is moved lazily, or revived, waits for the entry. Eight levels reach 36 hours at the
           default tick; the kernel cuts longer delays off, here they lie in the heap.
"""

from __future__ import annotations

from typing import Final

from .clockwork import Clockwork, next_bit
from .ticks import NEVER, TICK

LEVELS: Final = 8
SLOTS: Final = 64  # of a level
SHIFT: Final = 3  # a level is 2**3 times coarser than the one below
RING: Final = (1 << SLOTS) - 1
COARSENESS: Final = 0.125


class KernelWheel(Clockwork):
    """Slot 64*l + i: what fires at the next multiple of 8**l ticks that is i times that, modulo 64."""

    __slots__ = ()

    def __init__(self, tick: float = TICK) -> None:
        super().__init__(tick, LEVELS * SLOTS, coarseness=COARSENESS)

    def _locate(self, number: int) -> tuple[int, int]:
        delay = number - self._turned
        for level in range(LEVELS):
            if delay <= SLOTS - 1 << level * SHIFT:
                position = -(-number >> level * SHIFT)
                turn = position << level * SHIFT
                # two ticks less: both ends of the delay have been rounded, away from each other
                if turn > number and 8 * (turn - number) > delay - 2:
                    break
                return turn, level * SLOTS + position % SLOTS
        return NEVER, -1

    def _next_turn(self) -> tuple[int, int]:
        next_turn = NEVER
        next_slot = -1
        for level in range(LEVELS):
            ring = self._slots.occupied >> level * SLOTS & RING
            if ring:
                # the first slot of this level that has not passed; it may be the present tick's
                position = -(-self._turned >> level * SHIFT)
                position += next_bit(ring, position % SLOTS, SLOTS)
                turn = position << level * SHIFT
                if turn < next_turn:
                    next_turn = turn
                    next_slot = level * SLOTS + position % SLOTS
        return next_turn, next_slot
