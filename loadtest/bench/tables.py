"""Benchmarks printed for people: a header, a table per case, and a table of targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import deadlined

from ..report import console, machine, revision
from ..servers import ToolMissingError
from .contest import Benchmark, Contestant, Verdict
from .results import Results
from .spread import CONFIDENCE, number

# metrics side by side in a table: more do not fit a line of 120 characters
_COLUMNS = 4


def header(go: str) -> None:
    """Print the machine, the builds, and what is measured."""
    facts = {**machine(), "imported from": Path(deadlined.__file__).parent, "Go": go, **revision()}
    for name, value in facts.items():
        console.print(f"{name:13} {value}", markup=False, highlight=False)
    console.print(f"Medians, their {CONFIDENCE:.0%} intervals below.")


def cell(results: Results, contestant: str, case: str, metric: str) -> str:
    """Format a figure as "98.1 ns  1.20x" above its interval; a dash if the contestant has no such figure."""
    spread, kind = results.spread(contestant, case, metric), results.metrics[metric]
    if spread is None:
        return "-"
    value = f"{number(spread.median)} {kind.unit}".rstrip()
    base = results.base(case, metric)
    if kind.better is not None and base is not None and base != contestant:
        ratio = results.ratio(case, metric, contestant, base)
        value += "" if ratio is None else f"  {number(ratio.median)}x"
    return value + (f"\n[dim]{spread.interval}[/]" if spread.interval else "")


def row(results: Results, contestant: Contestant, case: str, metrics: Sequence[str]) -> list[str]:
    """Return a contestant's line; without figures it says why."""
    why = results.why_not(contestant, case)
    if why is not None:
        return [f"{escape(contestant.name)}\n[yellow]{escape(why)}[/]", *("-" for _ in metrics)]
    invalid = results.invalid.get((contestant.name, case))
    name = escape(contestant.name) + (f"\n[red]invalid: {escape(invalid)}[/]" if invalid else "")
    return [name, *(cell(results, contestant.name, case, metric) for metric in metrics)]


def show(benchmark: Benchmark, results: Results, rule: str) -> None:
    """Print a table per case, then the targets."""
    for case in results.cases:
        metrics = results.metrics_of(case)
        # without any figures the table says why
        for start in range(0, max(1, len(metrics)), _COLUMNS):
            console.print(_table(benchmark, results, case, metrics[start : start + _COLUMNS], rule))
    if results.targets:
        console.print(_targets(benchmark, results.verdicts))


def _table(benchmark: Benchmark, results: Results, case: str, metrics: Sequence[str], rule: str) -> Table:
    compared = any(results.base(case, metric) for metric in metrics)
    caption = "2x: twice the first contestant of deadlined that was measured; " if compared else ""
    table = Table(title=escape(f"{benchmark.name}: {case}"), caption=f"{caption}{rule}")
    table.add_column("contestant", min_width=24, max_width=44)
    for metric in metrics:
        better = results.metrics[metric].better
        table.add_column(escape(metric) + (f"\n[dim]{better} is better[/]" if better else ""), justify="right")
    for contestant in results.contestants:
        table.add_row(*row(results, contestant, case, metrics))
    return table


def _targets(benchmark: Benchmark, verdicts: Sequence[Verdict]) -> Table:
    table = Table("case", "metric", "of", "wanted", "found", "", title=f"{benchmark.name}: targets")
    styles = {True: "green", False: "bold red", None: "yellow"}
    for verdict in verdicts:
        target = verdict.target
        of = f"{target.ours} / {target.theirs}" if target.theirs else target.ours
        label = f"[{styles[verdict.reached]}]{verdict.label}[/]"
        table.add_row(*map(escape, (target.case, target.metric, of)), target.wanted, verdict.shown, label)
    return table


def describe(benchmark: Benchmark) -> None:
    """Print a benchmark with its cases, metrics and contestants, and which of them are missing here."""
    console.print(f"[bold]{benchmark.name}[/]: {escape(benchmark.title)}", highlight=False)
    table = Table.grid(padding=(0, 2))
    for case in benchmark.cases():
        table.add_row("case", escape(case))
    for name, metric in benchmark.metrics.items():
        told = filter(None, [metric.unit, f"{metric.better} is better" if metric.better else "context"])
        table.add_row("metric", escape(f"{name} ({', '.join(told)})"))
    try:
        contestants = benchmark.contestants()
    except ToolMissingError as error:
        contestants = [Contestant("all", str(error))]
    for contestant in contestants:
        missing = f"  [yellow]missing: {escape(contestant.missing)}[/]" if contestant.missing else ""
        table.add_row("contestant", escape(contestant.name) + missing)
    console.print(table)
