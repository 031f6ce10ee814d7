"""The common part of the programs of the benchmark `lateness`: when timers are due, and the report of their lateness.

    python -m loadtest.peers.lateness_PEER VARIANT COUNT SPREAD

The last line of output is one JSON object: quantiles and the largest in milliseconds, and the per cent that were
"early".
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from typing import Final

# seconds from the start to the first timer that is due, in all and per timer: by then even half a core has made all
# timers (trio takes 50 us for a task)
LEAD: Final = 0.1
LEAD_EACH: Final = 150e-6

# the warm-up round, which loads code and fills caches
WARM_COUNT: Final = 100
WARM_SPREAD: Final = 0.1


def due_times(count: int, spread: float, now: float) -> list[float]:
    """Return `count` times, uniform over `spread` seconds, in no order; with the same distances in every process."""
    chance = random.Random(count)
    first = now + LEAD + count * LEAD_EACH
    return [first + chance.uniform(0.0, spread) for _ in range(count)]


def require_lead(due: Sequence[float], now: float) -> None:
    """Raise RuntimeError if a timer was due before all were made, because its lateness would include the making."""
    if now >= min(due):
        raise RuntimeError(f"making {len(due)} timers took too long: the first was due already")


def armed(
    count: int,
    spread: float,
    clock: Callable[[], float],
    arm: Callable[[float, Callable[[float], None]], object],
    done: Callable[[], object],
) -> list[float]:
    """Arm timers; return the list that gets the seconds by which each is late, and call `done` with the last of them.

    `arm(when, fire)` must have `fire(when)` called at that time.
    """
    lateness: list[float] = []

    def fire(due: float) -> None:
        lateness.append(clock() - due)
        if len(lateness) == count:
            done()

    due = due_times(count, spread, clock())
    for when in due:
        arm(when, fire)
    require_lead(due, clock())
    return lateness


def figures(lateness: Sequence[float]) -> dict[str, float]:
    """Summarize seconds of lateness; negative ones are of timers that were early, and count as a microsecond."""
    # what is measured is over, and does not have it in memory
    from ..histogram import histogram, milliseconds, record

    found = histogram()
    for late in lateness:
        record(found, late)
    early = 100 * sum(late < 0.0 for late in lateness) / len(lateness)
    return {**{name: value or 0.0 for name, value in milliseconds(found).items()}, "early": early}


def main(measured: Callable[[str, int, float], list[float]]) -> None:
    """Follow the command line above: warm up, measure, and print the figures."""
    variant, count, spread = sys.argv[1:]
    measured(variant, WARM_COUNT, WARM_SPREAD)
    print(json.dumps(figures(measured(variant, int(count), float(spread)))))
