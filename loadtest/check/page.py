"""A report as one HTML page, without a script and without a network, and as JUnit's XML: the templates report.*."""

from __future__ import annotations

import math
from pathlib import Path

from ..commands import rendered
from .grade import RULES
from .outcome import Outcome, Report
from .shown import cells

_FOLDER = Path(__file__).parent

# a bar's attack, its length as a part of the width, and its text
Bar = tuple[Outcome, float, str]
# a mark's place as a part of the width, and its text
Mark = tuple[float, str]


def page(report: Report) -> str:
    """Return the page."""
    charts = {"For how long a connection is held": _held(report), "What honest clients feel": _felt(report)}
    return rendered(_FOLDER / "report.html", report=report, charts=charts, cells=cells, rules=RULES)


def junit(report: Report) -> str:
    """Return JUnit's XML. A weak verdict is no failure: --fail-below decides about the whole."""
    return rendered(_FOLDER / "report.xml", report=report)


def _held(report: Report) -> tuple[list[Bar], list[Mark]]:
    """Draw the seconds of each attack on a logarithmic axis; what was never ended reaches the right edge."""
    least = 0.001
    span = math.log10(max(report.limit, 2 * least) / least)

    def bar(outcome: Outcome) -> Bar:
        seconds = outcome.deadline.seconds
        return (outcome, 1.0, "not ended") if seconds is None else (outcome, place(seconds), f"{seconds:.3f} s")

    def place(seconds: float) -> float:
        return min(1.0, max(0.005, math.log10(max(seconds, least) / least) / span))

    shown = [one for one in report.outcomes if one.attack.enough is not None and one.deadline.connections]
    marks = [(place(10.0**power), f"{10.0**power:g} s") for power in range(-3, 4) if 10.0**power <= report.limit]
    return [bar(one) for one in shown], marks


def _felt(report: Report) -> tuple[list[Bar], list[Mark]]:
    """Draw the 99th percentile of honest requests during each attack, beside that of calm."""
    shown = [(one, one.honest.p99_ms or 1000.0, one.honest.failed) for one in report.outcomes if one.honest]
    most = max([100.0, *(p99 for _, p99, _ in shown)])
    bars = [(one, p99 / most, f"{p99:.1f} ms" + (f", {failed} failed" if failed else "")) for one, p99, failed in shown]
    calm = report.calm.p99_ms or 0.0
    return bars, [(0.0, "0"), (calm / most, f"calm {calm:.1f} ms"), (1.0, f"{most:.0f} ms")]
