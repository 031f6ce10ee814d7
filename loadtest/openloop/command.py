"""The command `http`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import click
from rich.markup import escape

from ..commands import File, Names, Numbers, Wholes, as_text, conclude, explained, file_option, of_target, progress
from ..crew import noted
from ..histogram import shown
from ..report import console
from ..target import ask, resolve
from .client import Plan
from .run import LEAST, MOST, Condition, Result, best, bounded_by_client, holds, search
from .run import run as run_plan

# seconds by which the last answer may be late before that is said
BEHIND = 0.5


def _conditions(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Condition, ...]:
    """Parse the conditions, or say what is wrong."""
    try:
        given = tuple(map(Condition.parse, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    # a refusal is fast, and a failure has no latency
    implied = given and not any(one.metric.startswith("error") for one in given)
    return (*given, Condition.parse("errors>1%")) if implied else given


@click.command("http", short_help="Ask any HTTP server at a fixed rate; latency.")
@of_target("Ask")
@click.option("--rate", metavar="R", type=Numbers(LEAST, MOST), required=True, help="Requests per second.")
@click.option("--duration", metavar="SECONDS", type=Numbers(0.1, 86_400), default=10.0, show_default=True)
@click.option("--connections", type=Wholes(1, 20_000), default=64, show_default=True,
              help="Connections, all processes together; a request waits if none is free.")  # fmt: skip
@click.option("--ramp", is_flag=True, help="Rise from nothing to the rate within the duration.")
@click.option("--patience", metavar="SECONDS", type=Numbers(0.01, 3600), default=10.0, show_default=True,
              help="Time of a request after which it is an error.")  # fmt: skip
@click.option("--processes", type=Wholes(0, 64), default=0,
              help="Client processes.  [default: as many as the rate needs]")  # fmt: skip
@click.option("--fail-if", "conditions", metavar="CONDITION", callback=_conditions, multiple=True,
              help="Exit with 1 if this is true: 'p99>50ms', 'errors>0.1%', 'rate<900'. Can be repeated. "
              "'errors>1%' is added if none is of errors.")  # fmt: skip
@click.option("--search", "searching", is_flag=True,
              help="Find the highest rate at which no --fail-if is true; --rate is the first.")  # fmt: skip
@file_option("--json", "Write the figures as JSON.")
def command(
    url: str, owned: Names, conditions: Sequence[Condition], searching: bool, json_file: File, **plan: Any
) -> None:
    """Ask an HTTP server at a fixed rate, whatever it does, and count each latency from the time a request was due.

    \b
      python -m loadtest http http://127.0.0.1:8000/ --rate 1000 --duration 10
      python -m loadtest http http://127.0.0.1:8000/ --rate 500 --fail-if 'p99>50ms'
      python -m loadtest http http://127.0.0.1:8000/ --rate 500 --fail-if 'p99>50ms' --fail-if 'errors>0'
      python -m loadtest http http://127.0.0.1:8000/ --rate 500 --fail-if 'p99>50ms' --search

    A request that finds all connections busy waits, and its latency counts while it does; one that was never answered
    counts with the time that it waited, and as an error. So a server that stalls shows it. If the client was too slow
    itself, the run is invalid and says so. What fails fast has good latencies: with a --fail-if more than 1 % of errors
    fails a run, too, unless one is of errors.

    Only loopback addresses are asked, unless --i-own-this-target names the target, as for `check`.

    Exit codes: 0 measured; 1 a --fail-if is true, or --search found no rate; 2 wrong arguments, or a target that may
    not be asked; 3 the target does not answer, at first or, without a --fail-if, in all of the run; 4 the client was
    the bottleneck; 130 interrupted (the figures are those until then).
    """
    if searching and not conditions:
        raise click.UsageError("--search needs a --fail-if")
    with explained():
        target = resolve(url, owned)
        if not ask(target, proper=True).keeps_alive:
            click.echo("The server closes each connection: every request opens a new one, which counts.", err=True)
        first = Plan(target, **plan)
        if not first.share(0).requests:
            raise click.UsageError("no request is due within the --duration at this --rate")
        with noted() as stop:  # for a search as a whole: between two runs it ends the next one
            results = search(first, conditions, lambda one: _run(one, stop)) if searching else [_run(first, stop)]
    sys.exit(_finish(results, conditions, searching, json_file))


def _run(plan: Plan, interrupt: Event) -> Result:
    with progress(console) as on_progress:
        result = run_plan(plan, lambda seconds: on_progress("asking", seconds, plan.duration), interrupt)
    console.print("\n  ".join(_lines(result)), highlight=False, soft_wrap=True)
    return result


def _lines(result: Result) -> Iterator[str]:
    plan, tally = result.plan, result.tally
    processes = f"{plan.clients} process{'es' if plan.clients > 1 else ''}"
    asked = f"0 to {plan.rate:g}/s, {plan.rate / 2:g}/s on average," if plan.ramp else f"{plan.rate:g}/s"
    yield (f"{asked} for {plan.duration:g} s: {tally.ok} of {tally.due} answered, "
           f"{result.rate:.1f}/s; {plan.connections} connections, {processes}")  # fmt: skip
    yield shown(result.latency_ms, 2)
    for kind, number in tally.errors.most_common():
        yield f"[red]{number}[/] {escape(kind)}"
    if late := tally.errors["not sent in time"]:
        yield f"The server is slower than the rate: {late} requests found no free connection."
    if (behind := tally.seconds - plan.duration) > BEHIND:
        yield f"The server may be slower than the rate: the run took {behind:.1f} s longer than its schedule."
    yield f"[dim]The client was late by {tally.late_ms:.2f} ms (p99), and had work for {tally.busy:.0%} of the time.[/]"
    if tally.invalid:
        yield f"[yellow]Invalid: {escape(tally.invalid)}.[/]"
    if tally.interrupted:
        yield "Interrupted: this is what was measured until then."


def _finish(results: Sequence[Result], conditions: Sequence[Condition], searching: bool, json_file: File) -> int:
    """Write the figures, say what failed, and return the exit code."""
    interrupted = any(result.tally.interrupted for result in results)
    found = best(results, conditions) if searching else results[-1]
    client = bounded_by_client(results, conditions) if searching else bool(results[-1].tally.invalid)
    whole, said = (found or results[-1]).as_json(), ""
    if searching:
        tried = [{**result.as_json(), "holds": holds(result, conditions)} for result in results]
        whole |= {"found": found and found.plan.rate, "bounded_by_client": client, "search": tried}
        rate = f"{'at least ' * client}{found.plan.rate:g}/s" if found else "none"
        why = ": the client was the bottleneck" * client
        said = f"The highest rate that holds{' so far' * interrupted}: {rate}{why}\n"
    conclude(lambda: console.print(said, highlight=False, end=""), (json_file, lambda: as_text(whole)))
    if interrupted or client:
        return 130 if interrupted else 4
    if found is None or searching:
        return 0 if found else 1
    for condition in conditions:
        if condition.true_of(found.figures()):
            click.echo(f"Failed: {condition.text}", err=True)
    # without a condition a run fails only if it has measured nothing
    return 1 if not holds(found, conditions) else 0 if found.tally.ok or conditions else 3
