"""The measured process: one queue, one repetition, all sizes.

    python -m loadtest.schemes.child SUBJECT SEED PATIENCE BUDGET REPEATED SIZE...

The last line of output is one JSON object: nanoseconds by "CASE/SIZE", and "compiled". What is not in it would have
taken longer than PATIENCE seconds, judged by how long the size before it took. Small sizes are repeated for REPEATED
seconds, and the median counts.
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

# at most, however small
ROUNDS = 50

# one measurement of everything that a function measures: nanoseconds by case
Once = Callable[[int], Mapping[str, float]]


def ascend(once: Once, sizes: Sequence[int], patience: float, repeated: float) -> dict[str, float]:
    """From the least size up, as long as `patience` is expected to suffice for one round."""
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
    """Seconds that size `n` will take: it grows from the last size as it did before, or at least with n."""
    if not took:
        return 0.0
    size, last = took[-1]
    power = 1.0
    if len(took) > 1:
        before, earlier = took[-2]
        power = max(1.0, math.log(last / earlier) / math.log(size / before))
    return float(last * (n / size) ** power)


def main(name: str, seed: str, patience: str, budget: str, repeated: str, *sizes: str) -> None:
    """Measure, and print."""
    subject = SUBJECTS[name]
    seconds = float(budget)

    def climb(once: Once) -> dict[str, float]:
        return ascend(once, [int(size) for size in sizes], float(patience), float(repeated))

    # timers and their arguments are millions of objects, which a collection would walk again and again
    gc.disable()
    found = climb(lambda n: all_operations(subject, n, random.Random(f"{seed} {n}"), seconds))
    for case, workload in WORKLOADS.items():

        def step(n: int, case: str = case, workload: Workload = workload) -> dict[str, float]:
            return {case: workload(subject, n, random.Random(f"{seed} {case} {n}"), seconds)}

        found.update(climb(step))
    finish({**found, "compiled": float(COMPILED)})


if __name__ == "__main__":
    main(*sys.argv[1:])
