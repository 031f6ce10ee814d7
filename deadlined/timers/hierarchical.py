"""Hierarchical timing wheels: scheme 7 of Varghese and Lauck, like the hands of a clock.

Facts      Days, hours, minutes, seconds: a timer lies on the coarsest wheel on which its time differs from now. When
           that hand reaches its slot, the timer moves one or more wheels down, until the finest fires it. Linux had
           five such wheels until 4.8, BEAM and tokio have them still.
Hazard     Filed by distance, a timer may lie in the very slot at which a hand stands, and wait a whole turn. And the
           cascades of one slot move all of its timers at once.
Answer     As in tokio: a tick is a number of six digits in base 64, and a timer lies on the wheel of the highest digit
           in which its tick differs from the present one. That digit is greater than the hand's, always. So every
           timer of a finer wheel comes before any of a coarser one, and the next slot is the lowest bit of the
           finest wheel that is not empty.
Cost       START O(1); at most five cascades in a timer's life, and as many wakes that fire nothing. Six wheels reach to
           the next multiple of 64**6 ticks, two years at the default tick; what lies beyond it is in the heap.
"""

from __future__ import annotations

from typing import Final

from .clockwork import Clockwork, lowest_bit
from .ticks import NEVER, TICK

BITS: Final = 6  # of a digit
SLOTS: Final = 64  # 2**BITS, a wheel
DIGIT: Final = SLOTS - 1
LEVELS: Final = 6
RING: Final = (1 << SLOTS) - 1


class HierarchicalWheel(Clockwork):
    """Slot 64*l + i: what has the digit i at place l, where now has a smaller one, and equal digits above."""

    __slots__ = ()

    def __init__(self, tick: float = TICK) -> None:
        super().__init__(tick, LEVELS * SLOTS, wakes_early=True)

    def _locate(self, number: int) -> tuple[int, int]:
        differing = number ^ self._turned
        # less than zero on both sides of the time's origin
        if not 0 < differing < 1 << LEVELS * BITS:
            return NEVER, -1
        level = (differing.bit_length() - 1) // BITS
        position = number >> level * BITS
        return position << level * BITS, level * SLOTS + (position & DIGIT)

    def _next_turn(self) -> tuple[int, int]:
        for level in range(LEVELS):
            wheel = self._slots.occupied >> level * SLOTS & RING
            if wheel:
                digit = lowest_bit(wheel)
                position = self._turned >> level * BITS
                return (position - (position & DIGIT) + digit) << level * BITS, level * SLOTS + digit
        return NEVER, -1
