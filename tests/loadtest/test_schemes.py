"""The benchmark `schemes`: what it measures is what it says, and what it does not measure it says, too."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from deadlined.timers import SCHEMES, Timer, Timers
from loadtest.bench import runner
from loadtest.bench.contest import STATED
from loadtest.bench.lazy_heapq import Alarm, LazyHeapq
from loadtest.bench.schemes_child import ENOUGH, affordable, expected, slope, step
from loadtest.bench.schemes_operations import OPERATIONS, SUBJECTS, WORKLOADS

ROOT = Path(__file__).parents[2]
CASES = [*OPERATIONS, *WORKLOADS]

# matplotlib keeps its fonts open
draws = pytest.mark.leaks_fds

SIZES = [10**power for power in range(1, 7)]


# How a cost grows.


@pytest.mark.parametrize("exponent", [-0.2, 0.0, 0.5, 1.0, 2.0])
def test_the_slope_is_the_exponent(exponent: float) -> None:
    assert slope({n: 7.0 * n**exponent for n in SIZES}) == pytest.approx(exponent, abs=1e-9)


def test_a_logarithm_has_a_slope_between() -> None:
    assert 0.1 < slope({n: 30.0 * math.log2(n) for n in SIZES}) < 0.2


# What is given up.


def test_the_next_size_is_expected_to_grow_as_the_last_one_did() -> None:
    assert expected([], 10) == 0.0
    assert expected([(10, 1.0)], 100) == pytest.approx(10.0)
    assert expected([(10, 1.0), (100, 10.0)], 1000) == pytest.approx(100.0)
    assert expected([(10, 1.0), (100, 100.0)], 1000) == pytest.approx(10_000.0)
    # nothing grows faster: the second one was disturbed
    assert expected([(10, 1.0), (100, 1000.0)], 1000) == pytest.approx(100_000.0)
    # a fixed part that dies away must not hide that there are ten times as many
    assert expected([(10, 1.0), (100, 1.1)], 1000) == pytest.approx(11.0)


def asked(sizes: list[int], patience: float, each: float) -> list[tuple[int, int]]:
    """The sizes that are measured, with their values, if each value of 10 timers takes so long and all grow with n."""
    now, found = [0.0], []
    for n, values in affordable(sizes, 20, patience, lambda: now[0]):
        now[0] += values * each * n / 10
        found.append((n, values))
    return found


def test_a_size_is_given_up_only_where_it_would_take_too_long() -> None:
    assert [n for n, _ in asked([100, 10, 1000], 1e9, 1.0)] == [10, 100, 1000]
    # the first one cannot be judged
    assert [n for n, _ in asked([10, 100, 1000], 0.0, 1.0)] == [10]
    # 20 values of 1000 timers take 2000 s
    assert [n for n, _ in asked([10, 100, 1000], 1999.0, 1.0)] == [10, 100]


def test_a_size_has_as_many_values_as_make_a_figure() -> None:
    found = dict(asked([10, 1000, 10_000, 100_000, 1_000_000], 1e9, 1.0))
    assert found == {10: 20, 1000: 20, 10_000: ENOUGH // 10_000, 100_000: 1, 1_000_000: 1}


# The baseline is a timer queue.


@pytest.mark.parametrize("seed", range(20))
def test_the_baseline_fires_what_heap4_fires(seed: int) -> None:
    chance = random.Random(seed)
    queue, model = LazyHeapq(), Timers("heap4")
    fired: list[int] = []
    wanted: list[int] = []
    alarms = [Alarm(lambda place, seq, lateness: fired.append(place), place) for place in range(40)]
    timers = [Timer(lambda place, seq, lateness: wanted.append(place), place) for place in range(40)]
    now = 0.0
    for _ in range(600):
        place = chance.randrange(40)
        match chance.randrange(4):
            case 0:
                assert queue.stop(alarms[place]) == model.stop(timers[place])
            case 1:
                now += chance.uniform(0.0, 1.0)
                queue.check(now)
                model.check(now)
                assert queue.wake_time() == pytest.approx(min(timer.when for timer in timers))
            case _:
                when = now + chance.uniform(0.01, 5.0)
                queue.modify(alarms[place], when)
                model.modify(timers[place], when)
    assert sorted(fired) == sorted(wanted)
    assert len(fired) > 100


def test_the_baseline_keeps_at_most_half_of_what_was_stopped() -> None:
    queue = LazyHeapq()
    alarms = [Alarm(lambda arg, seq, lateness: None) for _ in range(1000)]
    for place, alarm in enumerate(alarms):
        queue.modify(alarm, 10.0 + place % 17)
    for alarm in alarms[:700]:
        queue.stop(alarm)
    queue.check(0.0)
    assert len(queue) == 300


# End to end.


def test_every_scheme_is_measured() -> None:
    assert set(SUBJECTS) - {"heapq, lazy"} == set(SCHEMES)


@pytest.mark.parametrize("name", list(SUBJECTS))
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_every_operation_runs_on_every_queue(name: str, operation: str) -> None:
    found = list(OPERATIONS[operation](SUBJECTS[name], 40, random.Random(1)))
    assert found[0] == 0, "the preparation is no step"
    # 25 queues of 40 timers
    assert sum(found) == {"START": 500, "STOP": 500, "check": 25 * 256, "extract": 1000}[operation]


@pytest.mark.parametrize("name", list(SUBJECTS))
@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_every_workload_goes_on_for_2000_steps_on_every_queue(name: str, workload: str) -> None:
    turns = WORKLOADS[workload](SUBJECTS[name], 40, random.Random(1))
    assert next(turns) == 0
    done = 0
    while done < 2000:
        done += next(turns)


# The time of a step.


def test_a_step_is_measured_until_there_are_enough() -> None:
    turns = iter([0, 0, 600, 600, 600])
    assert step(turns, 1000, 60.0) > 0.0
    assert list(turns) == [600]


def test_a_step_without_time_is_measured_once() -> None:
    turns = iter([0, 0, 600, 600, 600])
    assert step(turns, 1000, -1.0) > 0.0
    assert list(turns) == [600, 600]


def test_what_has_no_more_steps_is_measured_to_its_last_and_not_until_it_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("loadtest.bench.schemes_child.time.perf_counter", lambda: now[0])

    def turns() -> Iterator[int]:
        now[0] += 50.0
        yield 0
        now[0] += 1.0
        yield 500
        now[0] += 50.0

    assert step(turns(), 1000, 60.0) == 1.0 / 500


@pytest.mark.timed
def test_a_quick_run_measures_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "bench", "schemes", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "bench-schemes-quick.json").read_text())
    assert written["failures"] == []
    assert written["cases"] == CASES
    found = {(one["contestant"], one["case"], one["metric"]): one["median"] for one in written["figures"]}
    metrics = ("10", "100", "1000", "slope", "left out")
    assert found.keys() == {(name, case, metric) for name in SUBJECTS for case in CASES for metric in metrics}
    assert all(median > 0.0 for (_, _, metric), median in found.items() if metric.isdigit())
    assert all(median == 0 for (_, _, metric), median in found.items() if metric == "left out")
    assert (tmp_path / "bench-schemes-quick.png").stat().st_size > 1000
    assert "slope" in done.stdout


def quick_run(directory: Path, *only: str, add: bool = False, **stated: Any) -> bool:
    """One repetition of some queues in one case; `stated` takes the place of what benchmarks.toml states."""
    plan = runner.Plan(repetitions=1, quick=True, only=only, add=add, cases=["START", "keep-alive"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stated.items():
            patch.setitem(STATED["schemes"]["quick"], name, value)
        return runner.run([runner.load("schemes")], plan, directory)


@draws
def test_what_was_not_measured_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quick_run(tmp_path, "heap4", patience=0.0)
    written = json.loads((tmp_path / "bench-schemes-quick.json").read_text())
    found = {(figure["case"], figure["metric"]): figure["median"] for figure in written["figures"]}
    assert found.keys() == {(case, metric) for case in ("START", "keep-alive") for metric in ("10", "left out")}
    assert found["START", "left out"] == found["keep-alive", "left out"] == 2
    assert "2 sizes" in capsys.readouterr().out


@draws
def test_nothing_is_added_to_figures_of_other_sizes(tmp_path: Path) -> None:
    assert quick_run(tmp_path, "heap4")
    with pytest.raises(RuntimeError, match="quick run"):
        quick_run(tmp_path, "heap4", add=True, sizes=[10, 100])
    file = tmp_path / "bench-schemes-quick.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quick": False}))
    with pytest.raises(RuntimeError, match="other sizes"):
        quick_run(tmp_path, "heap4", add=True, sizes=[10, 100])
