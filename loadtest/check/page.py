"""A report as one HTML page: no script, no network, plots as SVG within it."""

from __future__ import annotations

import math
from html import escape

from .grade import RULES
from .outcome import Outcome, Report
from .shown import advice_of, cells

# the plots' pixels
_WIDTH, _ROW, _LABELS = 760, 24, 150

_STYLE = """
:root { --pass: #1a7f37; --weak: #9a6700; --fail: #cf222e; --none: #6e7781; color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top;
border-bottom: 1px solid #8884; } .grade { font-size: 3rem; font-weight: 700; } .pass { color: var(--pass); }
.weak { color: var(--weak); } .fail { color: var(--fail); } .none { color: var(--none); }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.bar.pass { fill: var(--pass); } .bar.weak { fill: var(--weak); } .bar.fail { fill: var(--fail); }
.bar.none { fill: var(--none); } .axis { stroke: #8886; } pre { white-space: pre-wrap; }
"""


def page(report: Report) -> str:
    """Return the document."""
    rows = "".join(_row(outcome) for outcome in report.outcomes)
    advice = "".join(f"<li><b>{escape(', '.join(names))}</b>: {escape(text)}</li>" for text, names in advice_of(report))
    early = "<p><b>Interrupted: this is what was measured until then.</b></p>" if report.interrupted else ""
    if report.gone:
        early += f"<p><b>After the attacks: {escape(report.gone)}</b></p>"
    heads = "".join(f"<th>{head}</th>" for head in ("attack", "verdict", "kind", "after", "end", "honest p99", "why"))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(report.target)}: {report.grade}</title>
<style>{_STYLE}</style></head><body>
<h1>{escape(report.target)}</h1>
<p>{escape(report.server)}, {escape(report.at)}, watched for {report.limit:g} s</p>{early}
<p>Grade <span class="grade">{report.grade}</span></p>
<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>
<h2>For how long a connection is held</h2>{_held(report)}
<h2>What honest clients feel</h2>{_felt(report)}
<h2>What to change</h2><ul>{advice or "<li>nothing</li>"}</ul>
<h2>Rules</h2><pre>{escape(RULES)}</pre>
</body></html>
"""


def _class(outcome: Outcome) -> str:
    return outcome.verdict if outcome.verdict in ("pass", "weak", "fail") else "none"


def _row(outcome: Outcome) -> str:
    shown = "".join(f"<td>{escape(text)}</td>" for text in cells(outcome))
    name = f'<td title="{escape(outcome.attack.does)}">{escape(outcome.attack.name)}</td>'
    return f'<tr>{name}<td class="{_class(outcome)}">{outcome.verdict}</td>{shown}</tr>\n'


def _held(report: Report) -> str:
    """Draw the seconds of each attack on a logarithmic axis; what was never ended reaches the right edge."""
    shown = [one for one in report.outcomes if one.attack.enough is not None and one.deadline.connections]
    least = 0.001
    span = math.log10(max(report.limit, 2 * least) / least)

    def place(seconds: float) -> float:
        return min(1.0, max(0.005, math.log10(max(seconds, least) / least) / span))

    bars = []
    for outcome in shown:
        seconds = outcome.deadline.seconds
        text = "not ended" if seconds is None else f"{seconds:.3f} s"
        bars.append((outcome, 1.0 if seconds is None else place(seconds), text))
    marks = [(place(10.0**power), f"{10.0**power:g} s") for power in range(-3, 4) if 10.0**power <= report.limit]
    return _chart(bars, marks)


def _felt(report: Report) -> str:
    """Draw the 99th percentile of honest requests during each attack, beside that of calm."""
    shown = [(one, one.honest.p99_ms or 1000.0, one.honest.failed) for one in report.outcomes if one.honest]
    most = max([100.0, *(p99 for _, p99, _ in shown)])
    bars = [(one, p99 / most, f"{p99:.1f} ms" + (f", {failed} failed" if failed else "")) for one, p99, failed in shown]
    calm = report.calm.p99_ms or 0.0
    return _chart(bars, [(0.0, "0"), (calm / most, f"calm {calm:.1f} ms"), (1.0, f"{most:.0f} ms")])


def _chart(bars: list[tuple[Outcome, float, str]], marks: list[tuple[float, str]]) -> str:
    """Draw horizontal bars, whose lengths and marks are parts of the width."""
    if not bars:
        return "<p>Not measured.</p>"
    inner = _WIDTH - _LABELS - 130
    height = _ROW * len(bars) + 28
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for where, text in marks:
        x = _LABELS + where * inner
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{escape(text)}</text>')
    for number, (outcome, length, text) in enumerate(bars):
        y = number * _ROW + 3
        kind = _class(outcome)
        parts.append(f'<text x="0" y="{y + 13}">{escape(outcome.attack.name)}</text>')
        parts.append(
            f'<rect class="bar {kind}" x="{_LABELS}" y="{y}" width="{max(1.0, length * inner):.1f}" height="16"/>'
        )
        parts.append(f'<text x="{_LABELS + length * inner + 6:.1f}" y="{y + 13}">{escape(text)}</text>')
    return "".join([*parts, "</svg>"])
