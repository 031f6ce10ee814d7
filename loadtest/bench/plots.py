"""The pictures of all benchmarks, drawn by matplotlib without a screen: bars, and how costs grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from ..report import machine
from .results import Results
from .spread import Spread

# above this many times the least, the bars of a panel are drawn on a logarithmic scale
_WIDE = 20.0
# where there is no bar
_NOTHING = Spread(math.nan, math.nan, math.nan)


def bars(title: str, results: Results, path: Path) -> None:
    """Draw grouped bars: a panel per metric, a group per case, a bar per contestant with its interval as whiskers.

    Metrics that are not compared are left out, unless none is. The footer names contestants without figures.
    """
    known = [name for name in results.metrics if any(key[2] == name for key in results.values)]
    metrics = [name for name in known if results.metrics[name].better is not None] or known
    down = len(metrics)
    figure, panels = plt.subplots(down, 1, figsize=(12, 1.5 + 3.2 * down), squeeze=False, layout="constrained")
    for axes, metric in zip(panels[:, 0], metrics, strict=True):
        _panel(axes, results, metric)
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(_footer(results), fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axes: Axes, results: Results, metric: str) -> None:
    kind = results.metrics[metric]
    cases = [case for case in results.cases if metric in results.metrics_of(case)]
    colours = {one.name: plt.get_cmap("tab20")(number % 20) for number, one in enumerate(results.contestants)}
    names = [name for name in colours if any((name, case, metric) in results.values for case in cases)]
    width = 0.85 / len(names)
    heights: list[float] = []
    for place, name in enumerate(names):
        spreads = [results.spread(name, case, metric) or _NOTHING for case in cases]
        places = [group + (place - (len(names) - 1) / 2) * width for group in range(len(cases))]
        whiskers = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        medians = [spread.median for spread in spreads]
        axes.bar(places, medians, width, yerr=whiskers, label=name, color=colours[name], error_kw={"linewidth": 0.8})
        heights += [median for median in medians if median > 0]
    if heights and max(heights) > _WIDE * min(heights):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    better = f" ({kind.better} is better)" if kind.better else ""
    axes.set_title(f"{metric}{better}", fontsize=10)
    axes.set_ylabel(kind.unit)
    axes.set_xticks(range(len(cases)), cases)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _footer(results: Results) -> str:
    facts = machine()
    lines = [f"{facts['system']}, {facts['cores']} cores, Python {facts['python']}, malloc: {facts['malloc']}"]
    lines += [f"{c.name}, missing: {c.missing}" for c in results.contestants if c.missing]
    lines += [f"{name}, {case}: failed" for name, case in results.failures]
    return "\n".join(lines)


# panels side by side
_ACROSS: Final = 3
# of the queues in their order; two that cross in a panel differ in colour and in shape
_LINES: Final = plt.rcParams["axes.prop_cycle"] + cycler(marker=["o", "s", "^", "v", "x"] * 2)


def growths(title: str, costs: Mapping[str, Mapping[str, Mapping[int, float]]], path: Path) -> None:
    """Draw a panel for each case: nanoseconds by the number of timers, both logarithmic, a line per queue."""
    down = math.ceil(len(costs) / _ACROSS)
    size = (15, 1 + 3.4 * down)
    figure, panels = plt.subplots(down, _ACROSS, figsize=size, squeeze=False, layout="constrained", sharex=True)
    for axes in panels.flat[len(costs) :]:
        axes.remove()
    for axes, (case, queues) in zip(panels.flat, costs.items(), strict=False):
        axes.set_prop_cycle(_LINES)
        for name, found in queues.items():
            axes.loglog(list(found), list(found.values()), markersize=4, linewidth=1.3, label=name)
        axes.set_title(case, fontsize=11)
        axes.grid(which="major", alpha=0.3)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    figure.supxlabel("timers")
    figure.supylabel("ns")
    figure.suptitle(title, fontsize=13)
    figure.savefig(path, dpi=80)
    plt.close(figure)
