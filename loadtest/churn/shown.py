"""A churn for people: the tables, and the same as a page."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..histogram import milliseconds, shown
from .connection import ENDING
from .result import Audited, Result

_PAGE = 110  # the page's width in letters


def page(result: Result) -> str:
    """Return the tables as an HTML page that needs no network."""
    console = Console(record=True, width=_PAGE, file=StringIO())
    show(console, result)
    return console.export_html(inline_styles=True)


def show(console: Console, result: Result) -> None:
    """Print the result."""
    tally = result.tally
    table = Table(title=escape(f"{result.plan.target.url} ({result.server}): {result.plan.profile}"), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in _rows(result):
        table.add_row(name, escape(text))
    console.print(table)
    if result.admin:
        _show_admin(console, result.admin)
    for line in result.problems:
        console.print(f"[red]Wrong:[/] {escape(line)}", highlight=False)
    if result.invalid:
        console.print(f"[yellow]Invalid: {escape(result.invalid)}.[/]", highlight=False)
    if tally.stopped:
        console.print(f"Stopped: {tally.stopped}.", highlight=False)
    if tally.interrupted:
        console.print("Interrupted: this is what was measured until then.")


def _rows(result: Result) -> Iterator[tuple[str, str]]:
    plan, tally, deadline = result.plan, result.tally, result.deadline
    seconds = f"after {deadline.seconds:.3f} s" if deadline.seconds is not None else "not found: nothing is cut"
    yield "keep-alive deadline", seconds
    yield "connections", f"{plan.connections}, {tally.most} at once; {tally.opened} opened in {tally.seconds:.1f} s"
    answered = ", ".join(f"{number} of {status}" for status, number in sorted(tally.answered.items()))
    yield "requests", f"{tally.requests}, {tally.requests / tally.seconds:.0f}/s; answered: {answered or 'none'}"
    yield "latency", shown(milliseconds(tally.latency))
    ends = ", ".join(f"{number} by {how}" for how, number in tally.cut.most_common())
    yield "cut in silence", f"{tally.cut.total()} ({ends or 'none'}); {tally.early} early, {tally.overdue} not in time"
    if plan.duration + ENDING < (deadline.seconds or 0.0):
        yield "", "the run was shorter than the deadline: no cut could come"
    if deadline.seconds is not None:
        yield "  after the deadline", shown(milliseconds(tally.lateness))
        yield "  error of the clock", shown(milliseconds(tally.wrong))
    raced = f"; {tally.raced} more, which this client sent too late" if tally.raced else ""
    yield "requests lost to a cut", f"{tally.lost}{raced}"
    yield "left by the client", f"{tally.closed} closed, {tally.reset} reset"
    if tally.announced:
        yield "ended by a response", f"{tally.announced}"
    used = f"the busiest had work for {tally.busy:.0%} of the time"
    yield "the client", f"{plan.clients} process(es), late by {tally.late_ms:.1f} ms (p99); {used}"


def _show_admin(console: Console, found: Audited) -> None:
    table = Table("", title="What both sides count")
    for side in ("client", "server", ""):
        table.add_column(side, justify="right")
    for claim in found.claims:
        verdict = "[green]agree[/]" if claim.agree else "[red]differ[/]"
        table.add_row(claim.what, f"{claim.client:.10g}", f"{claim.server:.10g}", verdict)
    console.print(table)
    compared = f"{found.compared} silent connections compared, {len(found.differ)} differ"
    console.print(f"/connections: {compared}", highlight=False)
