"""The cost of a feature in a server, measured by switching it on and off in turn.

Facts      Deadlines cost a server a few percent.
Hazard     Two starts of one server differ by more, and so do two seconds of a shared machine.
Answer     One server has the feature on for a stretch and off for the next. The CPU time of a unit of work in one
           stretch is compared with that in the next.
Cost       A test of the switch wherever it matters, in both states.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import trio


class Meter:
    """A meter that calls `switch(on)` every `stretch` seconds and measures the CPU time of a unit of work.

    `count` returns the units done so far.
    """

    def __init__(self, switch: Callable[[bool], object], count: Callable[[], int], stretch: float) -> None:
        self._switch = switch
        self._count = count
        self._stretch = stretch
        # CPU seconds per unit, on and off, of stretches that follow each other
        self._pairs: list[tuple[float, float]] = []

    async def alternate(self) -> None:
        """Switch and measure for ever."""
        while True:
            switched_on = await self._measure(on=True)
            switched_off = await self._measure(on=False)
            if switched_on and switched_off:
                self._pairs.append((switched_on, switched_off))

    def tell(self) -> None:
        """Print `{"tax": ..., "pairs": ...}`, or nothing without a pair of stretches.

        `tax`: the additional CPU time of a unit when switched on, in percent; the median of `pairs` pairs.
        """
        if self._pairs:
            ratio = statistics.median(first / second for first, second in self._pairs)
            print(json.dumps({"tax": (ratio - 1) * 100, "pairs": len(self._pairs)}), flush=True)

    async def _measure(self, *, on: bool) -> float:
        """Return the CPU seconds per unit; 0 if none was done."""
        self._switch(on)
        units, cpu = self._count(), time.process_time()
        await trio.sleep(self._stretch)
        units, cpu = self._count() - units, time.process_time() - cpu
        return cpu / units if units else 0.0
