"""The results of a benchmark: the one type in which every figure is kept, until it is a table, a picture or JSON.

Facts      A peer that is missing or failed is easily forgotten if it is left out of the table. A server that waits for
           its client shows the client's rate. A deadline costs something, or nothing.
Hazard     The last two give a figure like any other.
Answer     Whatever is not measured is listed with a reason, and so are figures that do not count. Where the server must
           be the bottleneck, one that used less than BUSY per cent of its core is invalid. So are two figures of one
           server of which that with deadlines is the better one, beyond the interval of their ratio.
Cost       Deadlines that cost nothing are found faster by chance, in one of forty pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from .contest import OURS, Benchmark, Contestant, Metric, Target, Verdict
from .spread import Spread

Pair = tuple[str, str]

# per cent of a core
BUSY = 85.0
# what a server with deadlines may seem to be better by; two starts differ by as much
SAME = 0.01


@dataclass
class Results:
    """The figures of one benchmark: one value per repetition for each contestant, case and metric.

    `skips`: why a contestant was not measured in a case; `failures`: the output of one that failed; `invalid`: why its
    figures do not count. `targets` are those that the figures are judged by. Names keep the order in
    which the benchmark gives them.
    """

    contestants: Sequence[Contestant]
    cases: Sequence[str]
    metrics: Mapping[str, Metric]
    skips: dict[Pair, str] = field(default_factory=dict)
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: dict[Pair, str] = field(default_factory=dict)
    invalid: dict[Pair, str] = field(default_factory=dict)
    targets: Sequence[Target] = ()

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """Return the results that `written` was made of."""
        return cls(
            [Contestant(one["name"], one["missing"]) for one in written["contestants"]],
            written["cases"],
            {name: Metric(**metric) for name, metric in written["metrics"].items()},
            skips=_by_pair(written["not_measured"], "why"),
            values={(one["contestant"], one["case"], one["metric"]): one["values"] for one in written["figures"]},
            failures=_by_pair(written["failures"], "output"),
            invalid=_by_pair(written["invalid"], "why"),
            targets=[Target(*(one[part.name] for part in fields(Target))) for one in written["targets"]],
        )

    def written(self) -> dict[str, Any]:
        """Return everything for a file of JSON."""
        return {
            "repetitions": self.repetitions,
            "cases": list(self.cases),
            "metrics": {name: asdict(metric) for name, metric in self.metrics.items()},
            "contestants": [asdict(contestant) for contestant in self.contestants],
            "figures": [
                {"contestant": name, "case": case, "metric": metric, **asdict(Spread.of(values)), "values": values}
                for (name, case, metric), values in sorted(self.values.items())
            ],
            "not_measured": _listed(self.skips, "why"),
            "failures": _listed(self.failures, "output"),
            "invalid": _listed(self.invalid, "why"),
            "targets": [_target(verdict) for verdict in self.verdicts],
        }

    def add(self, contestant: str, case: str, figures: Mapping[str, float]) -> None:
        """Add one repetition. KeyError for a metric that the benchmark does not declare."""
        for metric, value in figures.items():
            if metric not in self.metrics:
                raise KeyError(f"{contestant} measured {metric!r}, which is none of {', '.join(self.metrics)}")
            self.values.setdefault((contestant, case, metric), []).append(value)

    def include(self, earlier: Self, cases: Sequence[str]) -> None:
        """Put the figures of an earlier run before these, and merge what was skipped or failed.

        `cases`: all cases of the benchmark, in order.
        """
        now = {(contestant, case) for contestant, case, _ in self.values}
        for key, values in earlier.values.items():
            self.values[key] = values + self.values.get(key, [])
            # skipped now, but measured earlier
            self.skips.pop(key[:2], None)
        self.skips |= {pair: why for pair, why in earlier.skips.items() if pair[1] not in self.cases}
        self.failures = {pair: why for pair, why in earlier.failures.items() if pair not in now} | self.failures
        self.cases = [case for case in cases if case in self.cases or case in earlier.cases]

    def spread(self, contestant: str, case: str, metric: str) -> Spread | None:
        """Return the median and its interval; None if it was not measured."""
        values = self.values.get((contestant, case, metric))
        return Spread.of(values) if values else None

    def ratio(self, case: str, metric: str, ours: str, theirs: str) -> Spread | None:
        """Divide the median of `ours` by that of `theirs`; None if either is missing or theirs is not positive."""
        samples = [self.values.get((name, case, metric), []) for name in (ours, theirs)]
        return Spread.of(*samples) if all(samples) and min(samples[1]) > 0 else None

    def found(self, case: str, metric: str, ours: str, theirs: str) -> Spread | None:
        """Return the ratio of two contestants, or the figure of ours if theirs is empty; None if there is none."""
        return self.ratio(case, metric, ours, theirs) if theirs else self.spread(ours, case, metric)

    def base(self, case: str, metric: str) -> str | None:
        """Return the contestant with which the others are compared: the first of ours that was measured."""
        ours = (one.name for one in self.contestants if one.name.startswith(OURS))
        return next((name for name in ours if (name, case, metric) in self.values), None)

    @property
    def repetitions(self) -> str:
        """The number of repetitions as text: "5", or "5 to 20" if it differs between figures."""
        counts = sorted({len(values) for values in self.values.values()}) or [0]
        return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))

    @property
    def pairs(self) -> list[Pair]:
        """Every contestant and case that is neither missing, skipped nor failed."""
        every = [(contestant, case) for case in self.cases for contestant in self.contestants]
        return [(contestant.name, case) for contestant, case in every if self.why_not(contestant, case) is None]

    def metrics_of(self, case: str) -> list[str]:
        """Return the metrics that were measured in this case by any contestant."""
        measured = {metric for _, where, metric in self.values if where == case}
        return [metric for metric in self.metrics if metric in measured]

    def why_not(self, contestant: Contestant, case: str) -> str | None:
        """Say in a line why there are no more figures: "missing: ...", "not measured: ...", "failed: ..."; or None."""
        if contestant.missing is not None:
            return f"missing: {contestant.missing}"
        if (contestant.name, case) in self.skips:
            return f"not measured: {self.skips[contestant.name, case]}"
        return self._failed((contestant.name, case))

    @property
    def verdicts(self) -> list[Verdict]:
        return [self.verdict(target) for target in self.targets]

    def verdict(self, target: Target) -> Verdict:
        """Judge a target, as `Target` says."""
        found = self.found(target.case, target.metric, target.ours, target.theirs)
        judged = None if found is None else found.median
        if found and target.at_most == 0:
            judged, found = max(self.values[target.ours, target.case, target.metric]), None
        pairs = [(name, target.case) for name in (target.ours, target.theirs)]
        reasons = [self.invalid.get(pair) or self._failed(pair) for pair in pairs]
        return Verdict(target, judged, found, "; ".join(filter(None, reasons)))

    def _failed(self, pair: Pair) -> str | None:
        output = self.failures.get(pair)
        return None if output is None else f"failed: {(output.splitlines() or ['?'])[0]}"


def _listed(reasons: Mapping[Pair, str], text: str) -> list[dict[str, str]]:
    return [{"contestant": name, "case": case, text: reason} for (name, case), reason in reasons.items()]


def _by_pair(listed: Sequence[Mapping[str, str]], text: str) -> dict[Pair, str]:
    return {(one["contestant"], one["case"]): one[text] for one in listed}


def _target(verdict: Verdict) -> dict[str, Any]:
    interval = verdict.found and [verdict.found.low, verdict.found.high]
    told = {"value": verdict.judged, "interval": interval, "invalid": verdict.invalid, "reached": verdict.reached}
    return {**asdict(verdict.target), **told}


def judge(benchmark: Benchmark, results: Results, changed: str = "") -> dict[Pair, str]:
    """Return why the figures of a contestant in a case do not count, for each of which they do not.

    `changed`: facts that changed during the run, with their old values; "" if none.
    """
    found = {pair: f"the run has begun with {changed}, and ended with another" for pair in results.pairs if changed}
    for name, case in results.pairs:
        busy = results.spread(name, case, "busy")
        if busy is not None and busy.median < BUSY and benchmark.saturates(case):
            found[name, case] = f"the server was not the bottleneck: it used {busy.median:.0f} % of its core"
    for case in results.cases:
        for ours, bare in benchmark.bare.items():
            if any(_better(results, case, metric, ours, bare) for metric in ("rate", "cpu")):
                found.setdefault((ours, case), f"it was faster with deadlines than without ({bare})")
                found.setdefault((bare, case), f"it was slower without deadlines than with them ({ours})")
    return found


def _better(results: Results, case: str, metric: str, ours: str, bare: str) -> bool:
    if (ratio := results.ratio(case, metric, ours, bare)) is None:
        return False
    return ratio.low > 1 + SAME if results.metrics[metric].better == "more" else ratio.high < 1 - SAME
