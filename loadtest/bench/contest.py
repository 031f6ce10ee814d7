"""What every benchmark is made of: metrics, contestants, targets, and the figures that they came to.

Facts      A figure of one machine and one minute is of little worth; a ratio of two from the same run says something.
Hazard     A peer that is not installed, or one that failed, is easily left out of the table, and then nobody asks.
Answer     What is not measured has a name and a reason, everywhere. A target is stated before the run, and what was
           not measured is never counted as reached.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

# how the names of this project's own contestants begin
OURS = "deadlined"


@dataclass(frozen=True)
class Metric:
    """What is measured: its unit, and which way is better. None is context: shown, never compared."""

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
        """Whether it is this project's, to which the others are compared."""
        return self.name.startswith(OURS)


@dataclass(frozen=True)
class Target:
    """A ratio that must hold: `ours` divided by `theirs`, or the value of `ours` itself where `theirs` is empty."""

    case: str
    metric: str
    ours: str
    theirs: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a ratio, or a value, is as wanted."""
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)

    @property
    def wanted(self) -> str:
        """In words: "at least 2", "at most 0.5"."""
        bounds = {"at least": self.at_least, "at most": self.at_most}
        return ", ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Verdict:
    """What became of a target. `value` is None where it could not be measured."""

    target: Target
    value: float | None

    @property
    def reached(self) -> bool | None:
        """None: not measured."""
        return None if self.value is None else self.target.holds(self.value)

    @property
    def word(self) -> str:
        """For a table."""
        return {True: "reached", False: "NOT REACHED", None: "not measured"}[self.reached]


@dataclass(frozen=True)
class Spread:
    """Of one figure's repetitions."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """ValueError if there are none."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Results:
    """The figures of one benchmark: one value per repetition for each contestant, case and metric.

    `failures`: the output of a contestant that failed in a case. Names keep the order in which the benchmark gives
    them, whatever the order of measuring was.
    """

    contestants: Sequence[Contestant]
    cases: Sequence[str]
    metrics: Mapping[str, Metric]
    skips: dict[tuple[str, str], str] = field(default_factory=dict)
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, contestant: str, case: str, figures: Mapping[str, float]) -> None:
        """One repetition. KeyError for a metric that the benchmark does not declare."""
        for metric, value in figures.items():
            if metric not in self.metrics:
                raise KeyError(f"{contestant} measured {metric!r}, which is none of {', '.join(self.metrics)}")
            self.values.setdefault((contestant, case, metric), []).append(value)

    def spread(self, contestant: str, case: str, metric: str) -> Spread | None:
        """Median, least and most; None if it was not measured."""
        values = self.values.get((contestant, case, metric))
        return Spread.of(values) if values else None

    def median(self, contestant: str, case: str, metric: str) -> float | None:
        """None if it was not measured."""
        spread = self.spread(contestant, case, metric)
        return None if spread is None else spread.median

    def ratio(self, case: str, metric: str, ours: str, theirs: str) -> float | None:
        """The median of `ours` divided by the one of `theirs`; None if either is missing, or theirs is 0."""
        above, below = self.median(ours, case, metric), self.median(theirs, case, metric)
        return None if above is None or not below else above / below

    def base(self, case: str, metric: str) -> str | None:
        """To whom the others are compared: the first of ours that was measured here."""
        for contestant in self.contestants:
            if contestant.ours and (contestant.name, case, metric) in self.values:
                return contestant.name
        return None

    @property
    def repetitions(self) -> str:
        """How many there are of each figure: "5", or "5 to 20"."""
        counts = sorted({len(values) for values in self.values.values()}) or [0]
        return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))

    def metrics_of(self, case: str) -> list[str]:
        """The metrics that anybody measured in this case."""
        return [
            metric
            for metric in self.metrics
            if any((contestant.name, case, metric) in self.values for contestant in self.contestants)
        ]

    def why_not(self, contestant: Contestant, case: str) -> str | None:
        """Why there are no figures: "missing: ...", "not measured: ...", "failed"; None if there are some."""
        if contestant.missing is not None:
            return f"missing: {contestant.missing}"
        if (contestant.name, case) in self.skips:
            return f"not measured: {self.skips[contestant.name, case]}"
        if (contestant.name, case) in self.failures:
            return "failed"
        return None

    def verdict(self, target: Target) -> Verdict:
        """What became of a target."""
        if target.theirs:
            return Verdict(target, self.ratio(target.case, target.metric, target.ours, target.theirs))
        return Verdict(target, self.median(target.ours, target.case, target.metric))


class ContestantError(Exception):
    """A contestant could not be measured although it is there; the text is its output."""


class Benchmark(ABC):
    """One question, asked of several contestants in several cases.

    A module `loadtest/bench/NAME.py` offers one as `BENCHMARK`. Contestants of this project come first, and their
    names begin with "deadlined"; the others are compared with the first of them that is there.
    """

    name: str
    title: str
    metrics: Mapping[str, Metric]
    targets: Sequence[Target] = ()
    # of each measurement, unless the command line says otherwise
    repetitions: int = 5

    @abstractmethod
    def contestants(self) -> Sequence[Contestant]:
        """All, also those that are missing. ToolMissingError if nothing at all can be measured without a program."""

    @abstractmethod
    def cases(self) -> Sequence[str]:
        """What each contestant is measured in."""

    def skips(self, contestant: str, case: str) -> str | None:
        """Why this contestant is not measured in this case; None: it is."""
        return None

    @abstractmethod
    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        """One repetition, in a process of its own; the metrics that this contestant has (not all need have all).

        ContestantError with its output if it fails.
        """

    def beside(self, pythons: Sequence[str]) -> Self:
        """Return a variant that measures the deadlined of these environments as well; each is a path of a Python.

        ValueError if this benchmark cannot, or if a path is no Python that has deadlined.
        """
        raise ValueError(f"{self.name} measures no other environments")

    def plot(self, results: Results, path: Path) -> None:
        """A picture: grouped bars, one panel per metric, with the spread. May be overridden."""
        from .plots import bars  # matplotlib takes a second to import

        bars(self.title, results, path)

    def quick(self) -> Self:
        """A variant that takes seconds, for tests: the same contestants, small figures that mean nothing."""
        return self
