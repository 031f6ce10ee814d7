"""The benchmark `schemes`: each timer queue in each operation and workload, a metric per number of timers.

A process measures one queue in all cases, at all sizes; a size that would take longer than `patience` seconds is left
out, and the table says so.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from deadlined.timers import COMPILED

from ..bench import builds, processes
from ..bench.contest import Benchmark, Contestant, Metric
from ..bench.results import Results
from .growth import Growth, growth
from .operations import BARE_EXTRACT, BARE_NAMES, BARE_START, NAMES
from .subjects import EXTRACT, START, SUBJECTS
from .workloads import WORKLOADS

MOST: Final = 1_000_000
QUICK_MOST: Final = 1000
# seconds that one size may take in one repetition, and seconds after which an operation that can be cut short is
PATIENCE: Final = 15.0
BUDGET: Final = 2.0
# seconds for which the small sizes are repeated within one repetition
REPEATED: Final = 0.1
QUICK_BUDGET: Final = 0.02

CASES: Final = (*NAMES, *BARE_NAMES, *WORKLOADS)

# the operation of the paper that a case measures
_OPERATION: Final = {**{name: name for name in NAMES}, BARE_START: START, BARE_EXTRACT: EXTRACT}


class Schemes(Benchmark):
    """The benchmark `schemes`, up to `most` timers."""

    name = "schemes"
    title = f"Timer queues (timers {'compiled' if COMPILED else 'pure Python'}): ns each, by the number of timers"
    repetitions = 3
    columns = 6

    def __init__(
        self, most: int = MOST, patience: float = PATIENCE, budget: float = BUDGET, repeated: float = REPEATED
    ) -> None:
        self.sizes = tuple(10**power for power in range(1, 10) if 10**power <= most)
        self.metrics = {str(size): Metric("ns", "less") for size in self.sizes}
        self._most = most
        self._patience = patience
        self._budget = budget
        self._repeated = repeated
        # how often a queue was measured, and its figures of cases whose turn has not come
        self._runs: Counter[str] = Counter()
        self._waiting: dict[tuple[str, str], list[dict[str, float]]] = {}

    @property
    def file(self) -> str:
        return self.name

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant(name) for name in SUBJECTS]

    def cases(self) -> Sequence[str]:
        return CASES

    def skips(self, contestant: str, case: str) -> str | None:
        return "there is no scheme alone" if case in BARE_NAMES and not SUBJECTS[contestant].scheme else None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if not self._waiting.get((contestant, case)):
            self._measure_all(contestant)
        return self._waiting[contestant, case].pop(0)

    def _measure_all(self, contestant: str) -> None:
        self._runs[contestant] += 1
        settings = (contestant, self._runs[contestant], self._patience, self._budget, self._repeated, *self.sizes)
        command = [sys.executable, "-m", f"{__package__}.child", *map(str, settings)]
        found = processes.run(command, builds.environment(builds.INSTALLED))
        for case in CASES:
            figures = {size: found[f"{case}/{size}"] for size in self.metrics if f"{case}/{size}" in found}
            self._waiting.setdefault((contestant, case), []).append(figures)

    def remarks(self, results: Results, contestant: str, case: str) -> Mapping[str, str]:
        grown = _growth(results, contestant, case)
        found = self._costs(results, contestant, case)
        late = [f"{size:,}" for size in self.sizes if found and size not in found]
        return {
            "slope": "-" if grown is None else f"{grown.slope:.2f}",
            "fits": "-" if grown is None else grown.label,
            "theory": theory(case, contestant) or "-",
            f"> {self._patience:g} s": ", ".join(late),
        }

    def more(self, results: Results) -> Mapping[str, object]:
        return {"timers": "compiled" if COMPILED else "pure Python", "patience": self._patience, "sizes": self.sizes,
                "growth": [_described(results, name, case) for case in results.cases for name in SUBJECTS
                           if self._costs(results, name, case)]}  # fmt: skip

    def plot(self, results: Results, path: Path) -> None:
        """Draw one small picture per case, schemes-START.png and so on."""
        from ..bench.plots import growths  # matplotlib takes a second to import

        built = "compiled" if COMPILED else "pure Python"
        for case in results.cases:
            costs = {name: self._costs(results, name, case) for name in SUBJECTS}
            if any(costs.values()):
                growths(f"{case} (timers {built})", costs, path.with_name(picture(case)))

    def quick(self) -> Self:
        return type(self)(min(self._most, QUICK_MOST), self._patience, QUICK_BUDGET, 0.0)

    @staticmethod
    def _costs(results: Results, contestant: str, case: str) -> dict[int, float]:
        """Return the medians by size."""
        found = ((int(size), results.median(contestant, case, size)) for size in results.metrics)
        return {size: median for size, median in found if median is not None}


def _growth(results: Results, contestant: str, case: str) -> Growth | None:
    return growth(Schemes._costs(results, contestant, case))


def _described(results: Results, contestant: str, case: str) -> dict[str, object]:
    grown = _growth(results, contestant, case)
    return {
        "case": case,
        "queue": contestant,
        "theory": theory(case, contestant),
        "slope": None if grown is None else grown.slope,
        "fits": None if grown is None else grown.order,
        "error": None if grown is None else grown.errors[grown.order],
    }


def theory(case: str, subject: str) -> str:
    """Return the order that the literature gives; empty for a workload."""
    operation = _OPERATION.get(case)
    return "" if operation is None else SUBJECTS[subject].theory(operation)


def picture(case: str) -> str:
    """Return the picture's name: "START, scheme alone" is schemes-start-scheme-alone.png."""
    return f"schemes-{case.lower().replace(',', '').replace(' ', '-')}.png"
