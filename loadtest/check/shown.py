"""A report for people: the table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .grade import RULES
from .outcome import Honest, Outcome, Report

_COLOURS = {"pass": "green", "weak": "yellow", "fail": "red", "not applicable": "dim", "unfinished": "dim"}


def show(console: Console, report: Report) -> None:
    """Print the report."""
    table = Table(title=f"{report.target} ({report.server})")
    table.add_column("attack", no_wrap=True)
    for column in ("verdict", "kind", "ended after", "end", "honest p99", "why"):
        table.add_column(column, justify="left" if column in ("verdict", "why", "kind", "end") else "right")
    for outcome in report.outcomes:
        colour = _COLOURS[outcome.verdict]
        table.add_row(outcome.attack.name, f"[{colour}]{outcome.verdict}[/]", *map(escape, cells(outcome)))
    console.print(table)
    for text, names in report.advice().items():
        console.print(f"[bold]{', '.join(names)}[/]: {escape(text)}", highlight=False)
    error = max((outcome.deadline.clock_error for outcome in report.outcomes), default=0.0)
    console.print(f"The client's clock was wrong by at most {error * 1000:.1f} ms. {report.seconds:.0f} s in all.")
    console.print(escape(RULES), style="dim", highlight=False)
    if report.gone:
        console.print(f"[red]After the attacks:[/] {escape(report.gone)}", highlight=False)
    if report.interrupted:
        console.print("Interrupted: this is what was measured until then.")
    console.print(f"Grade: [bold]{report.grade}[/]")


def cells(outcome: Outcome) -> tuple[str, str, str, str, str]:
    """Return the kind, the seconds, the end, what honest clients felt, and why, as text."""
    if outcome.verdict == "not applicable":
        return "", "", "", "", outcome.why
    return kind_text(outcome), seconds_text(outcome), end_text(outcome), _honest_text(outcome.honest), outcome.why


def _honest_text(honest: Honest | None) -> str:
    if honest is None:
        return ""
    if honest.p99_ms is None:
        return f"none, {honest.failed} failed"
    return f"{honest.p99_ms:.1f} ms" + (f", {honest.failed} failed" if honest.failed else "")


def kind_text(outcome: Outcome) -> str:
    """Return the kind, with the minimum rate."""
    deadline = outcome.deadline
    if outcome.attack.enough is None:
        return ""
    if deadline.min_rate is None:
        return deadline.kind
    low, high = deadline.min_rate
    return f"{deadline.kind} {low:.0f} B/s" if low == high else f"{deadline.kind} {low:.0f} to {high:.0f} B/s"


def seconds_text(outcome: Outcome) -> str:
    """Return the seconds and their spread."""
    deadline = outcome.deadline
    if deadline.seconds is None:
        return "" if outcome.attack.enough is None or not deadline.connections else f"> {deadline.watched:.0f} s"
    return f"{deadline.seconds:.3f} s ± {deadline.spread / 2 * 1000:.0f} ms"


def end_text(outcome: Outcome) -> str:
    """Return how the server ended it: a status, FIN or RST."""
    deadline = outcome.deadline
    if deadline.close == "response":
        return str(deadline.status)
    return "" if deadline.close == "none" else deadline.close.upper()
