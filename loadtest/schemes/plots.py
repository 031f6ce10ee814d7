"""Pictures of the schemes: a log-log plot for each operation and workload, small enough for documents."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from .results import CASES, Results
from .subjects import SUBJECTS

# one line style per kind: heaps and trees, lists, wheels, baselines
_STYLES = {
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


def file_name(case: str) -> str:
    """Return the picture's name: "START, scheme alone" is schemes-start-scheme-alone.png."""
    return f"schemes-{case.lower().replace(',', '').replace(' ', '-')}.png"


def draw(results: Results, directory: Path) -> None:
    """Draw one picture per case that has figures."""
    directory.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if results.subjects(case):
            _draw(results, case, directory / file_name(case))


def _draw(results: Results, case: str, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for name in SUBJECTS:
        costs = results.costs(case, name)
        if costs:
            colour, line, marker = _STYLES.get(name, ("tab:brown", "-", "."))
            axes.plot(list(costs), list(costs.values()), color=colour, linestyle=line, marker=marker,
                      markersize=4, linewidth=1.3, label=name)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("timers")
    axes.set_ylabel("ns")
    built = "compiled" if results.compiled else "pure Python"
    axes.set_title(f"{case} (timers {built})", fontsize=11)
    axes.grid(which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=80)
    plt.close(figure)
