"""The measured process: one queue, all cases, all sizes.

    python -m loadtest.schemes.child SUBJECT SEED PATIENCE BUDGET REPEATED SIZE...

The last line of output is one JSON object: nanoseconds by
"CASE/SIZE". A size that would take longer
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
from functools import partial

from ..bench.measured import finish
from .operations import bare, operations
from .subjects import SUBJECTS, Subject
from .workloads import WORKLOADS

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

    def chance(case: str, n: int) -> random.Random:
        return random.Random(f"{seed} {case} {n}")

    measures: list[Once] = [lambda n: operations(subject, n, chance("", n), seconds)]
    if subject.scheme:
        measures.append(lambda n: bare(subject.scheme, n, chance("alone", n), seconds))
    measures += [partial(_step, subject, case, seed, seconds) for case in WORKLOADS]
    # a garbage collection would walk millions of timers and arguments again and again
    gc.disable()
    found: dict[str, float] = {}
    for once in measures:
        found |= ascend(once, [int(size) for size in sizes], float(patience), float(repeated))
    finish(found)


def _step(subject: Subject, case: str, seed: str, seconds: float, n: int) -> dict[str, float]:
    return {case: WORKLOADS[case](subject, n, random.Random(f"{seed} {case} {n}"), seconds)}


if __name__ == "__main__":
    main(*sys.argv[1:])
