"""The results of a benchmark: the one type in which every figure is kept, until it is a table, a picture or JSON.

A peer that is missing or failed is easily forgotten if it is left out of the table. So whatever is not measured is
listed with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .contest import Contestant, Metric, Target, Verdict
from .spread import Spread


@dataclass
class Results:
    """The figures of one benchmark: one value per repetition for each contestant, case and metric.

    `failures`: the output of a contestant that failed in a case; `invalid`: why its figures in a case do not count
    (validity.py). Names keep the order in which the benchmark gives them.
    """

    contestants: Sequence[Contestant]
    cases: Sequence[str]
    metrics: Mapping[str, Metric]
    skips: dict[tuple[str, str], str] = field(default_factory=dict)
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    invalid: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, contestant: str, case: str, figures: Mapping[str, float]) -> None:
        """Add one repetition. KeyError for a metric that the benchmark does not declare."""
        for metric, value in figures.items():
            if metric not in self.metrics:
                raise KeyError(f"{contestant} measured {metric!r}, which is none of {', '.join(self.metrics)}")
            self.values.setdefault((contestant, case, metric), []).append(value)

    def spread(self, contestant: str, case: str, metric: str) -> Spread | None:
        """Return the median and its interval; None if it was not measured."""
        values = self.values.get((contestant, case, metric))
        return Spread.of(values) if values else None

    def median(self, contestant: str, case: str, metric: str) -> float | None:
        """Return the median; None if it was not measured."""
        spread = self.spread(contestant, case, metric)
        return None if spread is None else spread.median

    def ratio(self, case: str, metric: str, ours: str, theirs: str) -> Spread | None:
        """Divide the median of `ours` by that of `theirs`; None if either is missing or theirs is not positive."""
        values = [self.values.get((name, case, metric), []) for name in (ours, theirs)]
        return Spread.of_ratio(values[0], values[1])

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
        sides = (target.ours, target.theirs) if target.theirs else (target.ours,)
        invalid = "; ".join(self.invalid[name, target.case] for name in sides if (name, target.case) in self.invalid)
        if target.theirs:
            return Verdict(target, self.ratio(target.case, target.metric, target.ours, target.theirs), invalid)
        return Verdict(target, self.spread(target.ours, target.case, target.metric), invalid)
