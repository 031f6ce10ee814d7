"""The command line: `python -m loadtest COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from . import bench, document, slow
from .bench import runner
from .report import RESULTS
from .schemes import run as schemes
from .schemes.subjects import SUBJECTS
from .servers import ToolMissingError


def _finish(run: Callable[[], bool]) -> None:
    """Exit 0 if all was well, 1 if not, 2 if it could not be tried."""
    try:
        good = run()
    except ToolMissingError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if good else 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure deadlined, and attack it.

    Each command prints its ratios side by side from one run and writes JSON to loadtest/results/. Exit codes: 0 all
    well, 1 not, 2 something is missing.
    """


@main.command("bench")
@click.argument("names", metavar="[NAMES]...", nargs=-1)
@click.option(
    "--repetitions", type=click.IntRange(1, 100), help="Of each measurement.  [default: 5, instructions: 1, quick: 1]"
)
@click.option("--quick", is_flag=True, help="Seconds, not minutes: tries everything, its figures mean nothing.")
@click.option("--case", "cases", metavar="NAME", multiple=True, help="Only this case; may be given several times.")
@click.option("--only-contestant", "only", metavar="NAME", multiple=True, help="May be given several times.")
@click.option("--add", is_flag=True, help="Add the repetitions to those of an earlier run.")
@click.option("--python", "pythons", metavar="PATH", multiple=True,
              help="With `instructions`: also measure the deadlined of this Python's environment; may be given several "
                   "times.")  # fmt: skip
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
              help="Where the files go.  [default: loadtest/results]")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Name benchmarks, cases and contestants; measure nothing.")
def bench_command(
    names: tuple[str, ...],
    repetitions: int | None,
    quick: bool,
    cases: tuple[str, ...],
    only: tuple[str, ...],
    add: bool,
    pythons: tuple[str, ...],
    results: Path,
    listing: bool,
) -> None:
    """Measure deadlined beside its peers: trio, asyncio, uvloop, Go, and other servers.

    NAMES are benchmarks (all, if none is given); --list tells what each measures and who of the peers is missing here.

    \b
      python -m loadtest bench reset heap       two benchmarks
      python -m loadtest bench --quick          does everything run here?
      python -m loadtest bench reset --only-contestant "deadlined (pure)"

    Contestants take turns in an order that is drawn anew for each repetition. Tables show medians, least and most, and
    each value as a multiple of ours; files bench-NAME.json and .png keep them. Peers come with
    "pip install 'deadlined[bench]'", and one that is missing is named with its reason.

    Exit codes: 0 all targets reached; 1 a contestant failed, or a target was not reached; 2 a tool is missing.
    """
    known = (*bench.NAMES, *bench.ON_REQUEST)
    chosen = names or (known if listing else bench.NAMES)
    for name in chosen:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="NAMES")
    if listing:
        _finish(lambda: runner.listing(chosen))
    if unknown := set(only).difference(runner.contestants(chosen) if only else ()):
        raise click.BadParameter(
            f"no contestant {', '.join(sorted(unknown))} (see --list)", param_hint="--only-contestant"
        )
    if unknown := set(cases).difference(runner.cases(chosen)):
        raise click.BadParameter(f"no case {', '.join(sorted(unknown))} (see --list)", param_hint="--case")
    plan = runner.Plan(repetitions, quick, only, cases, add, pythons)
    _finish(lambda: runner.run(chosen, plan, results))


@main.command("document")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
              help="Where the files of bench are.  [default: loadtest/results]")  # fmt: skip
def document_command(file: Path, results: Path) -> None:
    """Write the tables and pictures of a Markdown FILE anew, from what bench has measured.

    \b
      python -m loadtest bench
      python -m loadtest document docs/performance.md

    What stands between <!-- table ... --> and <!-- end --> is replaced; the rest of FILE stays as it is.
    """
    try:
        for written in document.update(file, results):
            click.echo(f"written: {written}")
    except ValueError as error:
        raise click.ClickException(str(error)) from error


@main.command("precision")
@click.option("--repetitions", type=click.IntRange(1, 100), help="Of each driver.  [default: 5; quick: 1]")
@click.option("--situation", "only", type=click.Choice(["idle", "busy", "quota"]), multiple=True,
              help="May be given several times.")  # fmt: skip
@click.option("--add", is_flag=True, help="Add the timers to those of an earlier run.")
@click.option("--quick", is_flag=True, help="Seconds, not minutes: its figures mean nothing.")
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
              help="Where precision.json goes.  [default: loadtest/results]")  # fmt: skip
@click.option("--pictures", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="Where the picture goes.  [default: beside precision.json]")  # fmt: skip
def precision_command(
    repetitions: int | None, only: tuple[str, ...], add: bool, quick: bool, results: Path, pictures: Path | None
) -> None:
    """How late timers come: on an idle core, beside a busy loop, and inside a CPU quota as in a container.

    The drivers of deadlined, with those of trio, asyncio and threading beside them; and what the clocks cost. Within a
    cgroup where one can be made (needs root), else by stopping the process for part of the time, which the tables say.

    Exit codes: 0 none of deadlined's timers came early; 1 one did, or a driver failed; 2 something is missing.
    """
    try:
        from .precision import run as precision  # only this command needs hdrhistogram
    except ImportError as error:
        raise click.UsageError(f"{error} (pip install 'deadlined[bench]')") from error
    plan = precision.Plan(repetitions or (1 if quick else precision.REPETITIONS), quick, only, add)
    _finish(lambda: precision.run(plan, results, pictures))


@main.command("schemes")
@click.option("--repetitions", type=click.IntRange(1, 100), help="Of each queue.  [default: 3; quick: 1]")
@click.option("--most", type=click.IntRange(1_000, 10_000_000), default=schemes.MOST, show_default=True,
              help="The largest number of timers; the least is 10.")  # fmt: skip
@click.option("--queue", "only", type=click.Choice(list(SUBJECTS)), multiple=True, help="May be given several times.")
@click.option("--patience", metavar="SECONDS", type=click.FloatRange(0.01), default=schemes.PATIENCE, show_default=True,
              help="A queue is given up at a size that would take longer.")  # fmt: skip
@click.option("--add", is_flag=True, help="Add the repetitions to those of an earlier run.")
@click.option("--quick", is_flag=True, help="Seconds, not minutes: its figures mean nothing.")
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
              help="Where schemes.json goes.  [default: loadtest/results]")  # fmt: skip
@click.option("--pictures", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="Where the pictures go.  [default: beside schemes.json]")  # fmt: skip
def schemes_command(
    repetitions: int | None, most: int, only: tuple[str, ...], patience: float, add: bool, quick: bool, results: Path,
    pictures: Path | None,
) -> None:  # fmt: skip
    """What START, STOP, check and extract cost in each timer queue, from ten timers to a million.

    The nine queues of deadlined, asyncio's way with heapq, and Go's old heap with eager deletion; in the operations of
    Varghese and Lauck, and in workloads that name their use. Says how each cost grows, beside what theory says.

    Exit codes: 0 all measured; 1 a queue failed; 2 something is missing.
    """
    plan = schemes.Plan(repetitions or (1 if quick else schemes.REPETITIONS), most, quick, only, add, patience)
    _finish(lambda: schemes.run(plan, results, pictures))


@main.command("slow")
@click.option("--connections", type=click.IntRange(1, 5_000), default=1_000, show_default=True, help="Of each attack.")
def slow_command(connections: int) -> None:
    """Slow headers, slow bodies and slow reading, with an honest client beside. Needs slowhttptest."""
    _finish(lambda: slow.run(connections))


if __name__ == "__main__":
    main()
