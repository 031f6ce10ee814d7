"""The parts of a benchmark: metrics, contestants and targets.

A target is stated before the run. Figures that are missing or invalid do not reach it, nor do those of a contestant
that has failed in one of its starts.
"""

from __future__ import annotations

import itertools
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from .spread import Spread, number

if TYPE_CHECKING:
    from .results import Results

# the names of this project's contestants begin with this
OURS = "deadlined"


def table(name: str) -> dict[str, Any]:
    """Return what a file of TOML in this folder lists."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


# the benchmarks by their names; the file says what their entries are
STATED: Mapping[str, Mapping[str, Any]] = table("benchmarks.toml")


@dataclass(frozen=True)
class Metric:
    """A measured quantity: its unit and which direction is better. None is context: shown, never compared."""

    unit: str
    better: Literal["less", "more"] | None = None


@dataclass(frozen=True)
class Contestant:
    """A program that is measured. `missing`: why that is not possible here, and what would help."""

    name: str
    missing: str | None = None


@dataclass(frozen=True)
class Target:
    """A bound for the ratio of `ours` to `theirs`, or for the value of `ours` if `theirs` is empty.

    `at_most = 0` must hold in every start, so the largest value is judged; other bounds are judged by the median.
    `always`: it does not depend on sizes, so that a quick run is judged by it, too.
    """

    case: str
    metric: str
    ours: str
    theirs: str
    at_least: float | None = None
    at_most: float | None = None
    always: bool = False

    @property
    def wanted(self) -> str:
        """The bounds as text: "≥ 2", "≤ 0.5"."""
        bounds = {"≥": self.at_least, "≤": self.at_most}
        return ", ".join(f"{side} {number(bound)}" for side, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Verdict:
    """The result of a target. `judged`: the value that is compared with the bounds, None if it was not measured.
    `found`: the spread of which that is the median; None if it is the largest value, or if it was not measured.
    `invalid`: why what was measured does not count, or ""."""

    target: Target
    judged: float | None
    found: Spread | None
    invalid: str = ""

    @property
    def reached(self) -> bool | None:
        """True if `judged` is within the bounds; None without a valid figure."""
        if self.judged is None or self.invalid:
            return None
        low, high = self.target.at_least, self.target.at_most
        return (low is None or self.judged >= low) and (high is None or self.judged <= high)

    @property
    def label(self) -> str:
        """The result as tables show it."""
        return "invalid" if self.invalid else {True: "reached", False: "missed", None: "not measured"}[self.reached]

    @property
    def shown(self) -> str:
        """What is judged, as tables show it: with its interval if it is a median; "-" if it was not measured."""
        return "-" if self.judged is None else str(self.found or number(self.judged))


class ContestantError(Exception):
    """A contestant failed although it is installed; the text is its output."""


class Benchmark(ABC):
    """A measurement of several contestants in several cases, as benchmarks.toml states it. An abstract base class.

    This project's contestants come first, and their names begin with "deadlined"; the others are compared with the
    first of them that was measured.
    """

    name: str
    title: str
    metrics: Mapping[str, Metric]
    targets: Sequence[Target] = ()
    # starts of each measurement at least, unless the command line says otherwise; at most twice as many (runner.py)
    repetitions: int = 5
    bare: Mapping[str, str] = {}
    # what is asked in each case, where its table does not list them
    asked: Mapping[str, Any] = {}

    def __init__(self, name: str, *, quick: bool = False) -> None:
        self.name = name
        self.stated = stated = {**STATED[name], **(STATED[name]["quick"] if quick else {})}
        self.title = stated["title"]
        self.metrics = {metric: Metric(*kind) for metric, kind in stated["metrics"].items()}
        self.targets = [one for one in _targets(stated.get("targets", ())) if one.case in self.cases()]
        self.repetitions = stated.get("repetitions", self.repetitions)
        self.bare = stated.get("bare", self.bare)

    @abstractmethod
    def contestants(self) -> Sequence[Contestant]:
        """Return all contestants, including missing ones. ToolMissingError if a tool for all of them is missing."""

    def cases(self) -> Sequence[str]:
        """Return the cases in which each contestant is measured."""
        return list(self.stated.get("cases", self.asked))

    def skips(self, contestant: str, case: str) -> str | None:
        """Say why this contestant is not measured in this case; None if it is."""
        return None

    def saturates(self, case: str) -> bool:
        """Tell if the server, and not its client, must be what limits the rates of this case."""
        return True

    @abstractmethod
    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        """Measure one repetition in a fresh process, and return this contestant's metrics (it need not have all).

        ContestantError with the contestant's output if it fails.
        """

    def plot(self, results: Results, path: Path) -> None:
        """Draw the results as grouped bars, one panel per metric, with the spread. May be overridden."""
        from .plots import bars  # matplotlib takes a second to import

        bars(self.title, results, path)

    def quick(self) -> Self:
        """Return a variant that takes seconds, for tests: the same contestants, meaningless figures."""
        return type(self)(self.name, quick=True)


def _targets(stated: Sequence[Mapping[str, Any]]) -> Iterator[Target]:
    """Yield the targets of each entry: one for each of its cases, metrics, and contestants."""
    for entry in stated:
        sides = (entry["cases"], entry["metrics"], entry["ours"], entry.get("theirs", [""]))
        bounds = {name: entry[name] for name in ("at_least", "at_most", "always") if name in entry}
        yield from (Target(*names, **bounds) for names in itertools.product(*sides))
