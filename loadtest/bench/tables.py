"""Benchmarks printed for people: a header, a table per case, and a table of targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import deadlined

from ..report import console, machine
from .contest import Benchmark, Contestant, Metric, Results, Verdict

# metrics side by side: more do not fit a line of 120 characters
_COLUMNS = 4


def number(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 100 on: 1,234; 56.8; 0.0123."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format a duration: "40 s", "3 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def header(go: str) -> None:
    """Print the machine and the builds."""
    facts = machine()
    console.print(
        f"[bold]{facts['system']}[/], {facts['processor']}, {facts['cores']} cores\n"
        f"Python {facts['python']} ({facts['python build']}), Go {go}\n"
        f"deadlined {facts['deadlined']} ({facts['timers']}, from {Path(deadlined.__file__).parent})\n"
        f"malloc: {facts['malloc']}; medians, least to most below",
        highlight=False,
    )


def cell(results: Results, contestant: str, case: str, metric: str) -> str:
    """Format a figure as "98.1 ns  1.20x" above its spread; a dash if the contestant has no such figure."""
    spread = results.spread(contestant, case, metric)
    if spread is None:
        return "-"
    kind: Metric = results.metrics[metric]
    value = f"{number(spread.median)} {kind.unit}".rstrip()
    base = results.base(case, metric)
    if kind.better is not None and base is not None and base != contestant:
        ratio = results.ratio(case, metric, contestant, base)
        value += "" if ratio is None else f"  {number(ratio)}x"
    if spread.least == spread.most:
        return value
    return f"{value}\n[dim]{number(spread.least)} to {number(spread.most)}[/]"


def row(results: Results, contestant: Contestant, case: str, metrics: Sequence[str]) -> list[str]:
    """Return a contestant's line; without figures it says why."""
    why = results.why_not(contestant, case)
    if why is not None:
        return [f"{escape(contestant.name)}\n[yellow]{escape(why)}[/]", *("-" for _ in metrics)]
    return [escape(contestant.name), *(cell(results, contestant.name, case, metric) for metric in metrics)]


def show(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict]) -> None:
    """Print a table per case, then the targets."""
    for case in results.cases:
        metrics = results.metrics_of(case)
        # without any figures the table says why
        for start in range(0, max(1, len(metrics)), _COLUMNS):
            console.print(_table(benchmark, results, case, metrics[start : start + _COLUMNS]))
    if verdicts:
        console.print(_targets(benchmark, results, verdicts))


def _table(benchmark: Benchmark, results: Results, case: str, metrics: Sequence[str]) -> Table:
    caption = "2x: twice the first contestant of deadlined that was measured"
    table = Table(title=escape(f"{benchmark.name}: {case}"), caption=f"{caption}; repetitions: {results.repetitions}")
    table.add_column("contestant", min_width=24, max_width=44)
    for metric in metrics:
        table.add_column(_heading(metric, results.metrics[metric]), justify="right")
    for contestant in results.contestants:
        table.add_row(*row(results, contestant, case, metrics))
    return table


def _heading(name: str, metric: Metric) -> str:
    return escape(name) if metric.better is None else f"{escape(name)}\n[dim]{metric.better} is better[/]"


def _targets(benchmark: Benchmark, results: Results, verdicts: Sequence[Verdict]) -> Table:
    table = Table(title=f"{benchmark.name}: targets")
    for column in ("case", "metric", "of", "wanted", "found", ""):
        table.add_column(column)
    styles = {True: "green", False: "bold red", None: "yellow"}
    for verdict in verdicts:
        target = verdict.target
        table.add_row(
            escape(target.case),
            escape(target.metric),
            escape(f"{target.ours} / {target.theirs}" if target.theirs else target.ours),
            target.wanted,
            "-" if verdict.value is None else number(verdict.value),
            f"[{styles[verdict.reached]}]{verdict.label}[/]",
        )
    return table


def describe(benchmark: Benchmark) -> None:
    """Print a benchmark with its cases, metrics and contestants, and which of them are missing here."""
    console.print(f"[bold]{benchmark.name}[/]: {escape(benchmark.title)}", highlight=False)
    for case in benchmark.cases():
        console.print(f"  case        {escape(case)}", highlight=False)
    for name, metric in benchmark.metrics.items():
        told = ", ".join(filter(None, [metric.unit, f"{metric.better} is better" if metric.better else "context"]))
        console.print(f"  metric      {escape(name)} ({escape(told)})", highlight=False)
    for contestant in benchmark.contestants():
        missing = f"  [yellow]missing: {escape(contestant.missing)}[/]" if contestant.missing else ""
        console.print(f"  contestant  {escape(contestant.name)}{missing}", highlight=False)
