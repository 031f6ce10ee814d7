"""`python -m loadtest schemes`: what it measures is what it says, and what it does not measure it says, too."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from deadlined.timers import SCHEMES, Timer, Timers
from loadtest.bench import runner
from loadtest.schemes.baselines import Alarm, EagerHeap, LazyHeapq
from loadtest.schemes.benchmark import CASES, Schemes
from loadtest.schemes.child import ascend, expected
from loadtest.schemes.growth import CONSTANT, LINEAR, LOGARITHMIC, growth
from loadtest.schemes.operations import NAMES
from loadtest.schemes.subjects import SUBJECTS
from loadtest.schemes.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]

# matplotlib keeps its fonts open
draws = pytest.mark.leaks_fds

SIZES = [10**power for power in range(1, 7)]


# How a cost grows.


@pytest.mark.parametrize(
    ("cost", "order"),
    [
        (lambda n: 80.0, CONSTANT),
        (lambda n: 100.0 + 40.0 * math.log2(n), LOGARITHMIC),
        (lambda n: 30.0 * math.log2(n), LOGARITHMIC),
        (lambda n: 500.0 + 0.2 * n, LINEAR),
        (lambda n: 3.0 * n, LINEAR),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_found_again_in_costs_with_some_noise(
    cost: Callable[[float], float], order: str, seed: int
) -> None:
    noise = random.Random(seed)
    grown = growth({n: cost(n) * noise.uniform(0.95, 1.05) for n in SIZES})
    assert grown is not None
    assert grown.order == order


def test_a_cost_that_falls_does_not_grow() -> None:
    grown = growth({10: 200.0, 100: 120.0, 1000: 110.0, 10_000: 108.0})
    assert grown is not None
    assert grown.order == CONSTANT
    assert grown.slope < 0.0


def test_the_end_of_a_cache_is_not_taken_for_a_line() -> None:
    grown = growth({10: 180.0, 100: 180.0, 1000: 170.0, 10_000: 210.0, 100_000: 380.0})
    assert grown is not None
    assert grown.order != LINEAR


def test_the_slope_is_the_exponent() -> None:
    for exponent in (0.0, 0.5, 1.0, 2.0):
        grown = growth({n: 7.0 * n**exponent for n in SIZES})
        assert grown is not None
        assert grown.slope == pytest.approx(exponent, abs=1e-9)


def test_two_sizes_tell_nothing_about_growth() -> None:
    assert growth({10: 1.0, 100: 10.0}) is None


# What is given up.


def test_the_next_size_is_expected_to_grow_as_the_last_one_did() -> None:
    assert expected([], 10) == 0.0
    assert expected([(10, 1.0)], 100) == pytest.approx(10.0)
    assert expected([(10, 1.0), (100, 10.0)], 1000) == pytest.approx(100.0)
    assert expected([(10, 1.0), (100, 100.0)], 1000) == pytest.approx(10_000.0)
    # a fixed part that dies away must not hide that there are ten times as many
    assert expected([(10, 1.0), (100, 1.1)], 1000) == pytest.approx(11.0)


def test_a_size_is_given_up_only_where_it_would_take_too_long() -> None:
    measured: list[int] = []

    def once(n: int) -> dict[str, float]:
        measured.append(n)
        return {"case": float(n)}

    assert set(ascend(once, [100, 10, 1000], 1e9, 0.0)) == {"case/10", "case/100", "case/1000"}
    assert measured == [10, 100, 1000]
    # the first one cannot be judged
    assert set(ascend(once, [10, 100, 1000], 0.0, 0.0)) == {"case/10"}


# The baselines are timer queues.


@pytest.mark.parametrize("make", [LazyHeapq, EagerHeap])
@pytest.mark.parametrize("seed", range(20))
def test_a_baseline_fires_what_heap4_fires(make: Callable[[], Any], seed: int) -> None:
    chance = random.Random(seed)
    queue, model = make(), Timers("heap4")
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
                period = chance.choice([0.0, 0.0, 1.5])
                queue.modify(alarms[place], when, period)
                model.modify(timers[place], when, period)
    # a baseline runs a timer that comes twice in one check where it stands
    assert sorted(fired) == sorted(wanted)
    assert len(fired) > 100


def test_the_eager_heap_keeps_nothing_that_was_stopped_and_the_lazy_one_at_most_half() -> None:
    eager, lazy = EagerHeap(), LazyHeapq()
    for queue in (eager, lazy):
        alarms = [Alarm(lambda arg, seq, lateness: None) for _ in range(1000)]
        for place, alarm in enumerate(alarms):
            queue.modify(alarm, 10.0 + place % 17)
        for alarm in alarms[:700]:
            queue.stop(alarm)
        queue.check(0.0)
    assert len(eager) == 300
    assert len(lazy) == 300


# End to end.


def test_every_scheme_has_its_theory() -> None:
    assert {subject.scheme for subject in SUBJECTS.values()} - {""} == set(SCHEMES)
    assert all(set(subject.paper) == set(NAMES) for subject in SUBJECTS.values())


@pytest.mark.parametrize("name", list(SUBJECTS))
@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_every_workload_runs_on_every_queue(name: str, workload: str) -> None:
    assert WORKLOADS[workload](SUBJECTS[name], 40, random.Random(1), 0.001) > 0.0


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_without_time_makes_one_turn(workload: str) -> None:
    assert WORKLOADS[workload](SUBJECTS["heap4"], 40, random.Random(1), 0.0) > 0.0


@pytest.mark.timed
def test_a_quick_run_measures_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "schemes", "--quick", "--results", str(tmp_path),
               "--pictures", str(tmp_path / "img")]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "schemes.json").read_text())
    assert written["failures"] == []
    assert written["cases"] == list(CASES)
    for case in CASES:
        queues = {name for name, subject in SUBJECTS.items() if subject.scheme or "alone" not in case}
        sizes = {name: [int(one["metric"]) for one in written["figures"]
                        if (one["contestant"], one["case"]) == (name, case)] for name in queues}  # fmt: skip
        assert {name: sorted(found) for name, found in sizes.items()} == {name: [10, 100, 1000] for name in queues}
        fits = {one["queue"]: one["fits"] for one in written["growth"] if one["case"] == case}
        assert fits.keys() == queues
        assert set(fits.values()) <= {CONSTANT, LOGARITHMIC, LINEAR}
    assert all(figure["median"] > 0.0 for figure in written["figures"])
    pictures = list((tmp_path / "img").glob("*.png"))
    assert len(pictures) == len(CASES)
    assert all(picture.stat().st_size < 100_000 for picture in pictures)
    for word in ("O(log n)", "theory", written["timers"]):
        assert word in done.stdout + written["title"]


def quick_run(directory: Path, *only: str, add: bool = False, most: int = 1000, patience: float = 15.0) -> bool:
    """One repetition of some queues in one case."""
    plan = runner.Plan(repetitions=1, quick=True, only=only, add=add, cases=["START", "keep-alive"])
    return runner.run([Schemes(most, patience)], plan, directory)


def forget_that_it_was_quick(directory: Path) -> None:
    file = directory / "schemes.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quick": False}))


@draws
def test_what_was_not_measured_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quick_run(tmp_path, "heap4", patience=0.0)
    written = json.loads((tmp_path / "schemes.json").read_text())
    assert {(figure["case"], figure["metric"]) for figure in written["figures"]} == {
        ("START", "10"),
        ("keep-alive", "10"),
    }
    told = " ".join(capsys.readouterr().out.split())
    assert "> 0 s" in told
    assert "100, 1,000" in told


@draws
def test_a_second_run_adds_its_repetitions(tmp_path: Path) -> None:
    for name in ("heap4", "tree", "heap4"):
        assert quick_run(tmp_path, name, add=True)
        forget_that_it_was_quick(tmp_path)
    written = json.loads((tmp_path / "schemes.json").read_text())
    counts = {(one["contestant"], one["case"], one["metric"]): len(one["values"]) for one in written["figures"]}
    assert counts["heap4", "START", "10"] == 2
    assert counts["tree", "START", "10"] == 1


@draws
def test_nothing_is_added_to_figures_of_other_sizes(tmp_path: Path) -> None:
    assert quick_run(tmp_path, "heap4")
    with pytest.raises(RuntimeError, match="quick run"):
        quick_run(tmp_path, "heap4", add=True, most=100)
    forget_that_it_was_quick(tmp_path)
    with pytest.raises(RuntimeError, match="other sizes"):
        quick_run(tmp_path, "heap4", add=True, most=100)
