"""The command `churn`, and the tables of its figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any, TextIO

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..commands import File, Names, Numbers, Wholes, as_text, conclude, explained, file_option, of_target, progress
from ..histogram import milliseconds, shown
from ..report import console
from ..target import resolve
from .audit import Admin, Audited
from .connection import ENDING
from .profiles import PROFILES
from .run import Plan, Result
from .run import churn as run_churn

_PAGE = 110  # the page's width in letters


@click.command("churn", short_help="Move, expire and reset keep-alive connections.")
@of_target("Churn at")
@click.option("--connections", metavar="N", type=Wholes(1, 200_000), default=1000, show_default=True)
@click.option("--duration", metavar="SECONDS", type=Numbers(0.5, 86_400), default=30.0, show_default=True)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="steady", show_default=True,
              help="The connections act evenly, rise in number, act in bursts, or at one instant.")  # fmt: skip
@click.option("--deadline", metavar="SECONDS", type=Numbers(0.3, 3600),
              help="The server's keep-alive deadline.  [default: it is measured]")  # fmt: skip
@click.option("--limit", metavar="SECONDS", type=Numbers(0.5, 3600), default=90.0, show_default=True,
              help="Measure the deadline for so long before saying that there is none.")  # fmt: skip
@click.option("--admin", "admin_url", metavar="URL", default="",
              help="The server's admin listener: compare with what it says.")  # fmt: skip
@click.option("--admin-token-file", "token_file", metavar="FILE", type=click.File(encoding="utf-8", errors="replace"),
              help="A file whose first line is the admin listener's token.")  # fmt: skip
@click.option("--processes", type=Wholes(0, 64), default=0,
              help="Client processes.  [default: one per 12,000 connections]")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="What the connections' choices are drawn from.")
@file_option("--json", "Write the figures as JSON.")
@file_option("--html", "Write the tables as a page.")
def command(
    url: str, owned: Names, admin_url: str, token_file: TextIO | None, json_file: File, html_file: File, **plan: Any
) -> None:
    """Keep many connections to an HTTP server that ask, fall silent, are cut, leave, and come back.

    \b
      python -m loadtest churn http://127.0.0.1:8000/ --connections 20000 --duration 60
      python -m loadtest churn http://127.0.0.1:8000/ --profile herd --admin http://127.0.0.1:9000/

    First the server's keep-alive deadline is measured with a few connections. Then all of them churn: most ask again
    before the deadline, some at the last moment; some wait until they are cut; some close or reset. Counted are cuts
    before the deadline and how late the others come, requests that were sent in time and lost to a cut, and connections
    that were never cut. docs/churn.md has more.

    Only loopback addresses are used, unless --i-own-this-target names the target, as for `check`.

    Exit codes: 0 all well; 1 the server did something wrong, or its admin listener says something else; 2 wrong
    arguments, or a target that may not be used; 3 the target or its admin listener does not answer; 4 the client was
    the bottleneck; 130 interrupted (the figures are those until then).
    """
    with explained():
        admin = _admin(admin_url, token_file, owned)
        whole = Plan(resolve(url, owned), **plan, admin=admin)
        with progress(console) as on_progress:
            result = run_churn(whole, on_progress)
    files = (json_file, lambda: as_text(result.as_json())), (html_file, lambda: page(result))
    conclude(lambda: show(console, result), *files)
    sys.exit(130 if result.tally.interrupted else 4 if result.tally.invalid else 1 if result.problems else 0)


def _admin(url: str, token_file: TextIO | None, owned: Names) -> Admin | None:
    if not url:
        if token_file is not None:
            raise click.UsageError("--admin-token-file needs --admin")
        return None
    target = resolve(url if "://" in url else f"http://{url}/", owned)
    if target.tls:
        raise click.UsageError("--admin is an http:// URL: the admin listener speaks plain HTTP")
    token = token_file.readline().strip() if token_file else ""
    if not (token.isascii() and token.isprintable()):
        raise click.UsageError("the first line of --admin-token-file is no token: it is not plain ASCII")
    return Admin(target, token)


def page(result: Result) -> str:
    """Return the tables as an HTML page that needs no network."""
    console = Console(record=True, width=_PAGE, file=StringIO(), emoji=False)
    show(console, result)
    return console.export_html(inline_styles=True)


def show(console: Console, result: Result) -> None:
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
    if tally.invalid:
        console.print(f"[yellow]Invalid: {escape(tally.invalid)}.[/]", highlight=False)
    if tally.stopped:
        console.print(f"Stopped: {tally.stopped}.", highlight=False)
    if tally.interrupted:
        console.print("Interrupted: this is what was measured until then.")


def _rows(result: Result) -> Iterator[tuple[str, str]]:
    plan, tally, deadline = result.plan, result.tally, result.deadline
    seconds = f"after {deadline.seconds:.3f} s" if deadline.seconds is not None else f"none within {plan.limit:g} s"
    yield "keep-alive deadline", seconds
    yield "connections", f"{plan.connections}, {tally.most} at once; {tally.opened} opened in {tally.seconds:.1f} s"
    answered = ", ".join(f"{number} with {status}" for status, number in sorted(tally.answered.items()))
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
    yield "client processes", f"{plan.clients}, late by {tally.late_ms:.1f} ms (p99); {used}"


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
