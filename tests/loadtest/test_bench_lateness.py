"""The benchmark `lateness`: a timer that comes early is noticed, and each is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import builds, processes, runner
from loadtest.bench.contest import Contestant
from loadtest.bench.programs import Lateness, busy_core
from loadtest.peers import lateness

ROOT = Path(__file__).parents[2]

# matplotlib keeps its fonts open
draws = pytest.mark.leaks_fds


def told(monkeypatch: pytest.MonkeyPatch, contestant: str, program: str) -> Lateness:
    """The benchmark with one contestant, which does what the program does."""
    monkeypatch.setattr(Lateness, "contestants", lambda self: [Contestant(contestant)])

    def command(self: Lateness, name: str, *sizes: object) -> list[str]:
        return [sys.executable, "-c", program, "a variant", *map(str, sizes)]

    monkeypatch.setattr(Lateness, "command", command)
    return Lateness("lateness")


def late(*seconds: float) -> str:
    """A program whose timers came so late."""
    return (
        f"from loadtest.peers import lateness as report;report.main(lambda variant, count, spread: {list(seconds)!r})"
    )


def quick_run(benchmark: Lateness, directory: Path) -> tuple[bool, dict[str, Any]]:
    good = runner.run([benchmark], runner.Plan(quick=True), directory)
    return good, json.loads((directory / "bench-lateness-quick.json").read_text())


# Never early.


@draws
@pytest.mark.parametrize(
    ("seconds", "good"), [((0.001, 0.0), True), ((0.001, -0.000001), False)], ids=["an honest one", "a liar"]
)
def test_a_timer_of_ours_that_came_early_fails_the_run(
    seconds: tuple[float, ...], good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, written = quick_run(told(monkeypatch, builds.PURE, late(*seconds)), tmp_path)
    assert found is good
    reached = {one["reached"] for one in written["targets"] if (one["ours"], one["metric"]) == (builds.PURE, "early")}
    assert reached == {good}


@draws
def test_a_peer_that_comes_early_is_told_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, written = quick_run(told(monkeypatch, "a peer", late(-0.001, 0.0)), tmp_path)
    assert good
    assert {one["median"] for one in written["figures"] if one["metric"] == "early"} == {50.0}


@draws
def test_a_driver_that_fails_fails_the_run_and_its_output_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, written = quick_run(told(monkeypatch, builds.PURE, "raise SystemExit('no such driver')"), tmp_path)
    assert not good
    assert "no such driver" in written["failures"][0]["output"]


@pytest.mark.parametrize("way", ["", ", TimerThread", ", precise", "trio sleep_until"])
@pytest.mark.timed
def test_no_timer_comes_early(way: str) -> None:
    benchmark = Lateness("lateness", quick=True)
    idle, _ = benchmark.cases()
    found = benchmark.measure(way if way.startswith("trio") else builds.INSTALLED + way, idle)
    assert found["early"] == 0
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
    assert found.keys() == benchmark.metrics.keys()


# What disturbs.


def test_the_busy_loop_runs_until_it_is_not_needed_any_more() -> None:
    with busy_core() as process:
        assert os.sched_getaffinity(process.pid) == {processes.SERVER_CORE}
        assert process.poll() is None
    assert process.poll() is not None


# The report.


def test_what_came_before_it_was_due_is_early() -> None:
    found = lateness.figures([0.001, -0.001, 0.002, 0.0])
    assert found["early"] == 25.0
    assert found["max"] == pytest.approx(2.0, rel=0.002)


def test_a_quantile_keeps_three_digits() -> None:
    found = lateness.figures([place / 1000 for place in range(1, 1001)])
    assert found["p50"] == pytest.approx(500, rel=0.002)
    assert found["p99.9"] == pytest.approx(999, rel=0.002)


def test_one_nanosecond_early_is_early_and_on_time_is_not() -> None:
    assert lateness.figures([0.0, 1e-9])["early"] == 0
    assert lateness.figures([0.0, -1e-9])["early"] == 50.0


def test_timers_that_were_made_too_late_are_refused() -> None:
    due = lateness.due_times(100, 1.0, 50.0)
    lateness.require_lead(due, 50.0 + lateness.LEAD)
    with pytest.raises(RuntimeError, match="too long"):
        lateness.require_lead(due, 52.0)


def test_timers_are_the_same_in_every_process() -> None:
    assert lateness.due_times(10, 1.0, 0.0) == lateness.due_times(10, 1.0, 0.0)


def test_each_timer_is_armed_for_its_time_and_the_last_one_ends_the_wait() -> None:
    now, armed, done = [50.0], [], []
    found = lateness.armed(
        3, 1.0, lambda: now[0], lambda when, fire: armed.append((when, fire)), lambda: done.append(True)
    )
    assert [when for when, _ in armed] == lateness.due_times(3, 1.0, 50.0)
    for when, fire in armed:
        assert not done
        now[0] = when + 0.25
        fire(when)
    assert found == pytest.approx([0.25] * 3)
    assert done == [True]


# End to end.


@pytest.mark.timed
def test_a_quick_run_measures_everybody_or_says_why_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "bench", "lateness", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "bench-lateness-quick.json").read_text())
    assert written["failures"] == []
    assert all(target["reached"] is not False for target in written["targets"])
    measured = {figure["contestant"] for figure in written["figures"]}
    for contestant in written["contestants"]:
        assert (contestant["name"] in measured) != bool(contestant["missing"])
    assert (tmp_path / "bench-lateness-quick.png").stat().st_size > 1000


def test_every_target_speaks_of_what_there_is() -> None:
    benchmark = runner.load("lateness")
    contestants = {contestant.name for contestant in benchmark.contestants()}
    for target in benchmark.targets:
        assert target.case in benchmark.cases()
        assert target.metric in benchmark.metrics
        assert {target.ours, target.theirs or target.ours} <= contestants
