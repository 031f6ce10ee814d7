"""The command line: `python -m loadtest COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from . import bench, slow
from .bench import runner
from .report import RESULTS
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
@click.option("--repetitions", type=click.IntRange(1, 100), help="Of each measurement.  [default: 5; quick: 1]")
@click.option("--quick", is_flag=True, help="Seconds, not minutes: tries everything, its figures mean nothing.")
@click.option("--only-contestant", "only", metavar="NAME", multiple=True, help="May be given several times.")
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
              help="Where the files go.  [default: loadtest/results]")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Name benchmarks, cases and contestants; measure nothing.")
def bench_command(
    names: tuple[str, ...], repetitions: int | None, quick: bool, only: tuple[str, ...], results: Path, listing: bool
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
    chosen = names or bench.NAMES
    for name in chosen:
        if name not in bench.NAMES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(bench.NAMES)}", param_hint="NAMES")
    if listing:
        _finish(lambda: runner.listing(chosen))
    if unknown := set(only).difference(runner.contestants(chosen) if only else ()):
        raise click.BadParameter(
            f"no contestant {', '.join(sorted(unknown))} (see --list)", param_hint="--only-contestant"
        )
    plan = runner.Plan(repetitions or (1 if quick else runner.REPETITIONS), quick, only)
    _finish(lambda: runner.run(chosen, plan, results))


@main.command("slow")
@click.option("--connections", type=click.IntRange(1, 5_000), default=1_000, show_default=True, help="Of each attack.")
def slow_command(connections: int) -> None:
    """Slow headers, slow bodies and slow reading, with an honest client beside. Needs slowhttptest."""
    _finish(lambda: slow.run(connections))


if __name__ == "__main__":
    main()
