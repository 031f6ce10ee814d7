"""Figures that do not count: of a server that waited for its client, of deadlines that make something faster, of a
checkout that changed meanwhile, of a quick run. And which of them reach no target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import runner
from loadtest.bench.contest import Benchmark, Contestant, Metric, Target
from loadtest.bench.results import Results, judge

ECHO, WEB = runner.load("echo"), runner.load("http")
WITH, WITHOUT = "deadlined", "deadlined, none"
METRICS = {
    "rate": Metric("/s", "more"),
    "cpu": Metric("us", "less"),
    "busy": Metric("%", None),
}


class Server(Benchmark):
    """A server with and without deadlines; `figures` are what each start measures."""

    name = "server"
    title = "A server"
    metrics: Mapping[str, Metric] = METRICS
    bare: Mapping[str, str] = {WITH: WITHOUT}
    repetitions = 2

    def __init__(self, figures: Mapping[str, Mapping[str, float]]) -> None:
        self._figures = figures

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant(name) for name in self._figures]

    def cases(self) -> Sequence[str]:
        return "one", "many"

    def saturates(self, case: str) -> bool:
        return case == "many"

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        return self._figures[contestant]

    def quick(self) -> Self:
        return self


def judged(figures: Mapping[str, Sequence[Mapping[str, float]]], case: str = "many") -> dict[tuple[str, str], str]:
    results = Results([Contestant(name) for name in figures], [case], METRICS)
    for name, starts in figures.items():
        for found in starts:
            results.add(name, case, found)
    return judge(Server({}), results)


@pytest.mark.parametrize(("busy", "case", "counts"), [(99, "many", True), (60, "many", False), (60, "one", True)])
def test_a_server_that_waited_for_its_client_shows_the_clients_rate(busy: float, case: str, counts: bool) -> None:
    found = judged({WITH: [{"rate": 10.0, "busy": busy}]}, case)
    assert found == ({} if counts else {(WITH, case): "the server was not the bottleneck: it used 60 % of its core"})


@pytest.mark.parametrize(
    ("ours", "bare", "counts"),
    [
        ([{"rate": 100.0}] * 3, [{"rate": 101.0}] * 3, True),
        ([{"rate": 110.0}] * 3, [{"rate": 100.0}] * 3, False),
        ([{"cpu": 9.0}] * 3, [{"cpu": 10.0}] * 3, False),
        ([{"cpu": 10.0}] * 3, [{"cpu": 9.0}] * 3, True),
        # within the noise of its starts
        ([{"rate": rate} for rate in (90.0, 103.0, 118.0)], [{"rate": rate} for rate in (88.0, 101.0, 117.0)], True),
    ],
)
def test_deadlines_make_nothing_faster(
    ours: Sequence[Mapping[str, float]], bare: Sequence[Mapping[str, float]], counts: bool
) -> None:
    found = judged({WITH: ours, WITHOUT: bare})
    assert (not found) is counts
    if not counts:
        assert f"than without ({WITHOUT})" in found[WITH, "many"]
        assert f"than with them ({WITH})" in found[WITHOUT, "many"]


@pytest.mark.leaks_fds  # matplotlib's fonts
def test_a_run_with_figures_that_do_not_count_has_failed_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server({WITH: {"rate": 10.0, "busy": 40.0}})
    server.targets = (Target("many", "rate", WITH, "", at_least=1.0),)
    assert not runner.run([server], runner.Plan(), tmp_path)
    told = " ".join(capsys.readouterr().out.split())
    assert "invalid: the server was" in told
    assert (tmp_path / "bench-server.json").read_text().count("was not the bottleneck") == 2, (
        "of the pair, of its target"
    )
    assert runner.run([server], runner.Plan(quick=True), tmp_path)


@pytest.mark.leaks_fds
def test_a_quick_run_takes_the_place_of_no_other_and_is_added_to_none(tmp_path: Path) -> None:
    server = Server({WITH: {"rate": 10.0, "busy": 99.0}})
    runner.run([server], runner.Plan(), tmp_path)
    whole = (tmp_path / "bench-server.json").read_text()
    runner.run([server], runner.Plan(quick=True), tmp_path)
    assert (tmp_path / "bench-server.json").read_text() == whole
    assert json.loads((tmp_path / "bench-server-quick.json").read_text())["quick"]
    with pytest.raises(RuntimeError, match="of a quick run"):
        runner.run([server], runner.Plan(quick=True, add=True), tmp_path)


@pytest.mark.leaks_fds
@pytest.mark.parametrize("changes", [False, True])
def test_figures_of_a_checkout_that_changed_meanwhile_do_not_count(
    changes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = {"commit": "first", "dirty": False, "changes": ""}
    monkeypatch.setattr(runner, "revision", checkout.copy)

    class Changing(Server):
        def measure(self, contestant: str, case: str) -> Mapping[str, float]:
            checkout.update(commit="second" if changes else "first")
            return super().measure(contestant, case)

    server = Changing({WITH: {"rate": 10.0, "busy": 99.0}})
    assert runner.run([server], runner.Plan(), tmp_path) is not changes
    written = json.loads((tmp_path / "bench-server.json").read_text())
    assert written["commit"] == "first"
    reasons = ["the run has begun with commit 'first', and ended with another"] * 2 if changes else []
    assert [one["why"] for one in written["invalid"]] == reasons


@pytest.mark.parametrize(("most", "reached"), [((0.0, 0.0), True), ((0.0, 0.1), False), ((0.05, 0.1), True)])
def test_what_must_never_happen_is_judged_by_the_worst_start(most: tuple[float, float], reached: bool) -> None:
    allowed, worst = most
    results = Results([Contestant(WITH)], ["one"], METRICS)
    for value in (0.0, 0.0, worst):
        results.add(WITH, "one", {"rate": value})
    verdict = results.verdict(Target("one", "rate", WITH, "", at_most=allowed))
    assert verdict.reached is reached
    assert verdict.judged == (worst if not allowed else 0.0)
    # the largest value has no interval
    assert (verdict.found is None, "to" in verdict.shown) == (not allowed, bool(allowed))


@pytest.mark.parametrize("failed", [WITH, WITHOUT])
def test_a_target_of_a_contestant_that_failed_in_a_later_start_is_not_reached(failed: str) -> None:
    results = Results([Contestant(WITH), Contestant(WITHOUT)], ["many"], METRICS)
    for name in (WITH, WITHOUT):
        results.add(name, "many", {"rate": 10.0})
    target = Target("many", "rate", WITH, WITHOUT, at_least=1.0)
    assert results.verdict(target).reached
    results.failures[failed, "many"] = "RuntimeError: gone\nits output"
    verdict = results.verdict(target)
    assert (verdict.reached, verdict.label, verdict.invalid) == (None, "invalid", "failed: RuntimeError: gone")


@pytest.mark.parametrize("benchmark", [ECHO, WEB], ids=lambda benchmark: str(benchmark.name))
def test_each_server_with_deadlines_has_a_bare_one(benchmark: Benchmark) -> None:
    assert benchmark.bare
    assert "busy" in benchmark.metrics
