"""`python -m loadtest precision`: a timer that comes early is noticed, and a situation is what it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.precision import clocks, run
from loadtest.precision.drivers import Driver, drivers
from loadtest.precision.lateness import Lateness
from loadtest.precision.situations import Situation, own_group, situations, stopped

ROOT = Path(__file__).parents[2]

# matplotlib keeps its fonts open
draws = pytest.mark.leaks_fds


@dataclass(frozen=True)
class Told(Driver):
    """A driver whose timers came when they were told to: seconds late."""

    late: tuple[float, ...] = ()

    def command(self, count: int, spread: float) -> list[str]:
        program = (
            "import json; from loadtest.precision.lateness import Lateness; print('warm');"
            f"print(json.dumps(Lateness.of({self.late!r}).document()))"
        )
        return [sys.executable, "-c", program]


# Lateness.


def test_lateness_is_counted_and_a_percentile_keeps_three_digits() -> None:
    found = Lateness.of(place / 1000 for place in range(1, 1001))
    assert found.count == 1000
    assert found.early == 0
    assert found.milliseconds(50.0) == pytest.approx(500.0, rel=0.002)
    assert found.milliseconds(100.0) == pytest.approx(1000.0, rel=0.002)


def test_one_nanosecond_early_is_early_and_on_time_is_not() -> None:
    assert Lateness.of([0.0, 1e-9]).early == 0
    found = Lateness.of([-1e-9, -0.002, 0.0, 0.5])
    assert found.early == 2
    assert found.earliest == 0.002
    assert found.count == 4


def test_lateness_survives_being_written_and_added() -> None:
    found = Lateness.load(json.loads(json.dumps(Lateness.of([0.001, -0.001]).document())))
    found.add(Lateness.of([0.001, 0.003]))
    assert (found.count, found.early, found.earliest) == (4, 1, 0.001)
    assert found.milliseconds(100.0) == pytest.approx(3.0, rel=0.002)


# Never early.


@draws
@pytest.mark.parametrize(
    ("late", "good"), [((0.001, 0.0), True), ((0.001, -0.000001), False)], ids=["an honest one", "a liar"]
)
def test_a_timer_of_ours_that_came_early_fails_the_run(
    late: tuple[float, ...], good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(run, "drivers", lambda: [Told("deadlined told", "", True, late=late)])
    assert run.run(run.Plan(1, quick=True, only=("idle",)), tmp_path) is good
    assert ("EARLY" in capsys.readouterr().out) is not good
    assert bool(json.loads((tmp_path / "precision.json").read_text())["early"]) is not good


@draws
def test_a_peer_that_comes_early_is_told_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "drivers", lambda: [Told("a peer", "", False, late=(-0.001,))])
    assert run.run(run.Plan(1, quick=True, only=("idle",)), tmp_path)
    written = json.loads((tmp_path / "precision.json").read_text())
    assert written["early"] == []
    assert written["lateness"][0]["early"] == 1


@draws
def test_a_driver_that_fails_fails_the_run_and_its_output_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "drivers", lambda: [Driver("deadlined odd", "no such driver", True)])
    assert not run.run(run.Plan(1, quick=True, only=("idle",)), tmp_path)
    assert "no such driver" in json.loads((tmp_path / "precision.json").read_text())["failures"][0]["output"]


# Situations.


@pytest.mark.timed
def test_a_child_that_was_stopped_again_and_again_comes_to_its_end() -> None:
    driver = next(driver for driver in drivers() if driver.kind == "after_func")
    found = run.measure(driver, Situation("quota", "stopped", stopped), 20, 0.2)
    assert found.count == 20
    assert found.early == 0


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
    driver = next(driver for driver in drivers() if driver.kind == "thread")
    for situation in situations():
        assert run.measure(driver, situation, 5, 0.01).early == 0
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


async def test_every_clock_has_a_cost_and_a_step() -> None:
    found = await clocks.measure(1000, 1)
    assert {"time.monotonic", "time.perf_counter", "trio.current_time"} <= {clock.name for clock in found}
    assert all(0.0 < clock.step < 1.0 for clock in found)


# End to end.


@pytest.mark.timed
def test_a_quick_run_measures_everybody_or_says_why_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "precision", "--quick", "--situation", "idle",
               "--results", str(tmp_path), "--pictures", str(tmp_path / "img")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "precision.json").read_text())
    assert written["failures"] == written["early"] == []
    measured = {entry["driver"]: entry for entry in written["lateness"]}
    for driver in written["drivers"]:
        assert (driver["driver"] in measured) != bool(driver["missing"])
    assert all(entry["timers"] > 0 for entry in measured.values())
    assert (tmp_path / "img" / "precision.png").stat().st_size < 100_000
