"""The parts of a benchmark: metrics, contestants, targets and results.

A peer that is missing or failed is easily forgotten if it is left out of the table. So whatever is not measured is
listed with a reason. A target is stated before the run, and one that was not measured never counts as reached.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

# the names of this project's contestants begin with this
OURS = "deadlined"


@dataclass(frozen=True)
class Metric:
    """A measured quantity: its unit and which direction is better. None is context: shown, never compared."""

    unit: str
    better: Literal["less", "more"] | None


@dataclass(frozen=True)
class Contestant:
    """A program that is measured.

    `missing`: why that is not possible here, and what would help. `given`: named by --python, and so measured whatever
    --only-contestant says.
    """

    name: str
    missing: str | None = None
    given: bool = False

    @property
    def ours(self) -> bool:
        """True for this project's contestants, with which the others are compared."""
        return self.name.startswith(OURS)


@dataclass(frozen=True)
class Target:
    """A bound for the ratio of `ours` to `theirs`, or for the value of `ours` if `theirs` is empty."""

    case: str
    metric: str
    ours: str
    theirs: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        """True if a ratio or value is within the bounds."""
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)

    @property
    def wanted(self) -> str:
        """The bounds as text: "at least 2", "at most 0.5"."""
        bounds = {"at least": self.at_least, "at most": self.at_most}
        return ", ".join(f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Verdict:
    """The result of a target. `value` is None if it was not measured."""

    target: Target
    value: float | None

    @property
    def reached(self) -> bool | None:
        """True or False; None if it was not measured."""
        return None if self.value is None else self.target.holds(self.value)

    @property
    def label(self) -> str:
        """The result as tables show it."""
        return {True: "reached", False: "NOT REACHED", None: "not measured"}[self.reached]


@dataclass(frozen=True)
class Spread:
    """Median, least and most of the repetitions of a figure."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarize values. ValueError if there are none."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Results:
    """The figures of one benchmark: one value per repetition for each contestant, case and metric.

    `failures`: the output of a contestant that failed in a case. Names keep the order in which the benchmark gives
    them.
    """

    contestants: Sequence[Contestant]
    cases: Sequence[str]
    metrics: Mapping[str, Metric]
    skips: dict[tuple[str, str], str] = field(default_factory=dict)
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, contestant: str, case: str, figures: Mapping[str, float]) -> None:
        """Add one repetition. KeyError for a metric that the benchmark does not declare."""
        for metric, value in figures.items():
            if metric not in self.metrics:
                raise KeyError(f"{contestant} measured {metric!r}, which is none of {', '.join(self.metrics)}")
            self.values.setdefault((contestant, case, metric), []).append(value)

    def spread(self, contestant: str, case: str, metric: str) -> Spread | None:
        """Return median, least and most; None if it was not measured."""
        values = self.values.get((contestant, case, metric))
        return Spread.of(values) if values else None

    def median(self, contestant: str, case: str, metric: str) -> float | None:
        """Return the median; None if it was not measured."""
        spread = self.spread(contestant, case, metric)
        return None if spread is None else spread.median

    def ratio(self, case: str, metric: str, ours: str, theirs: str) -> float | None:
        """Divide the median of `ours` by that of `theirs`; None if either is missing or theirs is 0."""
        above, below = self.median(ours, case, metric), self.median(theirs, case, metric)
        return None if above is None or not below else above / below

    def base(self, case: str, metric: str) -> str | None:
        """Return the contestant with which the others are compared: the first of ours that was measured."""
        for contestant in self.contestants:
            if contestant.ours and (contestant.name, case, metric) in self.values:
                return contestant.name
        return None

    @property
    def repetitions(self) -> str:
        """The number of repetitions as text: "5", or "5 to 20" if it differs between figures."""
        counts = sorted({len(values) for values in self.values.values()}) or [0]
        return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))

    def metrics_of(self, case: str) -> list[str]:
        """Return the metrics that were measured in this case by any contestant."""
        return [
            metric
            for metric in self.metrics
            if any((contestant.name, case, metric) in self.values for contestant in self.contestants)
        ]

    def why_not(self, contestant: Contestant, case: str) -> str | None:
        """Say why there are no figures: "missing: ...", "not measured: ...", "failed"; None if there are some."""
        if contestant.missing is not None:
            return f"missing: {contestant.missing}"
        if (contestant.name, case) in self.skips:
            return f"not measured: {self.skips[contestant.name, case]}"
        if (contestant.name, case) in self.failures:
            return "failed"
        return None

    def verdict(self, target: Target) -> Verdict:
        """Judge a target."""
        if target.theirs:
            return Verdict(target, self.ratio(target.case, target.metric, target.ours, target.theirs))
        return Verdict(target, self.median(target.ours, target.case, target.metric))


class ContestantError(Exception):
    """A contestant failed although it is installed; the text is its output."""


class Benchmark(ABC):
    """A measurement of several contestants in several cases. An abstract base class.

    Module `loadtest/bench/NAME.py` offers an instance as `BENCHMARK`. This project's contestants come first, and their
    names begin with "deadlined"; the others are compared with the first of them that was measured.
    """

    name: str
    title: str
    metrics: Mapping[str, Metric]
    targets: Sequence[Target] = ()
    # of each measurement, unless the command line says otherwise
    repetitions: int = 5

    @abstractmethod
    def contestants(self) -> Sequence[Contestant]:
        """Return all contestants, including missing ones. ToolMissingError if a tool for all of them is missing."""

    @abstractmethod
    def cases(self) -> Sequence[str]:
        """Return the cases in which each contestant is measured."""

    def skips(self, contestant: str, case: str) -> str | None:
        """Say why this contestant is not measured in this case; None if it is."""
        return None

    @abstractmethod
    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        """Measure one repetition in a fresh process, and return this contestant's metrics (it need not have all).

        ContestantError with the contestant's output if it fails.
        """

    def beside(self, pythons: Sequence[str]) -> Self:
        """Return a variant that measures the deadlined of these environments as well; each is a path of a Python.

        ValueError if this benchmark cannot, or if a path is no Python that has deadlined.
        """
        raise ValueError(f"{self.name} measures no other environments")

    def plot(self, results: Results, path: Path) -> None:
        """Draw the results as grouped bars, one panel per metric, with the spread. May be overridden."""
        from .plots import bars  # matplotlib takes a second to import

        bars(self.title, results, path)

    def quick(self) -> Self:
        """Return a variant that takes seconds, for tests: the same contestants, meaningless figures."""
        return self
