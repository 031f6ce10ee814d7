"""`python -m loadtest precision`: a timer that comes early is noticed, and a situation is what it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import builds, clocks, lateness, processes, runner
from loadtest.bench.contest import Contestant
from loadtest.bench.lateness import Precision
from loadtest.bench.situations import own_group, stopped

ROOT = Path(__file__).parents[2]

# matplotlib keeps its fonts open
draws = pytest.mark.leaks_fds


def told(monkeypatch: pytest.MonkeyPatch, contestant: str, program: str) -> Precision:
    """The benchmark with one contestant, which does what the program does."""
    monkeypatch.setattr(Precision, "contestants", lambda self: [Contestant(contestant)])
    monkeypatch.setattr(lateness, "program", lambda name: ([sys.executable, "-c", program], {}))
    return Precision(only=["idle"])


def late(*seconds: float) -> str:
    """A program whose timers came so late."""
    return (
        "from loadtest.peers import lateness_report as report;"
        f"report.measure_timers(lambda count, spread: {list(seconds)!r}, 0, 0.0)"
    )


def quick_run(benchmark: Precision, directory: Path) -> tuple[bool, dict[str, Any]]:
    good = runner.run([benchmark], runner.Plan(quick=True), directory)
    return good, json.loads((directory / "precision.json").read_text())


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
    (early,) = [one for one in written["targets"] if one["ours"] == builds.PURE]
    assert (early["metric"], early["reached"]) == ("early", good)


@draws
def test_a_peer_that_comes_early_is_told_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, written = quick_run(told(monkeypatch, "a peer", late(-0.001, 0.0)), tmp_path)
    assert good
    assert [one["median"] for one in written["figures"] if one["metric"] == "early"] == [50.0]
    (curve,) = written["curves"]
    assert curve["contestant"] == "a peer"
    assert len(curve["seconds"]) == 103


@draws
def test_a_driver_that_fails_fails_the_run_and_its_output_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, written = quick_run(told(monkeypatch, builds.PURE, "raise SystemExit('no such driver')"), tmp_path)
    assert not good
    assert "no such driver" in written["failures"][0]["output"]


# Situations.


def measured(pressure: processes.Pressure, suffix: str, timers: int, spread: float) -> dict[str, float]:
    command, environment = lateness.program(builds.PURE + suffix)
    return processes.run([*command, "timers", str(timers), str(spread)], environment, beside=pressure)


@pytest.mark.timed
def test_a_child_that_was_stopped_again_and_again_comes_to_its_end() -> None:
    assert measured(stopped, "", 20, 0.2)["early"] == 0


def test_a_process_is_disturbed_from_when_it_is_warm_until_it_ends() -> None:
    seen: list[str] = []

    @contextmanager
    def pressure(pid: int) -> Iterator[None]:
        seen.append("began" if Path(f"/proc/{pid}").exists() else "too late")
        yield
        seen.append("ended")

    program = "print('warm', flush=True); print('{\"early\": 0}')"
    assert processes.run([sys.executable, "-c", program], beside=pressure) == {"early": 0.0}
    assert seen == ["began", "ended"]


def test_a_child_that_has_ended_is_not_stopped_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    noticed = threading.Event()

    def gone(pid: int, number: int) -> None:
        tried.append(number)
        noticed.set()
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    # an error of the thread would fail the test
    with stopped(1):
        assert noticed.wait(30)
    assert tried == [signal.SIGSTOP]


@pytest.mark.timed
def test_a_quota_leaves_no_group_behind() -> None:
    groups = {path for path in (own_group(""), own_group("cpu")) if path is not None}
    for pressure in Precision().pressures.values():
        assert measured(pressure, lateness.THREAD, 5, 0.01)["early"] == 0
    assert not [left for group in groups for left in group.glob("deadlined-*")]


def test_the_own_group_is_found_in_either_version() -> None:
    mounts = (
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    )
    groups = "4:cpu,cpuacct:/docker/7\n1:name=systemd:/\n0::/user.slice\n"
    assert own_group("", mounts, groups) == Path("/sys/fs/cgroup/unified/user.slice")
    assert own_group("cpu", mounts, groups) == Path("/sys/fs/cgroup/cpu,cpuacct/docker/7")
    assert own_group("memory", mounts, groups) is None
    assert own_group("cpu", "", groups) is None


# Clocks.


def test_the_smallest_step_is_found_and_a_clock_that_stands_still_has_none() -> None:
    readings = iter([0.0, 0.0, 3.0, 3.0, 5.0, 5.0, 5.0, 9.0, *([9.0] * 100)])
    assert clocks.step(lambda: next(readings), 20) == 2.0
    assert clocks.step(lambda: 7.0, 20) == float("inf")


def test_every_clock_has_a_cost_and_a_step() -> None:
    benchmark = clocks.BENCHMARK.quick()
    names = [contestant.name for contestant in benchmark.contestants() if contestant.missing is None]
    assert {"time.monotonic", "time.perf_counter", "trio.current_time"} <= set(names)
    for name in names:
        found = benchmark.measure(name, clocks.CASE)
        assert found.keys() <= benchmark.metrics.keys()
        assert 0.0 < found["step"] < 1e9


# End to end.


@pytest.mark.timed
def test_a_quick_run_measures_everybody_or_says_why_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "precision", "--quick", "--situation", "idle",
               "--results", str(tmp_path), "--pictures", str(tmp_path / "img")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "precision.json").read_text())
    assert written["failures"] == []
    assert all(target["reached"] is not False for target in written["targets"])
    measured = {figure["contestant"] for figure in written["figures"]}
    for contestant in written["contestants"]:
        assert (contestant["name"] in measured) != bool(contestant["missing"])
    assert (tmp_path / "img" / "precision.png").stat().st_size < 100_000
    assert (tmp_path / "precision-clocks.json").exists()
