"""The benchmarks `reset`, `heap` and `wakes` from end to end, in small: each is measured, or named with a reason. And
what is kept of a run that is interrupted."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import builds, golang, runner, web
from loadtest.bench.contest import Benchmark, Contestant, Metric
from loadtest.bench.measured import Expiry
from loadtest.bench.reset_asyncio import Lazy
from loadtest.bench.results import Results
from loadtest.command import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["reset", "heap", "schemes"])
def test_without_what_times_operations_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(builds, "find_spec", lambda name: None if name == "pyperf" else name)
    done = CliRunner().invoke(main, ["bench", name, "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert "Error: pyperf is not installed (pip install -e '.[bench]')" in done.output
    assert not list(tmp_path.iterdir())


def test_what_does_not_time_operations_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "find_spec", lambda name: None if name == "pyperf" else name)
    assert runner.load("churn").contestants()


@pytest.mark.parametrize("name", ["reset", "heap", "wakes"])
@pytest.mark.timed
def test_a_quick_run_measures_everybody_or_says_why_not(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "bench", name, "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    written = json.loads((tmp_path / f"bench-{name}-quick.json").read_text())
    assert written["failures"] == []
    missing = {contestant["name"] for contestant in written["contestants"] if contestant["missing"]}
    skipped = {(entry["contestant"], entry["case"]) for entry in written["not_measured"]}
    with_figures = {(figure["contestant"], figure["case"]) for figure in written["figures"]}
    for contestant in written["contestants"]:
        for case in written["cases"]:
            pair = contestant["name"], case
            assert (contestant["name"] in missing) + (pair in skipped) + (pair in with_figures) >= 1, pair
    assert all(figure["median"] > 0 for figure in written["figures"] if figure["metric"] != "memory")
    assert (tmp_path / f"bench-{name}-quick.png").read_bytes().startswith(b"\x89PNG")
    for contestant in written["contestants"]:
        assert contestant["name"].split(",")[0] in done.stdout


def bench(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["bench", *arguments])
    return done.exit_code, done.output


def test_where_nothing_can_be_measured_the_reason_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(builds, "COMPILED", False)
    monkeypatch.setattr(web, "tool", lambda name: name)
    code, told = bench("duel", "--results", str(tmp_path))
    assert code == 2
    assert told.endswith("Error: nothing can be measured: missing: not compiled (pip install -e . with a C compiler)\n")
    assert not list(tmp_path.iterdir())


def test_a_case_that_a_quick_run_does_not_have_is_refused(tmp_path: Path) -> None:
    code, told = bench("reset", "--quick", "--case", "10,000 live", "--results", str(tmp_path))
    assert (code, "no case 10,000 live" in told) == (2, True)
    code, told = bench("reset", "--quick", "--list")
    assert (code, "10,000 live" in told, "100 live" in told) == (0, False, True)


@pytest.mark.parametrize(
    ("told", "found"), [("go1.19.8", False), ("go1.23", True), ("devel go1.30-f00", True), ("what?", False)]
)
def test_an_old_toolchain_is_none(told: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "go"
    old.write_text(f"#!/bin/sh\necho '{told}'\n")
    old.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(old) if name == "go" else None)
    golang.toolchain.cache_clear()
    try:
        assert golang.toolchain() == (str(old) if found else None)
    finally:
        golang.toolchain.cache_clear()


def test_what_lacks_a_tool_is_listed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    code, told = bench("duel", "reset", "--list")
    assert code == 0
    assert "missing: wrk is not installed" in told
    assert "Starlette JSON; granian st" in told
    assert "socket.settimeout" in told


class Interrupted(Benchmark):
    """A benchmark to which Ctrl-C comes after `after` measurements."""

    name = "interrupted"
    title = "Nothing at all"

    def __init__(self, after: int) -> None:
        self.metrics = {"cost": Metric("ns", "less")}
        self._left = after

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant("deadlined")]

    def cases(self) -> Sequence[str]:
        return ["few"]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return {"cost": float(self._left)}

    def plot(self, results: Results, path: Path) -> None:
        path.touch()


def interrupt(directory: Path, after: int = 2) -> list[float]:
    """Run it, and return the values that are kept."""
    with pytest.raises(SystemExit, match="130"):
        runner.run([Interrupted(after)], runner.Plan(repetitions=5), directory)
    written = json.loads((directory / "bench-interrupted.json").read_text())
    assert written["rule"] == "5 starts each; interrupted"
    return [value for figure in written["figures"] for value in figure["values"]]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert interrupt(tmp_path) == [1.0, 0.0]
    assert (tmp_path / "bench-interrupted.png").exists()
    assert interrupt(tmp_path, after=3) == [1.0, 0.0], "half of a run replaces no whole one"
    assert "Interrupted: this is what was measured until then." in capsys.readouterr().out


def test_ctrl_c_before_there_is_a_figure_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run([Interrupted(0)], runner.Plan(), tmp_path)
    assert not list(tmp_path.iterdir())


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
