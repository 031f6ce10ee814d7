"""A hashed timing wheel with unsorted slots: scheme 6 of Varghese and Lauck, and Netty's HashedWheelTimer.

Facts      Slot = tick modulo N, at any distance. A slot holds the timers of many rounds; the ones whose round has not
           come stay for the next (Netty: 512 slots, each timer counts its `remainingRounds` down).
Hazard     Every slot is met once per round, whether its timers are due or not: with n timers, n/N are looked at per
           tick, and an idle process wakes a thousand times a second to count rounds down.
Answer     The rounds are in the tick itself, which is absolute, so there is nothing to count down. Each slot remembers
           its earliest tick: the wheel turns when the earliest of all comes, and skips the rounds between.
Cost       START O(1) at any distance. A turn looks at one slot, n/N timers, and at N remembered ticks. Best with
           N not much below n; Netty's N is kept.
"""

from __future__ import annotations

from typing import Final

from .clockwork import Clockwork
from .ticks import NEVER, TICK, tick_from
from .timer import INF, Timer

SLOTS: Final = 512  # Netty's default, half a second a round at the default tick


class HashedWheel(Clockwork):
    """Slot i holds the timers of all ticks that are i modulo N."""

    __slots__ = ("_earliest",)

    def __init__(self, tick: float = TICK) -> None:
        super().__init__(tick, SLOTS)
        # per slot a tick that none of its timers lies before: its earliest, unless that one has left meanwhile
        self._earliest: list[int] = [NEVER] * SLOTS

    def _locate(self, number: int) -> tuple[int, int]:
        slot = number % SLOTS
        if number < self._earliest[slot]:
            self._earliest[slot] = number
        return number, slot

    def _next_turn(self) -> tuple[int, int]:
        """Return the earliest tick that holds a timer, and its slot; correct what is remembered."""
        while True:
            turn = min(self._earliest)
            if turn == NEVER:
                return NEVER, -1
            slot = turn % SLOTS
            true = NEVER
            if self._slots.occupied >> slot & 1:
                true = tick_from(self._slots.first_of_all(slot).key, self.tick)
            if true == turn:
                return turn, slot
            self._earliest[slot] = true

    def _empty(self, slot: int, now: float) -> None:
        """Remove the timers that are due; the others stay for a later round."""
        earliest = INF
        for timer in self._slots.members(slot):
            key = timer.key
            if key <= now:
                self._slots.remove(timer)
                self._heap.file(timer, key)
            elif key < earliest:
                earliest = key
        self._earliest[slot] = tick_from(earliest, self.tick) if earliest < INF else NEVER

    def _witness(self, slot: int) -> Timer:
        # not just any: most timers of the slot are rounds away
        return self._slots.first_of_all(slot)
