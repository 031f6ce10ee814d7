"""The command line: `python -m loadtest COMMAND`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

import deadlined
from deadlined.timers import COMPILED

from . import document, slow
from .bench import contest, runner, tables
from .bench.contest import Benchmark
from .check.command import command as check_command
from .churn.command import command as churn_command
from .commands import FOLDER, Wholes, explained
from .grid.command import command as grid_command
from .installed import Commands
from .openloop.command import command as http_command
from .report import RESULTS

_RESULTS = click.option("--results", metavar="DIR", type=FOLDER, default=RESULTS,
                        help="Where the JSON files and pictures are.  [default: loadtest/results]")  # fmt: skip


def _require_compiled(_: click.Context, __: click.Parameter, asked: bool) -> None:
    """Exit with 2 if a compiled package was asked for and another would be measured."""
    if asked and not COMPILED:
        text = f"a compiled deadlined was asked for, and {Path(deadlined.__file__).parent} is not compiled"
        raise click.UsageError(f"{text}: pip install -e . with a C compiler")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure deadlined beside its peers, and attack it.

    \b
      python -m loadtest check URL                   grade how any server treats slow clients
      python -m loadtest http URL --rate 500         latency of any server at a fixed rate
      python -m loadtest churn URL                   connections that expire, reset and come back
      python -m loadtest grid                        grade many servers, and write docs/grid.md
      python -m loadtest slow                        attack the server with slow clients
      python -m loadtest bench --quick               try every benchmark, in some minutes
      python -m loadtest bench duel                  compare HTTP servers, two at a time
      python -m loadtest bench instructions          count the instructions of a request
      python -m loadtest document docs/performance.md README.md

    To measure a checkout, install it with "pip install -e '.[fast,bench]'": without -e this directory shadows the
    installed package, and what is measured is not compiled. Every table says which build was measured, and --compiled
    (or DEADLINED_REQUIRE_COMPILED=1) refuses to measure another.

    Everything stays on this machine, unless you name another that you own, and is bounded in time. Commands that
    compare print both sides of one run and their ratio, because absolute figures of one machine say little.

    Exit codes: 0 all well; 1 something failed or a target was missed; 2 wrong arguments or a missing tool; 3 the target
    does not answer; 4 the client was the bottleneck; 130 interrupted.
    """


@main.command("bench", short_help="Measure beside trio, asyncio, uvloop, Go, servers.")
@click.argument("names", metavar="[NAMES]...", nargs=-1)
@click.option("--repetitions", type=Wholes(1, 100),
              help="How often each measurement is repeated.  [default: by benchmark, --quick: 1]")  # fmt: skip
@click.option("--quick", is_flag=True, help="Try each benchmark in seconds, all in minutes. The figures mean nothing.")
@click.option("--case", "cases", metavar="NAME", multiple=True, help="Measure only this case. Can be repeated.")
@click.option("--only-contestant", "only", metavar="NAME", multiple=True,
              help="Measure only this contestant. Can be repeated.")  # fmt: skip
@click.option("--add", is_flag=True, help="Add the repetitions to those of an earlier run on this machine.")
@click.option("--compiled", is_flag=True, envvar="DEADLINED_REQUIRE_COMPILED", callback=_require_compiled,
              expose_value=False, is_eager=True,
              help="Measure nothing unless the deadlined that is imported is compiled.")  # fmt: skip
@_RESULTS
@click.option("--list", "listing", is_flag=True, help="List benchmarks, cases, metrics and contestants; measure none.")
def bench_command(names: tuple[str, ...], listing: bool, results: Path, **options: Any) -> None:
    """Measure deadlined beside its peers: trio, asyncio, uvloop, Go, and other servers.

    NAMES are benchmarks. Without any, all except `instructions` and `schemes` are measured, which takes hours.

    \b
    {benchmarks}

    \b
      python -m loadtest bench reset heap
      python -m loadtest bench http --case hello --repetitions 3
      python -m loadtest bench reset --only-contestant "deadlined (pure)"

    `http` and `duel` also have cases over TLS (they need openssl) and of websockets.

    Contestants take turns in an order that is drawn anew for each repetition. Tables show the median of the starts,
    its 95 % interval by the bootstrap, and each value as a multiple of deadlined's. bench-NAME.json and bench-NAME.png
    keep them, bench-NAME-quick.json those of --quick. Peers come with the extra `bench`; a missing one is listed with
    its reason.

    Exit codes: 0 all targets reached; 1 a contestant failed, or a target was missed; 2 wrong arguments or a missing
    tool; 130 interrupted: what was measured is shown, and kept where no whole run was kept before.
    """
    with explained():
        plan = runner.Plan(**options)
        chosen = [runner.load(name) for name in _chosen(names, everything=listing)]
        chosen = [benchmark.quick() for benchmark in chosen] if plan.quick else chosen
        if listing:
            for benchmark in chosen:
                tables.describe(benchmark)
            return
        _refuse_what_there_is_not(chosen, plan)
        sys.exit(0 if runner.run(chosen, plan, results) else 1)


_LISTED = "\n".join(f"  {name:12}  {stated['short']}" for name, stated in contest.STATED.items())
bench_command.help = inspect.cleandoc(bench_command.help or "").replace("{benchmarks}", _LISTED)


def _chosen(names: Sequence[str], *, everything: bool) -> Sequence[str]:
    """Return the benchmarks that were named; without any those that are measured then, or `everything`."""
    for name in names:
        if name not in contest.STATED:
            raise click.BadParameter(f"{name!r} is none of {', '.join(contest.STATED)}", param_hint="NAMES")
    return names or [name for name, stated in contest.STATED.items() if everything or not stated.get("only_named")]


def _refuse_what_there_is_not(benchmarks: Sequence[Benchmark], plan: runner.Plan) -> None:
    """Exit with 2 for a case or a contestant that these benchmarks do not have, or that cannot be measured."""
    contestants = {one.name: one for benchmark in benchmarks for one in benchmark.contestants()} if plan.only else {}
    _refuse_unknown("--only-contestant", "contestant", plan.only, contestants)
    _refuse_unknown("--case", "case", plan.cases, [case for benchmark in benchmarks for case in benchmark.cases()])
    for contestant in (contestants[name] for name in plan.only):
        # the others are no answer
        if contestant.missing is not None:
            raise click.UsageError(f"{contestant.name} is missing: {contestant.missing}")


def _refuse_unknown(parameter: str, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Exit with 2 if one of `given` is not known."""
    if unknown := set(given).difference(known):
        raise click.BadParameter(f"no {kind} {', '.join(sorted(unknown))} (see --list)", param_hint=parameter)


@main.command("document", short_help="Rewrite a page's tables from the results.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@_RESULTS
def document_command(files: tuple[Path, ...], results: Path) -> None:
    """Rewrite the tables and pictures of Markdown files from the results of bench.

    \b
      python -m loadtest bench
      python -m loadtest document docs/performance.md README.md

    The text between <!-- table ... -->, <!-- ratios ... -->, <!-- targets ... --> or <!-- setup ... --> and <!-- end
    --> is replaced; the rest of each FILE stays. Pictures go to the directory img beside the first FILE, and the
    results to one of its name.

    Exit codes: 0 written; 1 a result is missing or of a quick run, or the measurements are of different commits,
    machines or versions of peers (no FILE is changed).
    """
    try:
        for written in document.update(files, results):
            click.echo(f"written: {written}")
    except ValueError as error:
        raise click.ClickException(str(error)) from error


@main.command("slow", short_help="Attack the server with slow clients.")
@click.option("--connections", type=Wholes(1, 5_000), default=1_000, show_default=True, help="Per attack.")
def slow_command(connections: int) -> None:
    """Attack `deadlined serve` with slowhttptest, while an honest client asks beside it.

    \b
      python -m loadtest slow
      python -m loadtest slow --connections 200

    Three attacks: slow headers, slow bodies, slow reading. The table shows how many connections were cut for the
    expected reason, how many too early or too late, and how the honest client was served. Needs slowhttptest (on
    Debian: apt-get install slowhttptest). About a minute.

    Exit codes: 0 every attacker was cut in time and every honest request answered; 1 not; 2 slowhttptest is missing.
    """
    with explained():
        sys.exit(0 if slow.run(connections) else 1)


for command in (check_command, grid_command, http_command, churn_command):
    main.add_command(command)
