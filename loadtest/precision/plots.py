"""The picture of precision: the distribution of the lateness, a panel per situation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from .run import Results

PERCENTS: Final = (*range(1, 100), 99.5, 99.9, 100)

# milliseconds; smaller values are drawn at the edge
LEAST: Final = 0.001


def draw(results: Results, path: Path) -> None:
    """Draw the picture, small enough for documents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    situations = results.situations
    figure, panels = plt.subplots(len(situations), 1, figsize=(8, 0.7 + 2.5 * len(situations)), squeeze=False,
                                  sharex=True, layout="constrained")  # fmt: skip
    for axes, situation in zip(panels[:, 0], situations, strict=True):
        _panel(axes, results, situation)
    panels[-1, 0].set_xlabel("ms late, or less")
    # all panels have the same drivers
    panels[0, 0].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _panel(axes: Axes, results: Results, situation: str) -> None:
    for place, driver in enumerate(results.drivers):
        lateness = results.found.get((situation, driver.name))
        if lateness is not None:
            late = [max(value, LEAST) for value in lateness.curve(PERCENTS)]
            axes.plot(late, PERCENTS, label=driver.name, color=plt.get_cmap("tab10")(place % 10),
                      linestyle="-" if driver.ours else "--", linewidth=1.3)  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylabel("% of the timers")
    axes.set_title(situation, fontsize=10)
    axes.grid(which="major", alpha=0.3)
