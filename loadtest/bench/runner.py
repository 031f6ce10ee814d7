"""Runs benchmarks in turns, and says what came out: tables, JSON, a picture, and whether the targets hold."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..report import console, save
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
    """The benchmark of this name. KeyError if there is none."""
    if name not in (*NAMES, *ON_REQUEST):
        raise KeyError(name)
    # a module that is called http would be taken for the standard library's
    module = {"http": "web"}.get(name, name)
    benchmark = importlib.import_module(f"{__package__}.{module}").BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return benchmark


def prepare(benchmark: Benchmark, only: Collection[str] = (), asked: Collection[str] = ()) -> Results:
    """Empty results: who takes part and, of the others, why not. A case that is not asked for is not there at all."""
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
    """Every contestant and case that is to be measured."""
    return [
        (contestant.name, case)
        for case in results.cases
        for contestant in results.contestants
        if results.why_not(contestant, case) is None
    ]


class Attendant:
    """Measures one turn after the other into `results`. A pair that failed is not tried again."""

    def __init__(self, benchmark: Benchmark, results: Results) -> None:
        self._benchmark = benchmark
        self._results = results
        self.took: dict[tuple[str, str], float] = {}

    def serve(self, turn: Turn) -> None:
        """Measure, or note the failure and what the contestant said."""
        if turn.pair in self._results.failures:
            return
        began = time.monotonic()
        try:
            figures = self._benchmark.measure(turn.contestant, turn.case)
            self._results.add(turn.contestant, turn.case, figures)
        except (ContestantError, RuntimeError, OSError, LookupError, ValueError) as error:
            # whatever one contestant stumbles over must not cost the others their figures
            self._results.failures[turn.pair] = f"{type(error).__name__}: {error}".strip()
        self.took[turn.pair] = time.monotonic() - began


def measure(benchmark: Benchmark, results: Results, repetitions: int) -> None:
    """All turns, with a progress bar; failures are told at once."""
    schedule = turns(pairs(results), repetitions)
    attendant = Attendant(benchmark, results)
    with _progress() as progress:
        task = progress.add_task(benchmark.name, total=len(schedule), what="", left="")
        for number, turn in enumerate(schedule):
            seconds = seconds_left(schedule[number:], attendant.took)
            left = "" if seconds is None else f"about {tables.duration(seconds)} left"
            what = f"{turn.repetition + 1}/{repetitions} {turn.case}: {turn.contestant}"
            progress.update(task, what=escape(what), left=left)
            if not console.is_terminal and number and turn.repetition > schedule[number - 1].repetition:
                # a log has no bar that moves
                progress.console.print(f"{benchmark.name}: {turn.repetition}/{repetitions} repetitions, {left}")
            known = len(results.failures)
            attendant.serve(turn)
            if len(results.failures) > known:
                progress.console.print(f"failed: {turn.contestant}, {turn.case}", style="red", markup=False)
                progress.console.print(results.failures[turn.pair], markup=False, highlight=False)
            progress.advance(task)
        progress.update(task, what="", left="")


def _progress() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[what]}"),
        console=console,
    )


def run(names: Sequence[str], plan: Plan, directory: Path) -> bool:
    """Run these benchmarks; whether nothing failed and every target that was measured is reached.

    Before anything is measured: ToolMissingError if one of them cannot be, RuntimeError if there is nothing that can be
    added to. Targets are not judged by a quick run.
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
        # a quick run's figures are of another size than the targets speak of
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
    """Name benchmarks, their cases and their contestants; always well."""
    for name in names:
        tables.describe(load(name))
    return True


def cases(names: Sequence[str]) -> set[str]:
    """All cases of these benchmarks."""
    return {case for name in names for case in load(name).cases()}


def contestants(names: Sequence[str]) -> dict[str, Contestant]:
    """All contestants of these benchmarks by name."""
    return {contestant.name: contestant for name in names for contestant in load(name).contestants()}


def _write(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict], plan: Plan, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = _file(benchmark, directory)
    save(file.stem, document(benchmark, results, verdicts, plan), directory)
    if results.values:
        benchmark.plot(results, file.with_suffix(".png"))


def document(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict], plan: Plan) -> dict[str, Any]:
    """Everything that is known, for programs."""
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
