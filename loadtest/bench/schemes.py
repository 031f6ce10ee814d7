"""The benchmark `schemes`: each timer queue in each operation and workload, a metric per number of timers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deadlined.timers import COMPILED

from . import builds, processes
from .contest import Benchmark, Contestant, Metric
from .results import Results
from .schemes_operations import OPERATIONS, SUBJECTS, WORKLOADS, Measured


class Schemes(Benchmark):
    """The benchmark `schemes`."""

    asked: Mapping[str, Measured] = {**OPERATIONS, **WORKLOADS}

    def __init__(self, name: str, *, quick: bool = False) -> None:
        super().__init__(name, quick=quick)
        self.title = self.title.format(build="compiled" if COMPILED else "pure Python")
        self.metrics = {**{str(size): Metric("ns", "less") for size in self.stated["sizes"]}, **self.metrics}

    def contestants(self) -> Sequence[Contestant]:
        builds.require_pyperf()
        return [Contestant(name) for name in SUBJECTS]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        settings = (contestant, case, self.stated["patience"], self.stated["values"], *self.stated["sizes"])
        command = [sys.executable, "-m", f"{__package__}.schemes_child", *map(str, settings)]
        return processes.run(command, builds.environment(builds.INSTALLED))

    def plot(self, results: Results, path: Path) -> None:
        """Draw a panel for each case."""
        from .plots import growths  # matplotlib takes a second to import

        costs = {
            case: {name: found for name in SUBJECTS if (found := self._costs(results, name, case))}
            for case in results.cases
        }
        growths(self.title, {case: found for case, found in costs.items() if found}, path)

    def _costs(self, results: Results, contestant: str, case: str) -> dict[int, float]:
        """Return the medians by size."""
        found = ((size, results.spread(contestant, case, str(size))) for size in self.stated["sizes"])
        return {size: spread.median for size, spread in found if spread is not None}
