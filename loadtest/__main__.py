"""The command line: `python -m loadtest COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from . import hello, idle, resets, slow
from .servers import ToolMissingError


def _finish(run: Callable[[], bool]) -> None:
    """Exit 0 if all was well, 1 if not, 2 if it could not be tried."""
    try:
        good = run()
    except ToolMissingError as error:
        raise click.UsageError(str(error)) from error
    except (RuntimeError, hello.TroubleError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if good else 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure deadlined, and attack it.

    Each command prints its ratios side by side from one run and writes JSON to loadtest/results/. Exit codes: 0 all
    well, 1 not, 2 something is missing.
    """


@main.command("resets")
@click.option("--live", type=click.IntRange(1), multiple=True, default=(1, 10_000, 100_000), show_default=True,
              help="How many timers are armed meanwhile; may be given several times.")  # fmt: skip
@click.option("--repetitions", type=click.IntRange(3), default=7, show_default=True)
def resets_command(live: tuple[int, ...], repetitions: int) -> None:
    """What moving a deadline costs, against trio's and asyncio's timeouts."""
    _finish(lambda: resets.run(live, repetitions))


@main.command("hello")
@click.option("--seconds", type=click.IntRange(1, 60), default=5, show_default=True, help="Of each measurement.")
@click.option("--connections", type=click.IntRange(1, 1000), default=64, show_default=True)
@click.option("--repetitions", type=click.IntRange(1, 20), default=3, show_default=True, help="Of each server.")
@click.option("--at-least", type=float, help="Exit 1 if the ratio deadlined : uvicorn is below this.")
def hello_command(seconds: int, connections: int, repetitions: int, at_least: float | None) -> None:
    """Requests per second, against uvicorn with the same parser. Needs wrk."""
    _finish(lambda: hello.run(hello.Load(seconds, connections, repetitions), at_least))


@main.command("idle")
@click.option("--connections", type=click.IntRange(1, 20_000), default=10_000, show_default=True)
@click.option("--idle", "seconds", type=click.FloatRange(5.0, 60.0), default=8.0, show_default=True, help="Seconds.")
def idle_command(connections: int, seconds: float) -> None:
    """What idle keep-alive connections cost, and when they are cut."""
    _finish(lambda: idle.run(connections, seconds))


@main.command("slow")
@click.option("--connections", type=click.IntRange(1, 5_000), default=1_000, show_default=True, help="Of each attack.")
def slow_command(connections: int) -> None:
    """Slow headers, slow bodies and slow reading, with an honest client beside. Needs slowhttptest."""
    _finish(lambda: slow.run(connections))


if __name__ == "__main__":
    main()
