"""Run benchmarks in turns and report: tables, JSON, a picture, and whether the targets are reached."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from ..report import console, progress, save
from . import NAMES, ON_REQUEST, earlier, golang, tables
from .contest import Benchmark, Contestant, ContestantError, Results, Spread, Verdict
from .schedule import Turn, seconds_left, turns


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

    def repetitions_of(self, benchmark: Benchmark) -> int:
        """Return how often each measurement is repeated."""
        return self.repetitions or (1 if self.quick else benchmark.repetitions)


def load(name: str) -> Benchmark:
    """Import the benchmark of this name. KeyError if there is none."""
    if name not in (*NAMES, *ON_REQUEST):
        raise KeyError(name)
    # a module named http would hide the standard library's
    module = {"http": "web"}.get(name, name)
    benchmark = importlib.import_module(f"{__package__}.{module}").BENCHMARK
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

    def measure(self, turn: Turn) -> None:
        """Measure one turn, or record the failure and the contestant's output."""
        if turn.pair in self._results.failures:
            return
        began = time.monotonic()
        try:
            figures = self._benchmark.measure(turn.contestant, turn.case)
            self._results.add(turn.contestant, turn.case, figures)
        except (ContestantError, RuntimeError, OSError, LookupError, ValueError) as error:
            # the failure of one contestant must not lose the figures of the others
            self._results.failures[turn.pair] = f"{type(error).__name__}: {error}".strip()
        self.took[turn.pair] = time.monotonic() - began


def measure(benchmark: Benchmark, results: Results, repetitions: int) -> None:
    """Measure all turns with a progress bar; failures are printed at once."""
    schedule = turns(pairs(results), repetitions)
    measurer = Measurer(benchmark, results)
    with progress() as bar:
        task = bar.add_task(benchmark.name, total=len(schedule), what="", left="")
        for number, turn in enumerate(schedule):
            seconds = seconds_left(schedule[number:], measurer.took)
            left = "" if seconds is None else f"about {tables.duration(seconds)} left"
            what = f"{turn.repetition + 1}/{repetitions} {turn.case}: {turn.contestant}"
            bar.update(task, what=escape(what), left=left)
            if not console.is_terminal and number and turn.repetition > schedule[number - 1].repetition:
                # a log file shows no moving bar
                bar.console.print(f"{benchmark.name}: {turn.repetition}/{repetitions} repetitions, {left}")
            known = len(results.failures)
            measurer.measure(turn)
            if len(results.failures) > known:
                bar.console.print(f"failed: {turn.contestant}, {turn.case}", style="red", markup=False)
                bar.console.print(results.failures[turn.pair], markup=False, highlight=False)
            bar.advance(task)
        bar.update(task, what="", left="")


def run(names: Sequence[str], plan: Plan, directory: Path) -> bool:
    """Run these benchmarks. True if nothing failed and every measured target is reached.

    Raises before anything is measured: ToolMissingError if a tool is missing, RuntimeError if the earlier figures of
    `plan.add` cannot be used. A quick run does not judge targets.
    """
    chosen = [load(name) for name in names]
    if plan.quick:
        chosen = [benchmark.quick() for benchmark in chosen]
    if plan.pythons:
        chosen = [_beside(benchmark, plan.pythons) for benchmark in chosen]
    prepared = [
        (benchmark, prepare(benchmark, plan.only, plan.cases), _earlier(benchmark, plan, directory))
        for benchmark in chosen
    ]
    tables.header(golang.version())
    good = True
    for benchmark, results, before in prepared:
        measure(benchmark, results, plan.repetitions_of(benchmark))
        earlier.include(results, before, benchmark.cases())
        # the targets do not apply to the small sizes of a quick run
        targets = [target for target in benchmark.targets if target.case in results.cases]
        verdicts = [] if plan.quick else [results.verdict(target) for target in targets]
        tables.show(benchmark, results, verdicts)
        _write(benchmark, results, verdicts, plan, directory)
        good = good and not results.failures and all(verdict.reached is not False for verdict in verdicts)
    return good


def _beside(benchmark: Benchmark, pythons: Sequence[str]) -> Benchmark:
    try:
        return benchmark.beside(pythons)
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def _earlier(benchmark: Benchmark, plan: Plan, directory: Path) -> earlier.Earlier:
    if not plan.add:
        return {}
    try:
        return earlier.recall(_file(benchmark, directory))
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def _file(benchmark: Benchmark, directory: Path) -> Path:
    return directory / f"bench-{benchmark.name}.json"


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


def _write(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict], plan: Plan, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = _file(benchmark, directory)
    save(file.stem, document(benchmark, results, verdicts, plan), directory)
    if results.values:
        benchmark.plot(results, file.with_suffix(".png"))


def document(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict], plan: Plan) -> dict[str, Any]:
    """Return all results as a JSON document."""
    return {
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "quick": plan.quick,
        "repetitions": results.repetitions,
        "go": golang.version(),
        "cases": list(results.cases),
        "metrics": {name: asdict(metric) for name, metric in results.metrics.items()},
        "contestants": [asdict(contestant) for contestant in results.contestants],
        "figures": [_figure(results, *key) for key in sorted(results.values)],
        "not_measured": [{"contestant": name, "case": case, "why": why} for (name, case), why in results.skips.items()],
        "failures": [
            {"contestant": name, "case": case, "output": output} for (name, case), output in results.failures.items()
        ],
        "targets": [
            {**asdict(verdict.target), "value": verdict.value, "reached": verdict.reached} for verdict in verdicts
        ],
    }


def _figure(results: Results, contestant: str, case: str, metric: str) -> dict[str, Any]:
    base, values = results.base(case, metric), results.values[contestant, case, metric]
    return {
        "contestant": contestant,
        "case": case,
        "metric": metric,
        **asdict(Spread.of(values)),
        "values": values,
        "compared_with": base,
        "ratio": None if base is None else results.ratio(case, metric, contestant, base),
    }
