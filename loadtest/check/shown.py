"""A report for people: the table; and as a file: an HTML page without a script and without a network, JUnit's XML."""

from __future__ import annotations

import math
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..commands import rendered
from .grade import RULES, Honest, Outcome, Report

_COLOURS = {"pass": "green", "weak": "yellow", "fail": "red", "not applicable": "dim", "unfinished": "dim"}
# columns of a terminal below which the reasons have lines of their own
_WIDE = 110
_FOLDER = Path(__file__).parent

# a bar's attack, its length as a part of the width, and its text
Bar = tuple[Outcome, float, str]
# a mark's place as a part of the width, and its text
Mark = tuple[float, str]


def show(console: Console, report: Report) -> None:
    table = Table(title=escape(f"{report.target} ({report.server})"))
    is_narrow = console.width < _WIDE
    columns = ("attack", "verdict", "kind", "ended after", "end", "honest p99", "why")[: 6 if is_narrow else 7]
    for column in columns:
        is_number, is_whole = column in ("ended after", "honest p99"), column in ("attack", "verdict")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_whole)
    for outcome in report.outcomes:
        colour = _COLOURS[outcome.verdict]
        shown = map(escape, cells(outcome)[: len(columns) - 2])
        table.add_row(outcome.attack.name, f"[{colour}]{outcome.verdict}[/]", *shown)
    console.print(table)
    for outcome in [one for one in report.outcomes if is_narrow and one.why]:
        console.print(f"{outcome.attack.name}: {escape(outcome.why)}", highlight=False)
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
    if undecided := report.undecided():
        console.print(undecided, highlight=False)


def cells(outcome: Outcome) -> tuple[str, str, str, str, str]:
    """Return the kind, the seconds, the end, what honest clients felt, and why, as text."""
    if outcome.verdict == "not applicable":
        return "", "", "", "", outcome.why
    return kind_text(outcome), seconds_text(outcome), end_text(outcome), _honest_text(outcome.honest), outcome.why


def _honest_text(honest: Honest | None) -> str:
    if honest is None:
        return ""
    p99 = "none" if honest.p99_ms is None else f"{honest.p99_ms:.1f} ms"
    return p99 + (f", {honest.failed} failed" if honest.failed else "")


def kind_text(outcome: Outcome) -> str:
    deadline = outcome.deadline
    if outcome.attack.enough is None:
        return ""
    if deadline.min_rate is None:
        return deadline.kind
    low, high = deadline.min_rate
    return f"{deadline.kind} {low:.0f} B/s" if low == high else f"{deadline.kind} {low:.0f} to {high:.0f} B/s"


def seconds_text(outcome: Outcome) -> str:
    deadline = outcome.deadline
    if deadline.seconds is None:
        measured = outcome.attack.enough is not None and deadline.connections
        return f"> {math.floor(deadline.watched * 10) / 10:g} s" if measured else ""
    return f"{deadline.seconds:.3f} s ± {deadline.spread / 2 * 1000:.0f} ms"


def end_text(outcome: Outcome) -> str:
    """Return how the server ended it: a status, FIN or RST."""
    deadline = outcome.deadline
    return {"response": str(deadline.status), "none": ""}.get(deadline.close, deadline.close.upper())


def page(report: Report) -> str:
    charts = {"For how long a connection is held": _held(report), "What honest clients feel": _felt(report)}
    return rendered(_FOLDER / "report.html", report=report, charts=charts, cells=cells, rules=RULES)


def junit(report: Report) -> str:
    """Return JUnit's XML. A weak verdict is no failure: --fail-below decides about the whole."""
    return rendered(_FOLDER / "report.xml", report=report)


def _held(report: Report) -> tuple[list[Bar], list[Mark]]:
    """Draw the seconds of each attack on a logarithmic axis; what was never ended reaches the right edge."""
    least = 0.001
    span = math.log10(max(report.limit, 2 * least) / least)

    def bar(outcome: Outcome) -> Bar:
        seconds, kind = outcome.deadline.seconds, outcome.deadline.kind
        if seconds is None or kind not in (outcome.attack.enough or ()):
            return outcome, 1.0, "not ended" if seconds is None else "not if it drips"
        return outcome, place(seconds), f"{seconds:.3f} s"

    def place(seconds: float) -> float:
        return min(1.0, max(0.005, math.log10(max(seconds, least) / least) / span))

    shown = [one for one in report.outcomes if one.attack.enough is not None and one.deadline.connections]
    marks = [(place(10.0**power), f"{10.0**power:g} s") for power in range(-3, 4) if 10.0**power <= report.limit]
    return [bar(one) for one in shown], marks


def _felt(report: Report) -> tuple[list[Bar], list[Mark]]:
    """Draw the 99th percentile of honest requests during each attack, beside that of calm."""
    shown = [(one, one.honest.p99_ms or 1000.0, one.honest.failed) for one in report.outcomes if one.honest]
    most = max([100.0, *(p99 for _, p99, _ in shown)])
    bars = [(one, p99 / most, f"{p99:.1f} ms" + (f", {failed} failed" if failed else "")) for one, p99, failed in shown]
    calm = report.calm.p99_ms or 0.0
    return bars, [(calm / most, f"calm {calm:.1f} ms"), (1.0, f"{most:.0f} ms")]
