"""What the programs of the benchmark `lateness` share: when timers are due, and what is said about how late they came.

    python -m loadtest.peers.lateness_PEER VARIANT timers COUNT SPREAD
    python -m loadtest.peers.lateness_PEER VARIANT ticker PERIOD SECONDS

The last line of output is one JSON object: for timers the quantiles "q0" to "q100" in seconds and "early", for a ticker
"cpu" and "skipped"; all of them shares but the quantiles.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

# seconds between the first timer that is made and the first that is due, in all and for each of them: all are made by
# then, also by half a core (trio takes 50 us for a task)
LEAD: Final = 0.1
LEAD_EACH: Final = 150e-6

# the round before the one that counts: code is loaded, caches are warm
WARM_COUNT: Final = 1000
WARM_SPREAD: Final = 0.1

# in percent; the last ones are where it hurts
POINTS: Final = (*range(100), 99.5, 99.9, 100)


def due_times(count: int, spread: float, now: float) -> list[float]:
    """`count` times, uniformly over `spread` seconds, in no order; the same distances in every process."""
    chance = random.Random(count)
    first = now + LEAD + count * LEAD_EACH
    return [first + chance.uniform(0.0, spread) for _ in range(count)]


def require_lead(due: Sequence[float], now: float) -> None:
    """RuntimeError if a timer was due before all were made: its lateness would not be the timers' own."""
    if now >= min(due):
        raise RuntimeError(f"making {len(due)} timers took too long: the first was due already")


def timers(lateness: Sequence[float]) -> dict[str, float]:
    """Of seconds late, negative for a timer that came before it was due."""
    ordered = sorted(lateness)
    last = len(ordered) - 1
    quantiles = {f"q{point:g}": ordered[round(point / 100 * last)] for point in POINTS}
    return {**quantiles, "early": sum(late < 0.0 for late in ordered) / len(ordered)}


class Meter:
    """Counts ticks, and what they cost this process."""

    def __init__(self, period: float, seconds: float, clock: Callable[[], float]) -> None:
        self.end = clock() + seconds
        self._clock = clock
        self._period = period
        self._began = clock()
        self._cpu = time.process_time()
        self._ticks = 0

    def tick(self) -> bool:
        """Count one; whether there is time for more."""
        self._ticks += 1
        return self._clock() < self.end

    def next(self, due: float) -> float:
        """The first tick after now, for loops that keep the phase themselves."""
        return due + self._period * max(1.0, math.ceil((self._clock() - due) / self._period))

    def report(self) -> dict[str, float]:
        """The share of a core, and of the ticks that did not come."""
        lasted = self._clock() - self._began
        expected = math.floor(lasted / self._period)
        return {
            "cpu": (time.process_time() - self._cpu) / lasted,
            "skipped": max(expected - self._ticks, 0) / expected,
        }


def tell(found: dict[str, float]) -> None:
    """The last line of output."""
    print(json.dumps(found), flush=True)
