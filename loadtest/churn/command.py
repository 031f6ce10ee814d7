"""The command `churn`."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

import click

from ..commands import File, Names, Numbers, explained, file_option, of_target, progress, write
from ..report import console
from ..target import resolve
from . import shown
from .admin import Admin
from .profiles import PROFILES
from .result import Plan
from .run import churn as run_churn


@click.command("churn", short_help="Move, expire and reset keep-alive connections.")
@of_target("Churn at")
@click.option("--connections", metavar="N", type=click.IntRange(1, 200_000), default=1000, show_default=True)
@click.option("--duration", metavar="SECONDS", type=Numbers(0.5, 86_400), default=30.0, show_default=True)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="steady", show_default=True,
              help="The connections act evenly, rise in number, act in bursts, or at one instant.")  # fmt: skip
@click.option("--deadline", metavar="SECONDS", type=Numbers(0.3, 3600),
              help="The server's keep-alive deadline.  [default: it is measured]")  # fmt: skip
@click.option("--limit", metavar="SECONDS", type=Numbers(0.5, 3600), default=90.0, show_default=True,
              help="Measure the deadline for so long before saying that there is none.")  # fmt: skip
@click.option("--admin", "admin_url", metavar="URL", default="",
              help="The server's admin listener: compare with what it says.")  # fmt: skip
@click.option("--admin-token-file", "token_file", metavar="FILE", type=click.File(encoding="utf-8"),
              help="A file whose first line is the admin listener's token.")  # fmt: skip
@click.option("--processes", type=click.IntRange(0, 64), default=0,
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
    shown.show(console, result)
    write((json_file, lambda: json.dumps(result.as_json(), indent=2) + "\n"), (html_file, lambda: shown.page(result)))
    sys.exit(130 if result.tally.interrupted else 4 if result.invalid else 1 if result.problems else 0)


def _admin(url: str, token_file: TextIO | None, owned: Names) -> Admin | None:
    """Return the admin listener, if there is one."""
    if not url:
        if token_file is not None:
            raise click.UsageError("--admin-token-file needs --admin")
        return None
    target = resolve(url if "://" in url else f"http://{url}/", owned)
    if target.tls:
        raise click.UsageError("--admin is an http:// URL: the admin listener speaks plain HTTP")
    return Admin(target, token_file.readline().strip() if token_file else "")
