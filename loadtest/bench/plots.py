"""The pictures of all benchmarks, drawn by matplotlib without a screen: bars, distributions, and how costs grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from ..report import machine
from .results import Results

# above this many times the least, the bars of a panel are drawn on a logarithmic scale
_WIDE = 20.0


def bars(title: str, results: Results, path: Path) -> None:
    """Draw grouped bars: a panel per metric, a group per case, a bar per contestant with its interval as whiskers.

    The footer names contestants without figures.
    """
    metrics = _drawn(results)
    figure, panels = plt.subplots(
        len(metrics), 1, figsize=(12, 1.5 + 3.2 * len(metrics)), squeeze=False, layout="constrained"
    )
    for axes, metric in zip(panels[:, 0], metrics, strict=True):
        _panel(axes, results, metric)
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(_footer(results), fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _drawn(results: Results) -> list[str]:
    """Return the metrics that are compared, or all if none is."""
    known = [name for name in results.metrics if any(key[2] == name for key in results.values)]
    return [name for name in known if results.metrics[name].better is not None] or known


def _panel(axes: Axes, results: Results, metric: str) -> None:
    kind = results.metrics[metric]
    cases = [case for case in results.cases if metric in results.metrics_of(case)]
    names = [c.name for c in results.contestants if any((c.name, case, metric) in results.values for case in cases)]
    width = 0.85 / len(names)
    drawn: list[float] = []
    for place, name in enumerate(names):
        colour = plt.get_cmap("tab20")([c.name for c in results.contestants].index(name) % 20)
        found = [(group, results.spread(name, case, metric)) for group, case in enumerate(cases)]
        spreads = [(group, spread) for group, spread in found if spread is not None]
        heights = [spread.median for _, spread in spreads]
        whiskers = [[s.median - s.low for _, s in spreads], [s.high - s.median for _, s in spreads]]
        places = [group + (place - (len(names) - 1) / 2) * width for group, _ in spreads]
        axes.bar(places, heights, width, yerr=whiskers, label=name, color=colour, error_kw={"linewidth": 0.8})
        drawn += heights
    positive = [height for height in drawn if height > 0]
    if positive and max(positive) > _WIDE * min(positive):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    better = f" ({kind.better} is better)" if kind.better else ""
    axes.set_title(f"{metric}{better}", fontsize=10)
    axes.set_ylabel(kind.unit)
    axes.set_xticks(range(len(cases)), cases)
    axes.grid(axis="y", alpha=0.3)
    _legend(axes)


def _footer(results: Results) -> str:
    facts = machine()
    lines = [f"{facts['system']}, {facts['cores']} cores, Python {facts['python']}, malloc: {facts['malloc']}"]
    lines += [f"{c.name}, missing: {c.missing}" for c in results.contestants if c.missing]
    lines += [f"{name}, {case}: failed" for name, case in results.failures]
    return "\n".join(lines)


# one line style per kind: heaps and trees, lists, wheels, baselines
_STYLES: Final = {
    "heap4": ("tab:blue", "-", "o"),
    "heap2": ("tab:cyan", "-", "o"),
    "tree": ("tab:purple", "-", "o"),
    "sorted": ("tab:red", "--", "s"),
    "unsorted": ("tab:orange", "--", "s"),
    "wheel": ("tab:green", "-.", "^"),
    "hashed": ("tab:olive", "-.", "^"),
    "hierarchical": ("teal", "-.", "^"),
    "kernel": ("limegreen", "-.", "^"),
    "heapq, lazy": ("black", ":", "x"),
    "heap, eager": ("grey", ":", "x"),
}


def growths(title: str, costs: Mapping[str, Mapping[int, float]], path: Path) -> None:
    """Draw nanoseconds by the number of timers, both logarithmic, a line per queue; small enough for documents."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for name, found in costs.items():
        if found:
            colour, line, marker = _STYLES.get(name, ("tab:brown", "-", "."))
            axes.plot(list(found), list(found.values()), color=colour, linestyle=line, marker=marker,
                      markersize=4, linewidth=1.3, label=name)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("timers")
    axes.set_ylabel("ns")
    axes.set_title(title, fontsize=11)
    axes.grid(which="major", alpha=0.3)
    _legend(axes)
    figure.savefig(path, dpi=80)
    plt.close(figure)


# milliseconds; smaller and negative values are drawn here, at the edge of the logarithmic scale
_LEAST: Final = 0.001

Curves = Mapping[tuple[str, str], Mapping[str, float]]


def distributions(title: str, results: Results, curves: Curves, path: Path) -> None:
    """Draw a panel for each case with curves (quantiles in seconds by name, "q50"), and one for a ticker, if any."""
    cases = [case for case in results.cases if any(where == case for _, where in curves)]
    ticks = "CPU" in _drawn(results)
    figure, panels = plt.subplots(
        len(cases) + ticks, 1, figsize=(9, 2.6 * (len(cases) + ticks)), squeeze=False, layout="constrained"
    )
    for axes, case in zip(panels[:, 0], cases, strict=False):
        _distribution(axes, case, results, curves)
    if ticks:
        _prices(panels[-1, 0], results)
    missing = [f"{contestant.name}, missing: {contestant.missing}" for contestant in results.contestants
               if contestant.missing]  # fmt: skip
    figure.suptitle(title, fontsize=13)
    figure.supxlabel("\n".join(missing), fontsize=7)
    figure.savefig(path, dpi=80)
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
    _legend(axes)


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


def _legend(axes: Axes) -> None:
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
