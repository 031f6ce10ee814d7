"""The measured process: one queue, one repetition, all sizes.

    python -m loadtest.schemes.child SUBJECT SEED PATIENCE BUDGET REPEATED SIZE...

The last line of output is one JSON object: nanoseconds by "CASE/SIZE", and "compiled". A size that would take longer
than PATIENCE seconds, judged by the size before, is left out. Small sizes are repeated for REPEATED seconds, of which
the median is reported.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from deadlined.timers import COMPILED

from ..bench.measured import finish
from .operations import all_operations
from .subjects import SUBJECTS
from .workloads import WORKLOADS, Workload

# the most rounds, also of the smallest sizes
ROUNDS = 50

# measures one round for a number of timers: nanoseconds by case
Once = Callable[[int], Mapping[str, float]]


def ascend(once: Once, sizes: Sequence[int], patience: float, repeated: float) -> dict[str, float]:
    """Measure sizes in ascending order, while a round is expected to take at most `patience` seconds."""
    found: dict[str, float] = {}
    took: list[tuple[int, float]] = []
    for n in sorted(sizes):
        if expected(took, n) > patience:
            break
        gc.collect()
        rounds: list[Mapping[str, float]] = []
        began = time.perf_counter()
        while not rounds or (time.perf_counter() - began < repeated and len(rounds) < ROUNDS):
            rounds.append(once(n))
        took.append((n, (time.perf_counter() - began) / len(rounds)))
        for case in rounds[0]:
            found[f"{case}/{n}"] = statistics.median(figures[case] for figures in rounds)
    return found


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


def main(name: str, seed: str, patience: str, budget: str, repeated: str, *sizes: str) -> None:
    """Measure, print the figures and exit."""
    subject = SUBJECTS[name]
    seconds = float(budget)

    def climb(once: Once) -> dict[str, float]:
        return ascend(once, [int(size) for size in sizes], float(patience), float(repeated))

    # a garbage collection would walk millions of timers and arguments again and again
    gc.disable()
    found = climb(lambda n: all_operations(subject, n, random.Random(f"{seed} {n}"), seconds))
    for case, workload in WORKLOADS.items():

        def step(n: int, case: str = case, workload: Workload = workload) -> dict[str, float]:
            return {case: workload(subject, n, random.Random(f"{seed} {case} {n}"), seconds)}

        found.update(climb(step))
    finish({**found, "compiled": float(COMPILED)})


if __name__ == "__main__":
    main(*sys.argv[1:])
