"""The command `grid`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..commands import FILE, FOLDER, Names, Wholes, watching
from ..report import console
from ..servers import ROOT
from ..target import ForbiddenTargetError
from .contestants import CONTESTANTS, Contestant, missing, version
from .page import write
from .run import Grid, measure, remarks, results

_PAGE = ROOT / "docs" / "grid.md"


@click.command("grid", short_help="Check deadlined and its peers, and write the page.")
@click.argument("names", metavar="[NAMES]...", nargs=-1)
@watching(limit=330.0)
@click.option("--side", type=Wholes(1, 100), default=14, show_default=True,
              help="How many contestants wait side by side. Crowds always attack one after the other.")  # fmt: skip
@click.option("--results", "directory", metavar="DIR", type=FOLDER, default=_PAGE.with_suffix(""),
              help="Where the JSON files are.  [default: docs/grid]")  # fmt: skip
@click.option("--page", metavar="FILE", type=FILE, default=_PAGE,
              help="The page that is written from them.  [default: docs/grid.md]")  # fmt: skip
@click.option("--write", "only_write", is_flag=True, help="Write the page from the files; measure nothing.")
@click.option("--list", "listing", is_flag=True, help="List the contestants; measure nothing.")
def command(names: Names, page: Path, only_write: bool, listing: bool, **options: Any) -> None:
    """Check deadlined and other servers, each with its defaults and with its best settings, and write docs/grid.md.

    NAMES are contestants, such as nginx-best, or servers, such as nginx, for both; all without any. The results of the
    others stay as they are.

    \b
      python -m loadtest grid
      python -m loadtest grid uvicorn nginx-best --limit 20 --results /tmp/grid --page /tmp/grid.md

    Groups of contestants wait side by side for at most --limit seconds, and then the crowds attack them one after the
    other, half a minute each. What is not installed is listed as such. docs/check.md describes the attacks.

    Exit codes: 0 all were measured; 1 one has failed, a file cannot be written, or ports or descriptors are too few; 2
    wrong arguments; 130 interrupted. What was measured is kept.
    """
    if listing:
        for contestant in CONTESTANTS.values():
            click.echo(f"{contestant.name:28} {missing(contestant.server) or version(contestant.server)}")
        return
    chosen, grid = _chosen(names), Grid(**options)
    try:
        code = 0 if only_write else _measured(chosen, grid)
        page.write_text(write(list(results(grid.directory)), remarks(grid.directory)), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"written: {page}")
    sys.exit(code)


def _measured(chosen: Sequence[Contestant], grid: Grid) -> int:
    try:
        good = measure(chosen, grid, lambda line: console.print(line, highlight=False, markup=False))
    except KeyboardInterrupt:
        return 130
    except (ForbiddenTargetError, RuntimeError) as error:
        click.echo(f"Error: {error}", err=True)
        return 1
    return 0 if good else 1


def _chosen(names: Names) -> list[Contestant]:
    """Return the contestants of these names, in the order of the table."""
    known = {name: {name} for name in CONTESTANTS}
    for contestant in CONTESTANTS.values():
        known.setdefault(contestant.server.name.replace(" ", "-"), set()).add(contestant.name)
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"no contestant {', '.join(unknown)} (see --list)", param_hint="NAMES")
    wanted = set().union(*(known[name] for name in names)) if names else set(CONTESTANTS)
    return [contestant for name, contestant in CONTESTANTS.items() if name in wanted]
