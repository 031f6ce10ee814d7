"""The command `http`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from ..commands import explained, file_option, owned_option, progress, write
from ..report import console
from ..target import UnusableTargetError, ask, resolve
from .condition import Condition
from .result import Result
from .run import Plan, best, holds, search
from .run import run as run_plan


def _conditions(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Condition, ...]:
    """Parse the conditions, or say what is wrong."""
    try:
        return tuple(map(Condition.parse, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("http", short_help="Ask any HTTP server at a fixed rate; latency.")
@click.argument("url")
@click.option("--rate", metavar="R", type=click.FloatRange(0.1, 1_000_000), required=True, help="Requests per second.")
@click.option("--duration", metavar="SECONDS", type=click.FloatRange(0.1, 86_400), default=10.0, show_default=True)
@click.option("--connections", type=click.IntRange(1, 20_000), default=64, show_default=True,
              help="Connections, all processes together; a request waits if none is free.")  # fmt: skip
@click.option("--ramp", is_flag=True, help="Rise from nothing to the rate within the duration.")
@click.option("--patience", metavar="SECONDS", type=click.FloatRange(0.01, 3600), default=10.0, show_default=True,
              help="Time of a request after which it is an error.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), help="Client processes.  [default: as many as the rate needs]")
@click.option("--fail-if", "conditions", metavar="CONDITION", callback=_conditions, multiple=True,
              help="Exit with 1 if this is true: 'p99>50ms', 'errors>0.1%', 'rate<900'. Can be repeated.")  # fmt: skip
@click.option("--search", "searching", is_flag=True,
              help="Find the highest rate at which no --fail-if is true; --rate is the first.")  # fmt: skip
@file_option("--json", "json_file", "Write the figures as JSON.")
@owned_option("Ask")
def command(
    url: str,
    rate: float,
    duration: float,
    connections: int,
    ramp: bool,
    patience: float,
    processes: int | None,
    conditions: tuple[Condition, ...],
    searching: bool,
    json_file: Path | None,
    owned: tuple[str, ...],
) -> None:
    """Ask an HTTP server at a fixed rate, whatever it does, and count each latency from the time a request was due.

    \b
      python -m loadtest http http://127.0.0.1:8000/ --rate 1000 --duration 10
      python -m loadtest http http://127.0.0.1:8000/ --rate 500 --fail-if 'p99>50ms' --fail-if 'errors>0'
      python -m loadtest http http://127.0.0.1:8000/ --rate 500 --fail-if 'p99>50ms' --search

    A request that finds all connections busy waits, and its latency counts while it does; one that was never answered
    counts with the time that it waited, and as an error. So a server that stalls shows it. If the client was too slow
    itself, the run is invalid and says so.

    Only loopback addresses are asked, unless --i-own-this-target names the target, as for `check`.

    Exit codes: 0 measured; 1 a --fail-if is true, or --search found no rate; 2 wrong arguments, or a target that may
    not be asked; 3 the target does not answer; 4 the client was the bottleneck; 130 interrupted (the figures are those
    until then).
    """
    if searching and not conditions:
        raise click.UsageError("--search needs a --fail-if")
    with explained():
        target = resolve(url, owned)
        baseline = ask(target)
        if baseline.status >= 400:
            raise UnusableTargetError(f"{url} answers {baseline.status}: every request would be an error")
        if not baseline.keeps_alive:
            click.echo("The server closes each connection: every request opens a new one, which counts.", err=True)
        plan = Plan(target, rate, duration, connections, patience, ramp, processes or 0)
        results = search(plan, conditions, _run) if searching else [_run(plan)]
    sys.exit(_finish(results, conditions, searching, json_file))


def _run(plan: Plan) -> Result:
    with progress(console, lambda _, done, total: f"{max(0.0, total - done):.0f} s left") as on_progress:
        result = run_plan(plan, lambda seconds: on_progress("asking", seconds, plan.duration))
    show(console, result)
    return result


def show(console: Console, result: Result) -> None:
    """Print a run."""
    latencies = "  ".join(
        f"{name} {'-' if value is None else f'{value:.2f} ms'}" for name, value in result.latency_ms.items()
    )
    console.print(
        f"{result.wanted:g}/s for {result.duration:g} s: {result.ok} of {result.due} answered, {result.rate:.1f}/s; "
        f"{result.connections} connections, {result.processes} process{'es' if result.processes > 1 else ''}",
        highlight=False,
    )
    console.print(f"  {latencies}", highlight=False)
    for kind, number in result.errors.items():
        console.print(f"  [red]{number}[/] {escape(kind)}", highlight=False)
    if result.due > result.sent and not result.interrupted:
        unsent = result.due - result.sent
        console.print(f"  The server is slower than the rate: {unsent} requests found no free connection.")
    used = f"used {result.busy:.0%} of a processor"
    console.print(f"  The client was late by {result.late_ms:.2f} ms (p99), and {used}.", style="dim", highlight=False)
    if result.invalid:
        console.print(f"  [yellow]Invalid: {escape(result.invalid)}.[/]", highlight=False)
    if result.interrupted:
        console.print("  Interrupted: this is what was measured until then.")


def _finish(results: Sequence[Result], conditions: Sequence[Condition], searching: bool, json_file: Path | None) -> int:
    """Write the figures, say what failed, and return the exit code."""
    interrupted = any(result.interrupted for result in results)
    found = best(results, conditions) if searching else results[-1]
    write(json_file, lambda: _document(found or results[-1], results if searching else ()))
    if interrupted:
        return 130
    if found is None:
        click.echo("No rate holds.", err=True)
        return 1
    if searching:
        console.print(f"The highest rate that holds: {found.wanted:g}/s", highlight=False)
        return 0
    if found.invalid:
        return 4
    for condition in conditions:
        if condition.true_of(found.figures()):
            click.echo(f"Failed: {condition.text}", err=True)
    return 0 if holds(found, conditions) else 1


def _document(result: Result, trials: Sequence[Result]) -> str:
    document = result.as_json()
    if trials:
        document["search"] = [trial.as_json() for trial in trials]
    return json.dumps(document, indent=2) + "\n"
