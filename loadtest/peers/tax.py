"""What a server costs with something that is switched on and off, in turn.

Facts      What deadlines cost a server is a few percent of it.
Hazard     Two starts of one server differ by more, and so do two seconds of a shared machine.
Answer     One server has it on for a moment, and off for the next, in turn. The CPU time of a unit of its work in one
           stretch is compared to that in the stretch right after it.
Cost       A look at the switch wherever it makes a difference, in both.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import trio


class Meter:
    """Calls `switch(on)` every `stretch` seconds, and knows from `count()`, the units done so far, what one took."""

    def __init__(self, switch: Callable[[bool], object], count: Callable[[], int], stretch: float) -> None:
        self._switch = switch
        self._count = count
        self._stretch = stretch
        # CPU seconds per unit, switched on and off, as they followed each other
        self._pairs: list[tuple[float, float]] = []

    async def alternate(self) -> None:
        """Switch for ever."""
        while True:
            switched_on = await self._measure(on=True)
            switched_off = await self._measure(on=False)
            if switched_on and switched_off:
                self._pairs.append((switched_on, switched_off))

    def tell(self) -> None:
        """Print `{"tax": ..., "pairs": ...}`: by how many percent a unit took more CPU time switched on, as the median
        of so many pairs of stretches. Nothing if there was none."""
        if self._pairs:
            ratio = statistics.median(first / second for first, second in self._pairs)
            print(json.dumps({"tax": (ratio - 1) * 100, "pairs": len(self._pairs)}), flush=True)

    async def _measure(self, *, on: bool) -> float:
        """CPU seconds per unit; 0 if none was done."""
        self._switch(on)
        units, cpu = self._count(), time.process_time()
        await trio.sleep(self._stretch)
        units, cpu = self._count() - units, time.process_time() - cpu
        return cpu / units if units else 0.0
