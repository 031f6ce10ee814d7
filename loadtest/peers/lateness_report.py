"""The common part of the programs of the benchmark `lateness`: when timers are due, and the report of their lateness.

    python -m loadtest.peers.lateness_PEER VARIANT timers COUNT SPREAD
    python -m loadtest.peers.lateness_PEER VARIANT ticker PERIOD SECONDS

"warm" is printed after a warm-up, so that the parent can begin to disturb. The last line of output is one JSON object:
for timers the quantiles "q0" to "q100" in seconds and "early", for a ticker "cpu" and "skipped". Except the quantiles
all are shares from 0 to 1.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

# seconds from the start to the first timer that is due, in all and per timer: by then even half a core has made all
# timers (trio takes 50 us for a task)
LEAD: Final = 0.1
LEAD_EACH: Final = 150e-6

# the warm-up round, which loads code and fills caches
WARM_COUNT: Final = 100
WARM_SPREAD: Final = 0.1

# nanoseconds; an hour
_LONGEST: Final = 3_600 * 1_000_000_000

# per cent
POINTS: Final = (*range(100), 99.5, 99.9, 100)


def due_times(count: int, spread: float, now: float) -> list[float]:
    """Return `count` times, uniform over `spread` seconds, in no order; with the same distances in every process."""
    chance = random.Random(count)
    first = now + LEAD + count * LEAD_EACH
    return [first + chance.uniform(0.0, spread) for _ in range(count)]


def require_lead(due: Sequence[float], now: float) -> None:
    """Raise RuntimeError if a timer was due before all were made, because its lateness would include the making."""
    if now >= min(due):
        raise RuntimeError(f"making {len(due)} timers took too long: the first was due already")


def measure_timers(measure: Callable[[int, float], list[float]], count: int, spread: float) -> None:
    """Warm up, and measure `count` timers within `spread` seconds by a function that returns their lateness."""
    measure(WARM_COUNT, WARM_SPREAD)
    print("warm", flush=True)
    tell(timers(measure(count, spread)))


def timers(lateness: Sequence[float]) -> dict[str, float]:
    """Summarize seconds of lateness; negative values are timers that fired early, and count as 0 in the quantiles."""
    # what is measured is over, and does not have it in memory
    from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped,unused-ignore]

    histogram = HdrHistogram(1, _LONGEST, 3)
    for late in lateness:
        histogram.record_value(min(max(round(late * 1e9), 0), _LONGEST))
    quantiles = {f"q{point:g}": histogram.get_value_at_percentile(point) / 1e9 for point in POINTS}
    return {**quantiles, "early": sum(late < 0.0 for late in lateness) / len(lateness)}


class Meter:
    """A counter of ticks and of their cost to this process."""

    def __init__(self, period: float, seconds: float, clock: Callable[[], float]) -> None:
        self.end = clock() + seconds
        self._clock = clock
        self._period = period
        self._began = clock()
        self._cpu = time.process_time()
        self._ticks = 0

    def tick(self) -> bool:
        """Count a tick. False when the time is over."""
        self._ticks += 1
        return self._clock() < self.end

    def next(self, due: float) -> float:
        """Return the time of the first tick after now, for loops that keep the phase themselves."""
        return due + self._period * max(1.0, math.ceil((self._clock() - due) / self._period))

    def report(self) -> dict[str, float]:
        """Return the share of a core, and the share of the ticks that were skipped."""
        lasted = self._clock() - self._began
        expected = math.floor(lasted / self._period)
        return {
            "cpu": (time.process_time() - self._cpu) / lasted,
            "skipped": max(expected - self._ticks, 0) / expected,
        }


def tell(found: dict[str, float]) -> None:
    """Print the last line of output."""
    print(json.dumps(found), flush=True)
