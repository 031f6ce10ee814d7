"""A simple timing wheel: scheme 4 of Varghese and Lauck, a ring with one slot per tick.

Facts      A timer due j < N ticks ahead lies j slots ahead on a ring of N. START, STOP and a tick are O(1), and nothing
           is ever compared (SOSP 1987, section 5; simulators of logic circuits had it before).
Hazard     The range is bounded: a wheel of milliseconds that reaches an hour has millions of slots. Go round the ring
           without remembering rounds, and what lies farther fires a turn too early.
Answer     What lies farther than the ring reaches is not for the ring: it waits in the heap, where it is exact, until
           it is due (the paper's hybrid with scheme 2 or 3). It is never filed anew.
Cost       START O(1) within the range of 4 seconds, O(log n) beyond. A bitmap of N bits finds the next slot. With
           timeouts of a minute this is a heap; it is the scheme for retransmissions and for media.
"""

from __future__ import annotations

from typing import Final

from .clockwork import Clockwork, next_bit
from .ticks import NEVER, TICK

SLOTS: Final = 4096  # 4 seconds at the default tick; the bitmap still fits eight cache lines
RING: Final = (1 << SLOTS) - 1


class SimpleWheel(Clockwork):
    """Slot i holds the timers of the one tick to come, within N ticks from now, that is i modulo N."""

    __slots__ = ()

    def __init__(self, tick: float = TICK) -> None:
        super().__init__(tick, SLOTS)

    def _locate(self, number: int) -> tuple[int, int]:
        # N ticks ahead would be the slot of the present tick
        if number - self._turned >= SLOTS:
            return NEVER, -1
        return number, number % SLOTS

    def _next_turn(self) -> tuple[int, int]:
        ring = self._slots.occupied & RING
        if not ring:
            return NEVER, -1
        turn = self._turned + next_bit(ring, self._turned % SLOTS, SLOTS)
        return turn, turn % SLOTS
