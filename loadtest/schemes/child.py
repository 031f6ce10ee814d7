"""The measured process: one queue in one case, at all sizes.

    python -m loadtest.schemes.child SUBJECT CASE PATIENCE BUDGET VALUES SIZE...

The last line of output is one JSON object: nanoseconds of a step by size. A size that would take longer than PATIENCE
seconds, judged by the sizes before, is left out. pyperf measures small sizes VALUES times at most, of which the median
is reported, and those from 100,000 timers on once: one value is as many steps.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..bench.measured import Timings, finish
from .operations import OPERATIONS, Measure
from .subjects import SUBJECTS, Subject
from .workloads import WORKLOADS

# timers of all values of a size together
ENOUGH = 100_000


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
    """Estimate the seconds for size `n`: growth continues as between the last two sizes, and is at least linear."""
    if not took:
        return 0.0
    size, last = took[-1]
    power = 1.0
    if len(took) > 1:
        before, earlier = took[-2]
        power = max(1.0, math.log(last / earlier) / math.log(size / before))
    return float(last * (n / size) ** power)


def main(name: str, case: str, patience: str, budget: str, most: str, *sizes: str) -> None:
    """Measure, print the figures and exit."""
    measure = {**OPERATIONS, **WORKLOADS}[case]
    # a garbage collection would walk millions of timers and arguments again and again
    gc.disable()
    timings = Timings(loops=1, values=1)
    for n, values in affordable([int(size) for size in sizes], int(most), float(patience)):
        gc.collect()
        step = partial(_step, measure, SUBJECTS[name], n, random.Random(f"{case} {n}"), float(budget))
        timings.function(str(n), step, values=values)
    finish(timings.figures)


def _step(measure: Measure, subject: Subject, n: int, chance: random.Random, budget: float, _: int) -> float:
    """Return the seconds of a step, as pyperf asks for them."""
    return measure(subject, n, chance, budget)


if __name__ == "__main__":
    main(*sys.argv[1:])
