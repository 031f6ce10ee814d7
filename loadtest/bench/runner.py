"""The runner of all benchmarks: in turns, and then tables, JSON, a picture, and whether the targets are reached."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]
from rich.markup import escape

from ..report import console, progress, save
from . import MODULES, earlier, golang, tables, validity
from .contest import Benchmark, Contestant, ContestantError, Verdict
from .results import Results
from .schedule import PRECISE, Rule, Turn, seconds_left, turns
from .spread import CONFIDENCE, Spread


@dataclass(frozen=True)
class Plan:
    """What the command line asks for.

    `repetitions`: None leaves them to the benchmark. `only` and `cases`: names of contestants and cases; empty: all.
    `add`: keep the figures of an earlier run. `pythons`: environments whose deadlined is measured beside this one's.
    """

    repetitions: int | None = None
    quick: bool = False
    only: Collection[str] = ()
    cases: Collection[str] = ()
    add: bool = False
    pythons: Sequence[str] = ()

    def rule_of(self, benchmark: Benchmark) -> Rule:
        """Return how often each measurement is repeated."""
        if exact := self.repetitions or (1 if self.quick else 0):
            return Rule(exact, exact)
        return Rule(benchmark.repetitions, 2 * benchmark.repetitions)


def load(name: str) -> Benchmark:
    """Import the benchmark of this name. KeyError if there is none."""
    benchmark = importlib.import_module(MODULES[name]).BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return benchmark


def prepare(benchmark: Benchmark, only: Collection[str] = (), asked: Collection[str] = ()) -> Results:
    """Return empty results that say which pairs are measured and why the others are not.

    `only`: names of contestants; `asked`: cases, of which the others are left out. Both empty: all.
    """
    contestants = benchmark.contestants()
    cases = [case for case in benchmark.cases() if not asked or case in asked]
    skips = {}
    for contestant in contestants:
        for case in cases:
            why = benchmark.skips(contestant.name, case)
            if only and contestant.name not in only and not contestant.given:
                why = "not asked for"
            if why is not None:
                skips[contestant.name, case] = why
    return Results(contestants, cases, benchmark.metrics, skips)


def pairs(results: Results) -> list[tuple[str, str]]:
    """Return every contestant and case that is to be measured."""
    return [
        (contestant.name, case)
        for case in results.cases
        for contestant in results.contestants
        if results.why_not(contestant, case) is None
    ]


class Measurer:
    """The measuring of turns, one after another, into `results`. A pair that failed is not tried again."""

    def __init__(self, benchmark: Benchmark, results: Results) -> None:
        self._benchmark = benchmark
        self._results = results
        self.took: dict[tuple[str, str], float] = {}

    def measure(self, turn: Turn) -> str:
        """Measure one turn, or record the failure and the contestant's output, and return it; "" if all is well."""
        if turn.pair in self._results.failures:
            return ""
        began = time.monotonic()
        try:
            figures = self._benchmark.measure(turn.contestant, turn.case)
            self._results.add(turn.contestant, turn.case, figures)
        except (ContestantError, RuntimeError, OSError, LookupError, ValueError, psutil.Error) as error:
            # the failure of one contestant must not lose the figures of the others
            self._results.failures[turn.pair] = f"{type(error).__name__}: {error}".strip()
        self.took[turn.pair] = time.monotonic() - began
        return self._results.failures.get(turn.pair, "")


def measure(benchmark: Benchmark, results: Results, rule: Rule) -> None:
    """Measure all turns with a progress bar; failures are printed at once."""
    measurer = Measurer(benchmark, results)
    with progress() as bar:
        task = bar.add_task(benchmark.name, total=0, what="", left="")
        repetition, due = 0, turns(pairs(results), rule.least)
        while due:
            bar.update(task, total=(bar.tasks[0].total or 0) + len(due))
            for number, turn in enumerate(due):
                seconds = seconds_left(due[number:], measurer.took)
                left = "" if seconds is None else f"about {tables.duration(seconds)} left"
                what = escape(f"{turn.repetition + 1}/{rule.most} {turn.case}: {turn.contestant}")
                bar.update(task, what=what, left=left)
                if not console.is_terminal and turn.repetition > repetition:
                    # a log file shows no moving bar
                    bar.console.print(f"{benchmark.name}: {turn.repetition}/{rule.most} repetitions, {left}")
                repetition = turn.repetition
                if trouble := measurer.measure(turn):
                    bar.console.print(f"failed: {turn.contestant}, {turn.case}", style="red", markup=False)
                    bar.console.print(trouble, markup=False, highlight=False)
                bar.advance(task)
            due = turns(_imprecise(results), 1, repetition + 1) if repetition + 1 < rule.most else []
        bar.update(task, what="", left="")


def _imprecise(results: Results) -> list[tuple[str, str]]:
    """Return the pairs that have figures, and of which the first one's interval is too wide."""
    found = []
    for name, case in pairs(results):
        first = next((metric for metric in results.metrics if (name, case, metric) in results.values), None)
        spread = first and results.spread(name, case, first)
        if spread and not spread.within(PRECISE):
            found.append((name, case))
    return found


def run(benchmarks: Sequence[Benchmark], plan: Plan, directory: Path) -> bool:
    """Run these benchmarks. True if nothing failed, all figures count, and every measured target is reached.

    Raises before anything is measured: ToolMissingError if a tool is missing, RuntimeError if the earlier figures of
    `plan.add` cannot be used. A quick run judges only the targets that do not depend on sizes.
    """
    chosen = [benchmark.quick() if plan.quick else benchmark for benchmark in benchmarks]
    if plan.pythons:
        chosen = [_beside(benchmark, plan.pythons) for benchmark in chosen]
    prepared = [
        (benchmark, prepare(benchmark, plan.only, plan.cases), _earlier(benchmark, plan, directory))
        for benchmark in chosen
    ]
    tables.header(golang.version())
    good = [_run(benchmark, results, before, plan, directory) for benchmark, results, before in prepared]
    return all(good)


def _run(benchmark: Benchmark, results: Results, before: earlier.Earlier, plan: Plan, directory: Path) -> bool:
    """Measure one benchmark, and show and keep its results."""
    rule = plan.rule_of(benchmark)
    measure(benchmark, results, rule)
    earlier.include(results, before, benchmark.cases())
    if not plan.quick:
        results.invalid = validity.judge(benchmark, results)
    targets = [
        target for target in benchmark.targets if target.case in results.cases and (target.always or not plan.quick)
    ]
    verdicts = [results.verdict(target) for target in targets]
    tables.show(benchmark, results, verdicts, rule)
    save(f"bench-{benchmark.name}", document(benchmark, results, verdicts, plan), directory)
    if results.values:
        benchmark.plot(results, directory / f"bench-{benchmark.name}.png")
    reached = all(verdict.reached is not False for verdict in verdicts)
    return reached and not results.failures and not results.invalid


def _beside(benchmark: Benchmark, pythons: Sequence[str]) -> Benchmark:
    try:
        return benchmark.beside(pythons)
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def _earlier(benchmark: Benchmark, plan: Plan, directory: Path) -> earlier.Earlier:
    if not plan.add:
        return {}
    try:
        return earlier.recall(directory / f"bench-{benchmark.name}.json", benchmark.metrics)
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def listing(names: Sequence[str]) -> bool:
    """Print benchmarks, their cases and their contestants. Always True."""
    for name in names:
        tables.describe(load(name))
    return True


def cases(names: Sequence[str]) -> set[str]:
    """Return all cases of these benchmarks."""
    return {case for name in names for case in load(name).cases()}


def contestants(names: Sequence[str]) -> dict[str, Contestant]:
    """Return all contestants of these benchmarks by name."""
    return {contestant.name: contestant for name in names for contestant in load(name).contestants()}


def document(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict], plan: Plan) -> dict[str, Any]:
    """Return all results as a JSON document."""
    return {
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "quick": plan.quick,
        "repetitions": results.repetitions,
        "rule": plan.rule_of(benchmark).text,
        "confidence": CONFIDENCE,
        "go": golang.version(),
        "cases": list(results.cases),
        "metrics": {name: asdict(metric) for name, metric in results.metrics.items()},
        "contestants": [asdict(contestant) for contestant in results.contestants],
        "figures": [_figure(results, *key) for key in sorted(results.values)],
        "not_measured": [{"contestant": name, "case": case, "why": why} for (name, case), why in results.skips.items()],
        "failures": [
            {"contestant": name, "case": case, "output": output} for (name, case), output in results.failures.items()
        ],
        "invalid": [{"contestant": name, "case": case, "why": why} for (name, case), why in results.invalid.items()],
        "targets": [_target(verdict) for verdict in verdicts],
    }


def _figure(results: Results, contestant: str, case: str, metric: str) -> dict[str, Any]:
    base, values = results.base(case, metric), results.values[contestant, case, metric]
    ratio = None if base is None else results.ratio(case, metric, contestant, base)
    return {
        "contestant": contestant,
        "case": case,
        "metric": metric,
        **asdict(Spread.of(values)),
        "values": values,
        "compared_with": base,
        "ratio": None if ratio is None else ratio.median,
        "ratio_interval": None if ratio is None else [ratio.low, ratio.high],
    }


def _target(verdict: Verdict) -> dict[str, Any]:
    found = verdict.found
    return {
        **asdict(verdict.target),
        "value": None if found is None else found.median,
        "interval": None if found is None else [found.low, found.high],
        "invalid": verdict.invalid,
        "reached": verdict.reached,
    }
