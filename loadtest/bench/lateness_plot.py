"""The picture of the benchmark `lateness`: distributions instead of bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from .results import Results

# milliseconds; smaller and negative values are drawn here, at the edge of the logarithmic scale
_LEAST = 0.001

Curves = Mapping[tuple[str, str], Mapping[str, float]]


def draw(title: str, results: Results, curves: Curves, path: Path) -> None:
    """Draw a panel for each case with curves (quantiles in seconds by name, "q50"), and one for the ticker."""
    cases = [case for case in results.cases if any(where == case for _, where in curves)]
    figure, panels = plt.subplots(len(cases) + 1, 1, figsize=(11, 4 * len(cases) + 3), squeeze=False,
                                  layout="constrained")  # fmt: skip
    for axes, case in zip(panels[:, 0], cases, strict=False):
        _distribution(axes, case, results, curves)
    _prices(panels[-1, 0], results)
    missing = [f"{contestant.name}, missing: {contestant.missing}" for contestant in results.contestants
               if contestant.missing]  # fmt: skip
    figure.suptitle(title, fontsize=13)
    figure.supxlabel("\n".join(missing), fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _colour(results: Results, name: str) -> tuple[float, float, float, float]:
    place = [contestant.name for contestant in results.contestants].index(name)
    return plt.get_cmap("tab10")(place % 10)


def _distribution(axes: Axes, case: str, results: Results, curves: Curves) -> None:
    for contestant in results.contestants:
        curve = curves.get((contestant.name, case))
        if curve is None:
            continue
        points = sorted((float(name.removeprefix("q")), max(value * 1000, _LEAST)) for name, value in curve.items())
        axes.plot([late for _, late in points], [percent for percent, _ in points],
                  label=contestant.name, color=_colour(results, contestant.name))  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("ms late, or less")
    axes.set_ylabel("% of the timers")
    axes.set_title(case, fontsize=10)
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _prices(axes: Axes, results: Results) -> None:
    """Draw the CPU use of the ticker, with the share of skipped ticks on the bar."""
    for case in results.cases:
        found = [(c.name, results.median(c.name, case, "CPU"), results.median(c.name, case, "ticks skipped"))
                 for c in results.contestants]  # fmt: skip
        for name, cpu, skipped in found:
            if cpu is not None and skipped is not None:
                bars = axes.barh([name], [cpu], color=_colour(results, name))
                axes.bar_label(bars, [f"{skipped:.1f} % of the ticks skipped"], fontsize=7)
    axes.invert_yaxis()
    axes.set_title("a ticker of 1 ms", fontsize=10)
    axes.set_xlabel("% of a core")
    axes.grid(axis="x", alpha=0.3)
