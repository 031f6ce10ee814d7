"""The measured process: one queue in one case, at all sizes.

    python -m loadtest.schemes.child SUBJECT CASE PATIENCE VALUES SIZE...

The last line of output is one JSON object: nanoseconds of a step by size. A size that would take longer than PATIENCE
seconds, judged by the sizes before, is left out. pyperf measures small sizes VALUES times at most, of which the median
is reported, and those from 100,000 timers on once: one value is twice as many steps at most, or those of BUDGET
seconds.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from ..bench.measured import Timings, finish
from .operations import OPERATIONS
from .queues import SUBJECTS
from .workloads import LEAST_STEPS, WORKLOADS

# timers of all values of a size together
ENOUGH = 100_000
# seconds after which a step that can be cut short is
BUDGET = 2.0


def affordable(
    sizes: Sequence[int], most: int, patience: float, clock: Callable[[], float] = time.perf_counter
) -> Iterator[tuple[int, int]]:
    """Yield sizes in ascending order, each with its number of values, `most` at most, while it is expected to take no
    more than `patience` seconds; what a size takes is the time until the next one is asked for."""
    took: list[tuple[int, float]] = []
    for n in sorted(sizes):
        values = max(1, min(most, ENOUGH // n))
        if expected(took, n) * values > patience:
            return
        began = clock()
        yield n, values
        took.append((n, (clock() - began) / values))


def expected(took: Sequence[tuple[int, float]], n: int) -> float:
    """Estimate the seconds for size `n`: growth continues as between the last two sizes, from linear to quadratic."""
    if not took:
        return 0.0
    size, last = took[-1]
    power = 1.0
    if len(took) > 1:
        before, earlier = took[-2]
        power = min(2.0, max(1.0, math.log(last / earlier) / math.log(size / before)))
    return float(last * (n / size) ** power)


def step(turns: Iterator[int], enough: int, budget: float) -> float:
    """Return the mean seconds of a step, of those until there are `enough` or until `budget` seconds have passed.

    What precedes the first turn is preparation. At least one step is measured.
    """
    next(turns)
    done, began = 0, time.perf_counter()
    for steps in turns:
        # not once the generator has ended: that frees a million timers
        ended = time.perf_counter()
        done += steps
        if done and (done >= enough or ended > began + budget):
            break
    return (ended - began) / done


def value_of(name: str, case: str, n: int) -> Callable[[int], float]:
    """Return the function that pyperf calls for each value: seconds of a step with `n` timers."""
    chance = random.Random(f"{case} {n}")
    measured, subject = {**OPERATIONS, **WORKLOADS}[case], SUBJECTS[name]
    return lambda _: step(measured(subject, n, chance), max(LEAST_STEPS, 2 * n), BUDGET)


def main(name: str, case: str, patience: str, most: str, *sizes: str) -> None:
    """Measure, print the figures and exit."""
    # a garbage collection would walk millions of timers and arguments again and again
    gc.disable()
    timings = Timings(loops=1, values=1)
    for n, values in affordable([int(size) for size in sizes], int(most), float(patience)):
        gc.collect()
        timings.function(str(n), value_of(name, case, n), values=values)
    finish(timings.figures)


if __name__ == "__main__":
    main(*sys.argv[1:])
