"""The command line: `python -m loadtest COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

import deadlined
from deadlined.timers import COMPILED

from . import bench, document, slow
from .bench import clocks, lateness, runner
from .bench.contest import Contestant
from .check.command import command as check_command
from .churn.command import command as churn_command
from .grid.command import command as grid_command
from .openloop.command import command as http_command
from .report import RESULTS
from .scaling import command as scaling_command
from .schemes import benchmark as schemes
from .schemes.subjects import SUBJECTS
from .servers import ToolMissingError

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _finish(run: Callable[[], bool]) -> None:
    """Exit with 0 if `run` returns True, 1 if it returns False or fails, 2 if a tool is missing."""
    try:
        good = run()
    except ToolMissingError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if good else 1)


def _directory(flag: str, text: str, **settings: Any) -> _Decorator:
    """Make an option that takes a directory."""
    return click.option(flag, metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help=text, **settings)


def _repetitions(default: str) -> _Decorator:
    text = f"How often each measurement is repeated.  [default: {default}]"
    return click.option("--repetitions", type=click.IntRange(1, 100), help=text)


_RESULTS = _directory(
    "--results", "Where the JSON files and pictures go.  [default: loadtest/results]", default=RESULTS
)
_PICTURES = _directory("--pictures", "Where the pictures go.  [default: the directory of --results]")


def _require_compiled(_: click.Context, __: click.Parameter, asked: bool) -> None:
    """Exit with 2 if a compiled package was asked for and another would be measured."""
    if asked and not COMPILED:
        raise click.UsageError(
            f"a compiled deadlined was asked for, and {Path(deadlined.__file__).parent} is not compiled: "
            "pip install -e . with a C compiler"
        )


_COMPILED = click.option("--compiled", is_flag=True, envvar="DEADLINED_REQUIRE_COMPILED", callback=_require_compiled,
                         expose_value=False, is_eager=True,
                         help="Measure nothing unless the deadlined that is imported is compiled.")  # fmt: skip
_QUICK = click.option("--quick", is_flag=True, help="Try everything in seconds. The figures mean nothing.")
_ADD = click.option("--add", is_flag=True, help="Add the repetitions to those of an earlier run on this machine.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure deadlined beside its peers, and attack it.

    \b
      python -m loadtest check URL                   grade how any server treats slow clients
      python -m loadtest http URL --rate 500         latency of any server at a fixed rate
      python -m loadtest churn URL                   connections that expire, reset and come back
      python -m loadtest grid                        grade many servers, and write docs/grid.md
      python -m loadtest slow                        attack the server with slow clients
      python -m loadtest bench --quick               try every benchmark in seconds
      python -m loadtest bench duel                  compare HTTP servers, two at a time
      python -m loadtest bench instructions          count the instructions of a request
      python -m loadtest scaling                     simulate many machines
      python -m loadtest document docs/performance.md README.md

    To measure a checkout, install it with "pip install -e '.[fast,bench]'": without -e this directory shadows the
    installed package, and what is measured is not compiled. Every table says which build was measured, and --compiled
    (or DEADLINED_REQUIRE_COMPILED=1) refuses to measure another.

    Everything stays on this machine, unless you name another that you own, and is bounded in time. Commands that
    compare print both sides of one run and their ratio, because absolute figures of one machine say little.

    Exit codes: 0 all well; 1 something failed or a target was missed; 2 wrong arguments or a missing tool.
    """


@main.command("bench", short_help="Measure beside trio, asyncio, uvloop, Go, servers.")
@click.argument("names", metavar="[NAMES]...", nargs=-1)
@_repetitions("5, instructions: 1, --quick: 1")
@_QUICK
@click.option("--case", "cases", metavar="NAME", multiple=True, help="Measure only this case. Can be repeated.")
@click.option("--only-contestant", "only", metavar="NAME", multiple=True,
              help="Measure only this contestant. Can be repeated.")  # fmt: skip
@_ADD
@click.option("--python", "pythons", metavar="PATH", multiple=True,
              help="With `instructions`: also measure the deadlined of this Python's environment. Can be "
                   "repeated.")  # fmt: skip
@_COMPILED
@_RESULTS
@click.option("--list", "listing", is_flag=True, help="List benchmarks, cases, metrics and contestants; measure none.")
def bench_command(
    names: tuple[str, ...],
    listing: bool,
    results: Path,
    cases: tuple[str, ...],
    only: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure deadlined beside its peers: trio, asyncio, uvloop, Go, and other servers.

    NAMES are benchmarks. Without any, all except `instructions`, `tls` and `websockets` are measured, which takes
    hours.

    \b
      reset         moving a deadline
      heap          a million timers: start, move, stop, fire
      echo          messages over TCP, with and without deadlines
      http          requests per second, and CPU time per request (needs wrk)
      duel          two HTTP servers at once, in turn (needs wrk)
      idle          15,000 silent connections: memory, wake-ups
      churn         15,000 connections whose deadlines move all the time
      garbage       memory under requests that leave reference cycles
      lateness      how late timers fire
      instructions  instructions per request by callgrind (needs valgrind)
      tls           rate over TLS, and memory per idle connection (needs wrk, openssl)
      websockets    messages echoed per second, and memory per idle websocket

    \b
      python -m loadtest bench reset heap
      python -m loadtest bench http --case hello --repetitions 3
      python -m loadtest bench reset --only-contestant "deadlined (pure)"
      python -m loadtest bench instructions --python ../other/.venv/bin/python

    Contestants take turns in an order that is drawn anew for each repetition. Tables show the median, the least and
    the most, and each value as a multiple of deadlined's. bench-NAME.json and bench-NAME.png keep them. Peers come
    with the extra `bench`; a missing one is listed with its reason.

    Exit codes: 0 all targets reached; 1 a contestant failed, or a target was missed; 2 wrong arguments or a missing
    tool.
    """
    known = (*bench.NAMES, *bench.ON_REQUEST)
    chosen = names or (known if listing else bench.NAMES)
    for name in chosen:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="NAMES")
    if listing:
        _finish(lambda: runner.listing(chosen))
    contestants = runner.contestants(chosen) if only else {}
    _refuse_unknown("--only-contestant", "contestant", only, contestants)
    _refuse_missing(contestants[name] for name in only)
    _refuse_unknown("--case", "case", cases, runner.cases(chosen))
    plan = runner.Plan(only=only, cases=cases, **options)
    _finish(lambda: runner.run([runner.load(name) for name in chosen], plan, results))


def _refuse_unknown(parameter: str, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Exit with 2 if one of `given` is not known."""
    if unknown := set(given).difference(known):
        raise click.BadParameter(f"no {kind} {', '.join(sorted(unknown))} (see --list)", param_hint=parameter)


def _refuse_missing(asked: Iterable[Contestant]) -> None:
    """Exit with 2 if a contestant that was asked for cannot be measured: the others are no answer."""
    for contestant in asked:
        if contestant.missing is not None:
            raise click.UsageError(f"{contestant.name} is missing: {contestant.missing}")


@main.command("document", short_help="Rewrite a page's tables from the results.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@_directory("--results", "Where the files of bench are.  [default: loadtest/results]", default=RESULTS)
def document_command(files: tuple[Path, ...], results: Path) -> None:
    """Rewrite the tables and pictures of Markdown files from the results of bench.

    \b
      python -m loadtest bench
      python -m loadtest document docs/performance.md README.md

    The text between <!-- table ... -->, <!-- ratios ... -->, <!-- targets ... --> or <!-- setup ... --> and <!-- end
    --> is replaced; the rest of each FILE stays. Pictures go to the directory img beside the first FILE, and the
    results to one of its name.

    Exit codes: 0 written; 1 a result is missing, or the measurements are of different machines (no FILE is changed).
    """
    try:
        for written in document.update(files, results):
            click.echo(f"written: {written}")
    except ValueError as error:
        raise click.ClickException(str(error)) from error


@main.command("precision", short_help="Measure how late timers fire.")
@_repetitions("5, --quick: 1")
@click.option("--situation", "only", type=click.Choice(["idle", "busy", "quota"]), multiple=True,
              help="Measure only this situation. Can be repeated.")  # fmt: skip
@_ADD
@_QUICK
@_COMPILED
@_RESULTS
@_PICTURES
def precision_command(
    repetitions: int | None, only: tuple[str, ...], add: bool, quick: bool, results: Path, pictures: Path | None
) -> None:
    """Measure how late timers fire: on an idle core, beside a busy loop, and inside a CPU quota.

    \b
      python -m loadtest precision
      python -m loadtest precision --situation quota

    deadlined's timers are measured beside those of trio, asyncio, uvloop and threading, and so is the cost of reading
    the clocks. The quota is a cgroup's, as in a container, which needs root. Without it the process is stopped for part
    of the time, and the tables say so. Needs the extra `bench`.

    Exit codes: 0 none of deadlined's timers fired early; 1 one did, or a driver failed; 2 something is missing.
    """
    plan = runner.Plan(repetitions=repetitions, quick=quick, add=add)
    _finish(lambda: runner.run([lateness.Precision(only=only), clocks.BENCHMARK], plan, results, pictures))


@main.command("schemes", short_help="Measure the timer queues.")
@_repetitions("3, --quick: 1")
@click.option("--most", type=click.IntRange(1_000, 10_000_000), default=schemes.MOST, show_default=True,
              help="The largest number of timers; the smallest is 10.")  # fmt: skip
@click.option("--queue", "only", type=click.Choice(list(SUBJECTS)), multiple=True,
              help="Measure only this queue. Can be repeated.")  # fmt: skip
@click.option("--patience", metavar="SECONDS", type=click.FloatRange(0.01), default=schemes.PATIENCE, show_default=True,
              help="Skip a queue at sizes that would take longer.")  # fmt: skip
@_ADD
@_QUICK
@_COMPILED
@_RESULTS
@_PICTURES
def schemes_command(
    repetitions: int | None,
    most: int,
    only: tuple[str, ...],
    patience: float,
    add: bool,
    quick: bool,
    results: Path,
    pictures: Path | None,
) -> None:
    """Measure START, STOP, check and extract of each timer queue, from ten timers to a million.

    \b
      python -m loadtest schemes --quick
      python -m loadtest schemes --queue heap4 --queue kernel --most 10000

    Measured are deadlined's nine queues, heapq as asyncio uses it, and Go's old heap with eager deletion: in the
    operations of Varghese and Lauck, and in five workloads. Tables show how each cost grows, beside the theory.

    Exit codes: 0 all measured; 1 a queue failed; 2 wrong arguments.
    """
    plan = runner.Plan(repetitions=repetitions, quick=quick, only=only, add=add)
    _finish(lambda: runner.run([schemes.Schemes(most, patience)], plan, results, pictures))


@main.command("slow", short_help="Attack the server with slow clients.")
@click.option("--connections", type=click.IntRange(1, 5_000), default=1_000, show_default=True, help="Per attack.")
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
    _finish(lambda: slow.run(connections))


main.add_command(check_command)
main.add_command(grid_command)
main.add_command(http_command)
main.add_command(scaling_command)
main.add_command(churn_command)

if __name__ == "__main__":
    main()
