"""The measured process of the benchmark `schemes`: one queue in one case, at all sizes.

    python -m loadtest.bench.schemes_child SUBJECT CASE PATIENCE VALUES SIZE...

The last line of output is one JSON object: nanoseconds of a step by size, their "slope", and how many sizes were "left
out", because they would take longer than PATIENCE seconds, judged by the sizes before. pyperf measures small sizes
VALUES times at most, of which the median is reported, and those from 100,000 timers on once: one value is twice as many
steps at most, or those of BUDGET seconds.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import linear_regression

from .measured import Timings, finish
from .schemes_operations import LEAST_STEPS, OPERATIONS, SUBJECTS, WORKLOADS

# timers of all values of a size together
ENOUGH = 100_000
# seconds after which a step that can be cut short is
BUDGET = 2.0
# fewer show no growth
LEAST_SIZES = 3


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


def slope(costs: Mapping[int, float]) -> float:
    """Return the slope of costs by the number of timers where both are logarithmic.

    It is 1 for O(n) and 0 for O(1), and falls from 0.3 to 0.1 for O(log n) between ten timers and a million. A million
    fit no cache, so that an O(1) operation has one of 0.1 as well.
    """
    return linear_regression([math.log(n) for n in costs], [math.log(cost) for cost in costs.values()]).slope


def main(name: str, case: str, patience: str, most: str, *sizes: str) -> None:
    # a garbage collection would walk millions of timers and arguments again and again
    gc.disable()
    timings = Timings(loops=1, values=1)
    for n, values in affordable([int(size) for size in sizes], int(most), float(patience)):
        gc.collect()
        timings.function(str(n), value_of(name, case, n), values=values)
    costs = {int(size): cost for size, cost in timings.figures.items()}
    grown = {"slope": slope(costs)} if len(costs) >= LEAST_SIZES else {}
    finish({**timings.figures, **grown, "left out": len(sizes) - len(costs)})


if __name__ == "__main__":
    main(*sys.argv[1:])
