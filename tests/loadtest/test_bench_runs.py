"""The benchmarks `reset`, `heap` and `wakes` from end to end, in small: each is measured, or named with a reason."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import runner
from loadtest.bench.measured import Expiry
from loadtest.bench.reset_asyncio import Lazy

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["reset", "heap", "wakes"])
@pytest.mark.timed
def test_a_quick_run_measures_everybody_or_says_why_not(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "bench", name, "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    written = json.loads((tmp_path / f"bench-{name}.json").read_text())
    assert written["failures"] == []
    missing = {contestant["name"] for contestant in written["contestants"] if contestant["missing"]}
    skipped = {(entry["contestant"], entry["case"]) for entry in written["not_measured"]}
    with_figures = {(figure["contestant"], figure["case"]) for figure in written["figures"]}
    for contestant in written["contestants"]:
        for case in written["cases"]:
            pair = contestant["name"], case
            assert (contestant["name"] in missing) + (pair in skipped) + (pair in with_figures) >= 1, pair
    assert all(figure["median"] > 0 for figure in written["figures"] if figure["metric"] != "memory")
    assert (tmp_path / f"bench-{name}.png").read_bytes().startswith(b"\x89PNG")
    for contestant in written["contestants"]:
        assert contestant["name"].split(",")[0] in done.stdout


class Clock:
    """An event loop that only arms: `time` is what it is told, and `call_at` remembers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.armed: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, function: Any) -> Clock:
        self.armed.append((when, function))
        return self

    def cancel(self) -> None:
        # a handle that has come is not armed any more
        self.armed.clear()


def test_the_fair_rival_stores_a_deadline_and_arms_anew_when_its_handle_comes() -> None:
    loop: Any = Clock()
    deadline = Lazy(loop, 105.0)
    deadline.move(106.0)
    deadline.move(107.0)
    assert [when for when, _ in loop.armed] == [105.0], "a later deadline is only stored"
    loop.now = 105.0
    _, come = loop.armed.pop()
    come()
    assert [when for when, _ in loop.armed] == [107.0], "what has come is armed for the deadline of then"
    deadline.move(106.5)
    assert [when for when, _ in loop.armed] == [106.5], "an earlier one is armed at once"
    deadline.move(math.inf)
    loop.now = 106.5
    _, come = loop.armed.pop()
    come()
    assert loop.armed == [], "a deadline that was cleared is not armed again"
    deadline.move(120.0)
    assert [when for when, _ in loop.armed] == [120.0], "and the next one is"


def test_deadlines_that_come_while_they_are_moved_are_no_figure() -> None:
    readings = iter([100.0] * 4 + [103.0])
    expiry = Expiry(lambda: next(readings), 4)
    assert all(101.0 <= when <= 101.1 for when in expiry.old)
    with pytest.raises(RuntimeError, match="took too long: the first had come already"):
        expiry.wait()


@pytest.mark.parametrize("name", ["reset", "heap", "wakes"])
def test_every_target_speaks_of_a_case_a_metric_and_contestants_that_there_are(name: str) -> None:
    benchmark = runner.load(name)
    contestants = {contestant.name for contestant in benchmark.contestants()}
    for target in benchmark.targets:
        assert target.case in benchmark.cases()
        assert target.metric in benchmark.metrics
        assert {target.ours, target.theirs or target.ours} <= contestants
        assert target.wanted
