"""The pictures of all benchmarks, drawn by matplotlib without a screen: bars, and how costs grow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from ..report import machine
from .results import Results
from .spread import Spread

# above this many times the least, the bars of a panel are drawn on a logarithmic scale
_WIDE = 20.0


def bars(title: str, results: Results, path: Path) -> None:
    """Draw grouped bars: a panel per metric, a group per case, a bar per contestant with its interval as whiskers.

    Metrics that are not compared, and those that are 0 for all, are left out, unless none is left. The footer names
    contestants without figures.
    """
    known = [name for name in results.metrics if any(key[2] == name for key in results.values)]
    differing = {key[2] for key, values in results.values.items() if any(values)}
    metrics = [name for name in known if results.metrics[name].better is not None and name in differing] or known
    # inches: as wide as the names of its cases need
    size = (max(12.0, 3 + 0.75 * len(results.cases)), 1.5 + 3.2 * len(metrics))
    figure, panels = plt.subplots(len(metrics), 1, figsize=size, squeeze=False, layout="constrained")
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
    measured = {case: [name for name in colours if (name, case, metric) in results.values] for case in cases}
    width = 0.85 / max(map(len, measured.values()))
    heights: list[float] = []
    for name in [name for name in colours if any(name in names for names in measured.values())]:
        found = [(group, names) for group, names in enumerate(measured.values()) if name in names]
        places = [group + (names.index(name) - (len(names) - 1) / 2) * width for group, names in found]
        spreads = [Spread.of(results.values[name, cases[group], metric]) for group, _ in found]
        whiskers = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        medians = [spread.median for spread in spreads]
        axes.bar(places, medians, width, yerr=whiskers, label=name, color=colours[name], error_kw={"linewidth": 0.8})
        heights += [median for median in medians if median > 0]
    if heights and max(heights) > _WIDE * min(heights):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(metric + (f" ({kind.better} is better)" if kind.better else ""), fontsize=10)
    axes.set_ylabel(kind.unit)
    # letters in a line, of which 150 fit 9 inches
    labels = [textwrap.fill(case, max(12, 150 // len(cases)), break_long_words=False) for case in cases]
    axes.set_xticks(range(len(cases)), labels, fontsize=7)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _footer(results: Results) -> str:
    facts = machine()
    lines = [f"{facts['system']}, {facts['cores']} cores, Python {facts['python']}, malloc: {facts['malloc']}"]
    lines += [f"{c.name}, missing: {c.missing}" for c in results.contestants if c.missing]
    lines += [f"{name}, {case}: failed" for name, case in results.failures]
    return "\n".join(lines)


# panels side by side
_ACROSS = 2
# of the queues in their order; two that cross in a panel differ in colour and in shape
_LINES = plt.rcParams["axes.prop_cycle"] + cycler(marker=["o", "s", "^", "v", "x"] * 2)


def growths(title: str, costs: Mapping[str, Mapping[str, Mapping[int, float]]], path: Path) -> None:
    """Draw a panel for each case: nanoseconds by the number of timers, both logarithmic, a line per queue."""
    down = math.ceil(len(costs) / _ACROSS)
    figure, panels = plt.subplots(down, _ACROSS, figsize=(11, 1 + 3.4 * down), squeeze=False, layout="constrained")
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
