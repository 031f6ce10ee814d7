"""The benchmark `schemes`: each timer queue in each operation and workload, a metric per number of timers.

A size that would take too long is left out. Two further metrics are how many were, and the slope of the costs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from deadlined.timers import COMPILED

from ..bench import builds, processes
from ..bench.contest import Benchmark, Contestant, Metric
from ..bench.results import Results
from .operations import OPERATIONS, SUBJECTS, WORKLOADS

CASES: Final = (*OPERATIONS, *WORKLOADS)


class Schemes(Benchmark):
    """The benchmark `schemes`, up to `most` timers.

    `patience`: seconds that one size may take in one start. `values`: runs of a small size in one start at most.
    """

    def __init__(self, most: int = 1_000_000, patience: float = 15.0, values: int = 20) -> None:
        super().__init__("schemes", CASES)
        self.title = self.title.format(build="compiled" if COMPILED else "pure Python")
        self._sizes = tuple(10**power for power in range(1, 10) if 10**power <= most)
        self.metrics = {**{str(size): Metric("ns", "less") for size in self._sizes}, **self.metrics}
        self._patience = patience
        self._values = values

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant(name) for name in SUBJECTS]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        settings = (contestant, case, self._patience, self._values, *self._sizes)
        command = [sys.executable, "-m", f"{__package__}.child", *map(str, settings)]
        return processes.run(command, builds.environment(builds.INSTALLED))

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


BENCHMARKS: Final = {"schemes": Schemes()}
