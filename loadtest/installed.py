"""The command `deadlined-loadtest` of an installed package: the tools for any server, without the benchmarks.

There the package's name is `deadlined_loadtest`. In a checkout `python -m loadtest` has the same commands and more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .interrupts import INTERRUPTED, loading


class Commands(click.Group):
    """A group that exits with INTERRUPTED at Ctrl-C, as a shell expects, whichever command runs; click exits with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deadlined")
def group() -> None:
    """Measure how any HTTP server treats slow clients, load, and a churn of connections.

    \b
      deadlined-loadtest check URL                   grade how it treats slow clients
      deadlined-loadtest http URL --rate 500         latency at a fixed rate
      deadlined-loadtest churn URL                   connections that expire, reset and come back
      locust -f "$(deadlined-loadtest locustfile)"   all of it from several processes or machines

    Everything stays on this machine, unless you name another that you own, and is bounded in time.
    """


@group.command("locustfile")
def locustfile() -> None:
    """Print the path of the file that Locust is given.

    \b
      locust -f "$(deadlined-loadtest locustfile)" --host http://127.0.0.1:8000/ Attacker Honest Churner
    """
    click.echo(Path(__file__).with_name("locustfile.py"))


def main() -> None:
    with loading():
        from .check.command import command as check
        from .churn.command import command as churn
        from .openloop.command import command as http
    for command in (check, http, churn):
        command.help = (command.help or "").replace("python -m loadtest", "deadlined-loadtest")
        group.add_command(command)
    group()
