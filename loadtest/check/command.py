"""The command `check`."""

from __future__ import annotations

import sys

import click

from ..commands import File, Names, as_text, conclude, explained, file_option, of_target, progress, watching
from ..report import console
from ..target import resolve
from . import shown
from .attacks import NAMES
from .grade import GRADES, below
from .run import Plan
from .run import check as run_check


@click.command("check", short_help="Grade how any HTTP server treats slow clients.")
@of_target("Attack")
@click.argument("more", nargs=-1, metavar="")
@click.option("--only", metavar="NAME", multiple=True, help="Make only this attack; more names may follow.")
@watching(limit=90.0)
@file_option("--json", "Write the report as JSON.")
@file_option("--html", "Write the report as a page with plots.")
@file_option("--junit", "Write the report as JUnit's XML.")
@click.option("--fail-below", "least", metavar="GRADE", type=click.Choice(list(GRADES), case_sensitive=False),
              help="Exit with 1 if the grade is worse.")  # fmt: skip
def command(
    url: str, owned: Names, more: Names, only: Names, limit: float, connections: int, least: str | None, **files: File
) -> None:
    """Measure when, how and by which rule a server ends slow clients, and grade it from A to F.

    \b
      python -m loadtest check http://127.0.0.1:8000/
      python -m loadtest check http://127.0.0.1:8000/ --limit 61 --only silent slow-header
      python -m loadtest check https://127.0.0.1:8443/large --html report.html --fail-below B

    A few connections make every attack at the same time, for --limit seconds. Then a crowd makes one attack after the
    other while honest clients ask. A URL with a large response makes slow-read sharper. Certificates are not verified.

    Attacks: silent, tls-silent, slow-header, endless-header, slow-body, stalled-body, slow-read, idle, half-close,
    pipelined, websocket-silent, connection-flood, handshake-flood. docs/check.md describes them and the rules.

    Only loopback addresses are attacked, unless --i-own-this-target names the target: a private address by its name or
    itself, a public one by itself.

    Exit codes: 0 measured; 1 the grade is below --fail-below; 2 wrong arguments, a target that may not be attacked, or
    too few ports or descriptors; 3 the target does not answer honest requests; 130 interrupted. Where ports run out, or
    it is interrupted, the files have what was measured.
    """
    names = _names(only, more)
    with explained():
        plan = Plan(resolve(url, owned), names, limit, connections)
        with progress(console) as on_progress:
            report = run_check(plan, on_progress)
    texts = {"json": lambda: as_text(report.as_json()), "html": lambda: shown.page(report)}
    found = {**texts, "junit": lambda: shown.junit(report)}.items()
    conclude(lambda: shown.show(console, report), *((files[f"{kind}_file"], text) for kind, text in found))
    if report.stopped:
        raise click.UsageError(report.stopped)
    if report.interrupted:
        sys.exit(130)
    if least is not None and below(report.grade, least.upper()):
        click.echo(f"The grade {report.grade} is below {least.upper()}.", err=True)
        sys.exit(1)


def _names(only: Names, more: Names) -> frozenset[str]:
    """Return the chosen attacks. `more` are names that follow the one of --only, as shells' users write them."""
    if more and not only:
        raise click.UsageError(f"one URL at a time: {' '.join(more)}")
    names = frozenset(name for text in (*only, *more) for name in text.split(",") if name)
    if unknown := names.difference(NAMES):
        raise click.BadParameter(f"{', '.join(sorted(unknown))} is none of {', '.join(NAMES)}", param_hint="--only")
    return names or frozenset(NAMES)
