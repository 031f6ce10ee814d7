"""The pictures of benchmarks can be read: names stand apart, and each panel has something to show."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from loadtest.bench import runner
from loadtest.bench.contest import Contestant, Metric
from loadtest.bench.plots import bars
from loadtest.bench.results import Results

# matplotlib keeps the fonts open that it has drawn with
pytestmark = pytest.mark.leaks_fds


def drawn(results: Results, path: Path, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Draw the results, and return the picture."""
    with monkeypatch.context() as patched:
        patched.setattr(plt, "close", lambda figure: None)
        bars("a title", results, path)
    figure = plt.gcf()
    plt.close(figure)
    return figure


def results_of(cases: list[str], **metrics: float) -> Results:
    kinds = {name: Metric("ms", "less") for name in metrics}
    results = Results([Contestant("deadlined"), Contestant("peer")], cases, kinds)
    for case in cases:
        results.add("deadlined", case, metrics)
    return results


@pytest.mark.parametrize("name", ["echo", "http", "instructions"])
def test_the_names_of_all_cases_stand_apart(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(runner.load(name).cases())
    (axes,) = drawn(results_of(cases, p50=1.0), tmp_path / "a.png", monkeypatch).axes
    labels = axes.get_xticklabels()
    assert [" ".join(label.get_text().split()) for label in labels] == cases
    places = [label.get_window_extent() for label in labels]
    assert [right.x0 - left.x1 > 0 for left, right in itertools.pairwise(places)] == [True] * (len(cases) - 1)


def test_a_metric_that_is_0_for_all_has_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(results_of(["steady"], p50=1.0, lost=0.0), tmp_path / "a.png", monkeypatch)
    assert [axes.get_title() for axes in figure.axes] == ["p50 (less is better)"]


def test_bars_stand_above_the_names_of_their_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(["few", "many"], p50=1.0)
    results.add("peer", "many", {"p50": 2.0})
    (axes,) = drawn(results, tmp_path / "a.png", monkeypatch).axes
    bounds = [
        (bar.get_x(), bar.get_x() + bar.get_width())
        for group in axes.containers
        for bar in getattr(group, "patches", ())
    ]
    assert sorted(round(sum(each) / 2, 9) for each in bounds) == [0.0, 0.7875, 1.2125]


def test_a_logarithmic_scale_has_some_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(["few"], p50=1.1)
    results.add("peer", "few", {"p50": 90.0})
    (axes,) = drawn(results, tmp_path / "a.png", monkeypatch).axes
    low, high = axes.get_ylim()
    assert len([place for place in axes.get_yticks() if low < place < high]) >= 5
