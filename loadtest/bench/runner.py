"""The runner of all benchmarks: in turns, and then tables, JSON, a picture, and whether the targets are reached.

Turns are taken by repetition and case, with the contestants shuffled each time: so a disturbance of the machine (a
neighbour, heat) affects all of them. The seed is fixed: two runs have one order.

The stopping rule, stated in every table: each pair is measured `repetitions` times, and then again and again until the
interval of its first metric reaches at most PRECISE to either side of the median, but twice as often at most. A number
of repetitions that was asked for is exact.
"""

from __future__ import annotations

import json
import pkgutil
import random
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from ..commands import progress
from ..interrupts import INTERRUPTED
from ..report import console, machine, revision, save, versions
from ..servers import ToolMissingError
from . import golang, tables
from .contest import STATED, Benchmark
from .results import Pair, Results, judge
from .spread import CONFIDENCE

SEED = 20_190_904
PRECISE = 0.05

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """How often a pair is measured: `least` times, and up to `most` while its interval is wider than PRECISE."""

    least: int
    most: int

    @property
    def text(self) -> str:
        if self.least == self.most:
            return f"{self.least} start{'s' if self.least > 1 else ''} each"
        return f"{self.least} starts each, up to {self.most} until the interval is within {PRECISE:.0%} of the median"


def turns(pairs: Sequence[Pair], repetition: int) -> list[Pair]:
    """Return the pairs of contestant and case as they take turns in this repetition, which counts from 0.

    Cases keep their order, contestants are shuffled.
    """
    found, shuffle = list[Pair](), random.Random(SEED + repetition).shuffle
    for case in dict.fromkeys(case for _, case in pairs):
        names = [name for name, where in pairs if where == case]
        shuffle(names)
        found += [(name, case) for name in names]
    return found


@dataclass(frozen=True)
class Plan:
    """What the command line asks for.

    `repetitions`: None leaves them to the benchmark. `only` and `cases`: names of contestants and cases; empty: all.
    `add`: keep the figures of an earlier run.
    """

    repetitions: int | None = None
    quick: bool = False
    only: Collection[str] = ()
    cases: Collection[str] = ()
    add: bool = False

    def rule_of(self, benchmark: Benchmark) -> Rule:
        if exact := self.repetitions or (1 if self.quick else 0):
            return Rule(exact, exact)
        return Rule(benchmark.repetitions, 2 * benchmark.repetitions)


def load(name: str) -> Benchmark:
    """Make the benchmark of this name, whose module is imported. KeyError if there is none."""
    kind: type[Benchmark] = pkgutil.resolve_name(f"loadtest.{STATED[name]['kind']}")
    return kind(name)


def prepare(benchmark: Benchmark, only: Collection[str] = (), asked: Collection[str] = ()) -> Results:
    """Return empty results that say which pairs are measured and why the others are not.

    `only`: names of contestants; `asked`: cases, of which the others are left out. Both empty: all.
    """
    cases = [case for case in benchmark.cases() if not asked or case in asked]
    found = Results(benchmark.contestants(), cases, benchmark.metrics)
    for name, case in found.pairs:
        if why := "not asked for" if only and name not in only else benchmark.skips(name, case):
            found.skips[name, case] = why
    return found


def measure(benchmark: Benchmark, results: Results, rule: Rule) -> None:
    """Measure all turns with a progress bar; failures are printed at once."""
    with progress(console) as on_progress:
        done, total = 0, rule.least * len(results.pairs)
        for repetition in range(rule.most):
            due = turns(_due(results, rule, repetition), repetition)
            total = max(total, done + len(due))
            if due and repetition and not console.is_terminal:
                # a log file shows no moving bar
                console.print(f"{benchmark.name}: {repetition}/{rule.most} repetitions")
            for name, case in due:
                on_progress(escape(f"{benchmark.name}, {repetition + 1} of {rule.most}: {case}, {name}"), done, total)
                if trouble := _measure(benchmark, results, (name, case)):
                    console.print(f"failed: {name}, {case}", style="red", markup=False)
                    console.print(trouble, markup=False, highlight=False)
                done += 1


def _due(results: Results, rule: Rule, repetition: int) -> list[Pair]:
    """Return the pairs to measure in this repetition: all that have not failed, in the end the imprecise ones only."""
    return [pair for pair in results.pairs if repetition < rule.least or _imprecise(results, *pair)]


def _imprecise(results: Results, contestant: str, case: str) -> bool:
    """True if the interval of the first metric that this pair has is too wide."""
    spreads = (results.spread(contestant, case, metric) for metric in results.metrics)
    first = next((spread for spread in spreads if spread is not None), None)
    return first is not None and not first.within(PRECISE)


def _measure(benchmark: Benchmark, results: Results, pair: Pair) -> str:
    """Measure a pair once, or record the failure and the contestant's output, and return it; "" if all is well."""
    try:
        results.add(*pair, benchmark.measure(*pair))
    except Exception as error:
        # whatever it is: the failure of one contestant must not lose the figures of the others
        results.failures[pair] = f"{type(error).__name__}: {error}".strip()
    return results.failures.get(pair, "")


def run(benchmarks: Sequence[Benchmark], plan: Plan, directory: Path) -> bool:
    """Run these benchmarks. True if nothing failed, all figures count, and every measured target is reached.

    Raises before anything is measured: ToolMissingError if a tool is missing, or all that is measured; RuntimeError if
    the earlier figures of `plan.add` cannot be used. A quick run judges only the targets that do not depend on sizes.
    """
    prepared, facts = [], _facts()
    for benchmark in (benchmark.quick() if plan.quick else benchmark for benchmark in benchmarks):
        # the figures of a quick run mean nothing, and never take the place of others
        path = directory / f"bench-{benchmark.name}{'-quick' if plan.quick else ''}.json"
        before = recall(path, benchmark, facts) if plan.add else None
        prepared.append((benchmark, prepare(benchmark, plan.only, plan.cases), before, path))
    every = [results for _, results, _, _ in prepared]
    if not any(results.pairs for results in every):
        reasons = {found.why_not(one, case): "" for found in every for case in found.cases for one in found.contestants}
        raise ToolMissingError(f"nothing can be measured: {'; '.join(filter(None, reasons))}")
    tables.header(golang.version())
    good = [_run(benchmark, results, before, plan, facts, path) for benchmark, results, before, path in prepared]
    return all(good)


def _facts() -> Facts:
    """Return what figures depend on: those of two runs in which any of this differs have no common median."""
    return {**revision(), "machine": machine(), "versions": versions(), "go": golang.version()}


def _changed(before: Facts, now: Facts) -> str:
    """Return the facts that differ, as `name old-value`, separated by commas; "" if none does."""
    before, now = ({**facts["machine"], **facts, "machine": None} for facts in (before, now))
    return ", ".join(f"{name} {before.get(name)!r}" for name in now if before.get(name) != now[name])


def recall(path: Path, benchmark: Benchmark, facts: Facts) -> Results | None:
    """Read the results of an earlier run, to which this one's are to be added; None if there is no such file.

    RuntimeError if its facts or its metrics are others than those of this run, and for what is no JSON or of a quick
    run.
    """
    if not path.exists():
        return None
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RuntimeError(f"{path} is no JSON: {error}") from error
    if read["quick"]:
        raise RuntimeError(f"{path} is of a quick run, whose figures mean nothing: there is nothing to add to")
    if list(read["metrics"]) != list(benchmark.metrics):
        raise RuntimeError(f"{path} has other metrics or other sizes ({', '.join(read['metrics'])}): run without --add")
    if changed := _changed(read, facts):
        raise RuntimeError(f"{path} was measured with {changed}, which is another now: run without --add")
    return Results.read(read)


def _run(benchmark: Benchmark, results: Results, before: Results | None, plan: Plan, facts: Facts, path: Path) -> bool:
    """Measure one benchmark, and show and keep its results, also those until Ctrl-C, which then ends the process.

    `facts`: when the first benchmark began. Figures do not count if they are others at the end of this one.
    """
    rule, interrupted = plan.rule_of(benchmark), False
    try:
        measure(benchmark, results, rule)
    except KeyboardInterrupt:
        if not results.values:
            raise
        interrupted = True
    told = rule.text + "; interrupted" * interrupted
    if before is not None:
        results.include(before, benchmark.cases())
    if not plan.quick:
        results.invalid = judge(benchmark, results, _changed(facts, _facts()))
    results.targets = [one for one in benchmark.targets if one.case in results.cases and (one.always or not plan.quick)]
    tables.show(benchmark, results, told)
    stated = {"benchmark": benchmark.name, "title": benchmark.title, "quick": plan.quick, "rule": told,
              "confidence": CONFIDENCE}  # fmt: skip
    # half of a run replaces no whole one
    if not interrupted or before is not None or not path.exists():
        save(path, {**facts, **stated, **results.written()})
        if results.values:
            benchmark.plot(results, path.with_suffix(".png"))
    if interrupted:
        console.print("Interrupted: this is what was measured until then.")
        sys.exit(INTERRUPTED)
    return not (results.failures or results.invalid or any(one.reached is False for one in results.verdicts))
