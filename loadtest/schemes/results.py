"""The measured figures by case, queue and size, and their growth."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .growth import Growth, growth
from .operations import BARE_EXTRACT, BARE_NAMES, BARE_START, NAMES
from .subjects import EXTRACT, START, SUBJECTS
from .workloads import WORKLOADS

CASES = (*NAMES, *BARE_NAMES, *WORKLOADS)

# the operation of the paper that a case measures
_OPERATION = {**{name: name for name in NAMES}, BARE_START: START, BARE_EXTRACT: EXTRACT}

Key = tuple[str, str, int]


@dataclass
class Results:
    """Nanoseconds of one operation or step, one value per repetition, by case, queue and number of timers."""

    sizes: tuple[int, ...]
    patience: float
    compiled: bool
    values: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, subject: str, figures: Mapping[str, float]) -> None:
        """Add one repetition, as the measured process printed it: figures by "CASE/SIZE"."""
        for name, value in figures.items():
            case, slash, size = name.rpartition("/")
            if slash:
                self.values.setdefault((case, subject, int(size)), []).append(value)

    def subjects(self, case: str) -> list[str]:
        """Return the queues that were measured in a case."""
        return [name for name in SUBJECTS if any((case, name, n) in self.values for n in self.sizes)]

    def median(self, case: str, subject: str, n: int) -> float | None:
        """Return the median; None if it was not measured."""
        values = self.values.get((case, subject, n))
        return statistics.median(values) if values else None

    def costs(self, case: str, subject: str) -> dict[int, float]:
        """Return the medians by size."""
        found = ((n, self.median(case, subject, n)) for n in self.sizes)
        return {n: median for n, median in found if median is not None}

    def growth(self, case: str, subject: str) -> Growth | None:
        """Fit the growth of the medians; None if there are too few sizes."""
        return growth(self.costs(case, subject))

    def not_measured(self, case: str) -> dict[str, list[int]]:
        """Return the sizes at which a queue was abandoned, for queues that were measured at all."""
        found = {name: [n for n in self.sizes if (case, name, n) not in self.values] for name in self.subjects(case)}
        return {name: sizes for name, sizes in found.items() if sizes}

    def document(self) -> dict[str, Any]:
        """Return all results as a JSON document, which `load` reads."""
        return {
            "timers": "compiled" if self.compiled else "pure Python",
            "patience": self.patience,
            "sizes": list(self.sizes),
            "unit": "ns",
            "cases": [self._case(case) for case in CASES if self.subjects(case)],
        }

    def _case(self, case: str) -> dict[str, Any]:
        return {
            "case": case,
            "not_measured": self.not_measured(case),
            "queues": [self._queue(case, name) for name in self.subjects(case)],
        }

    def _queue(self, case: str, name: str) -> dict[str, Any]:
        grown = self.growth(case, name)
        return {
            "queue": name,
            "theory": theory(case, name),
            "slope": None if grown is None else grown.slope,
            "fits": None if grown is None else grown.order,
            "error": None if grown is None else grown.errors[grown.order],
            "figures": [
                {"timers": n, "median": self.median(case, name, n), "values": self.values[case, name, n]}
                for n in self.sizes
                if (case, name, n) in self.values
            ],
        }


def theory(case: str, subject: str) -> str:
    """Return the order that the literature gives; empty for a workload."""
    operation = _OPERATION.get(case)
    return "" if operation is None else SUBJECTS[subject].theory(operation)


def load(path: Path) -> Results:
    """Read an earlier run. OSError, ValueError or KeyError if there is none."""
    read = json.loads(path.read_text(encoding="utf-8"))
    results = Results(tuple(read["sizes"]), read["patience"], read["timers"] == "compiled")
    for key, values in _figures(read["cases"]):
        results.values[key] = values
    return results


def _figures(cases: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Key, list[float]]]:
    for case in cases:
        for queue in case["queues"]:
            for figure in queue["figures"]:
                yield (case["case"], queue["queue"], figure["timers"]), list(figure["values"])
