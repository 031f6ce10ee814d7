"""The benchmark `schemes`: each timer queue in each operation and workload, a metric per number of timers.

A size that would take too long is left out, and the table says so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Final, Self

from deadlined.timers import COMPILED

from ..bench import builds, processes
from ..bench.contest import Benchmark, Contestant, Metric
from ..bench.results import Results
from .operations import OPERATIONS
from .queues import SUBJECTS
from .workloads import WORKLOADS

# fewer show no growth
LEAST_SIZES: Final = 3

CASES: Final = (*OPERATIONS, *WORKLOADS)


class Schemes(Benchmark):
    """The benchmark `schemes`, up to `most` timers.

    `patience`: seconds that one size may take in one start. `values`: runs of a small size in one start at most.
    """

    columns = 6

    def __init__(self, most: int = 1_000_000, patience: float = 15.0, values: int = 20) -> None:
        super().__init__("schemes", CASES)
        self.title = self.title.format(build="compiled" if COMPILED else "pure Python")
        self._sizes = tuple(10**power for power in range(1, 10) if 10**power <= most)
        self.metrics = {str(size): Metric("ns", "less") for size in self._sizes}
        self._patience = patience
        self._values = values

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant(name) for name in SUBJECTS]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        settings = (contestant, case, self._patience, self._values, *self._sizes)
        command = [sys.executable, "-m", f"{__package__}.child", *map(str, settings)]
        return processes.run(command, builds.environment(builds.INSTALLED))

    def remarks(self, results: Results, contestant: str, case: str) -> Mapping[str, str]:
        found = self._costs(results, contestant, case)
        late = [f"{size:,}" for size in self._sizes if found and size not in found]
        return {
            "slope": "-" if len(found) < LEAST_SIZES else f"{slope(found):.2f}",
            f"> {self._patience:g} s": ", ".join(late),
        }

    def plot(self, results: Results, path: Path) -> None:
        """Draw a panel for each case."""
        from ..bench.plots import growths  # matplotlib takes a second to import

        costs = {
            case: {name: found for name in SUBJECTS if (found := self._costs(results, name, case))}
            for case in results.cases
        }
        growths(self.title, {case: found for case, found in costs.items() if found}, path)

    def quick(self) -> Self:
        return type(self)(min(self._sizes[-1], 1000), self._patience, values=1)

    def _costs(self, results: Results, contestant: str, case: str) -> dict[int, float]:
        """Return the medians by size."""
        found = ((size, results.median(contestant, case, str(size))) for size in self._sizes)
        return {size: median for size, median in found if median is not None}


def slope(costs: Mapping[int, float]) -> float:
    """Return the slope of costs by the number of timers where both are logarithmic.

    It is 1 for O(n) and 0 for O(1), and falls from 0.3 to 0.1 for O(log n) between ten timers and a million. A million
    fit no cache, so that an O(1) operation has one of 0.1 as well.
    """
    return linear_regression([math.log(n) for n in costs], [math.log(cost) for cost in costs.values()]).slope


BENCHMARK = Schemes()
