"""The benchmarks' framework: ratios, targets, who is missing, whose turn it is, and what happens to one that fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner
from rich.console import Console

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")
pytest.importorskip("matplotlib", reason="the load test's extra is not installed: pip install .[bench]")

from deadlined.timers import COMPILED
from loadtest.bench import builds, contest, golang, processes, runner, tables
from loadtest.bench.contest import Benchmark, Contestant, ContestantError, Metric, Target, table
from loadtest.bench.results import Results
from loadtest.bench.runner import PRECISE, Rule, turns
from loadtest.bench.spread import Spread, number
from loadtest.command import main
from loadtest.report import malloc
from loadtest.servers import ToolMissingError

# matplotlib keeps the fonts open that it has drawn with
draws = pytest.mark.leaks_fds

OURS = "deadlined"
PEER = "peer"
ABSENT = "absent"
BROKEN = "broken"


class Fake(Benchmark):
    """Figures by rote. `broken` fails from its second repetition on; `absent` is not installed."""

    name = "fake"
    title = "Nothing at all"

    def __init__(self, targets: Sequence[Target] = (), broken: bool = True) -> None:
        self.metrics = {"cost": Metric("ns", "less"), "size": Metric("bytes", None)}
        self.targets = targets
        self.turns: list[tuple[str, str]] = []
        self._broken = broken

    def contestants(self) -> Sequence[Contestant]:
        return (
            Contestant(OURS),
            Contestant(PEER),
            Contestant(ABSENT, "absent is not installed (pip install absent)"),
            *([Contestant(BROKEN)] if self._broken else []),
        )

    def cases(self) -> Sequence[str]:
        return "few", "many"

    def skips(self, contestant: str, case: str) -> str | None:
        return "cannot count so far" if (contestant, case) == (PEER, "many") else None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        self.turns.append((contestant, case))
        times = self.turns.count((contestant, case))
        if contestant == BROKEN and times == 2:
            raise ContestantError("exit code 1\nno such thing: [bold]x[/]")
        return {"cost": {OURS: 10.0, PEER: 40.0, BROKEN: 1.0}[contestant] + times - 1, "size": 7.0}

    def quick(self) -> Self:
        return self


def of(**values: float) -> Results:
    """Results with one value of `cost` per contestant, in the case "few"."""
    results = Results([Contestant(name) for name in values], ["few"], {"cost": Metric("ns", "less")})
    for name, value in values.items():
        results.add(name, "few", {"cost": value})
    return results


def measured(benchmark: Benchmark, repetitions: int = 3, only: Sequence[str] = ()) -> Results:
    results = runner.prepare(benchmark, only)
    runner.measure(benchmark, results, Rule(repetitions, repetitions))
    return results


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A benchmark `fake` that the command line can find."""
    benchmark = Fake(broken=False)
    _offer(monkeypatch, benchmark)
    return benchmark


def _offer(monkeypatch: pytest.MonkeyPatch, benchmark: Benchmark) -> None:
    monkeypatch.setattr(contest, "STATED", {"fake": {}})
    monkeypatch.setattr(runner, "load", {"fake": benchmark}.__getitem__)


def invoke(directory: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["bench", "--repetitions", "2", "--results", str(directory), *arguments])
    return done.exit_code, done.output


# figures and ratios


def test_a_spread_is_the_median_with_its_interval() -> None:
    values = [float(number) for number in range(100, 120)]
    found = Spread.of(values)
    assert found.median == 109.5
    # the exact one of the order statistics is the 6th to the 15th value
    assert 103.0 <= found.low <= 107.0
    assert 112.0 <= found.high <= 116.0
    assert found == Spread.of(values), "the same values give the same interval"


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0, 3.0]])
def test_values_that_do_not_differ_have_no_interval(values: list[float]) -> None:
    assert Spread.of(values) == Spread(3.0, 3.0, 3.0)


def test_a_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no median"):
        Spread.of([])


def test_a_ratio_has_an_interval_of_its_own() -> None:
    found = Spread.of([10.0, 11.0, 12.0] * 4, [40.0])
    assert found.low <= found.median == 0.275 <= found.high
    assert 0.25 <= found.low < found.high <= 0.3


@pytest.mark.parametrize(("part", "within"), [(0.1, True), (0.05, False)])
def test_an_interval_is_wide_or_not_beside_its_median(part: float, within: bool) -> None:
    assert Spread(100.0, 93.0, 104.0).within(part) is within


def test_a_ratio_is_ours_divided_by_theirs() -> None:
    ratio = of(deadlined=10.0, peer=40.0).ratio("few", "cost", OURS, PEER)
    assert ratio == Spread(0.25, 0.25, 0.25)


@pytest.mark.parametrize("results", [of(deadlined=10.0), of(deadlined=10.0, peer=0.0)], ids=["missing", "zero"])
def test_there_is_no_ratio_to_what_is_missing_or_zero(results: Results) -> None:
    assert results.ratio("few", "cost", OURS, PEER) is None


def test_others_are_compared_with_the_first_of_ours_that_was_measured() -> None:
    results = Results([Contestant(OURS, "not compiled"), Contestant("peer"), Contestant(builds.PURE)], ["few"], {})
    results.values = {("peer", "few", "cost"): [1.0], (builds.PURE, "few", "cost"): [2.0]}
    assert results.base("few", "cost") == builds.PURE


def test_a_metric_that_is_not_declared_is_refused() -> None:
    with pytest.raises(KeyError, match="which is none of cost"):
        of(deadlined=1.0).add(OURS, "few", {"weight": 1.0})


# targets


@pytest.mark.parametrize(
    ("target", "value", "reached"),
    [
        (Target("few", "cost", OURS, PEER, at_most=0.25), 0.25, True),
        (Target("few", "cost", OURS, PEER, at_most=0.24), 0.25, False),
        (Target("few", "cost", PEER, OURS, at_least=4.0), 4.0, True),
        (Target("few", "cost", PEER, OURS, at_least=4.1), 4.0, False),
        (Target("few", "cost", OURS, "", at_most=9.9), 10.0, False),
        (Target("few", "cost", OURS, "", at_least=5.0, at_most=15.0), 10.0, True),
        (Target("few", "cost", OURS, "absent", at_most=1.0), None, None),
        (Target("many", "cost", OURS, "", at_most=1.0), None, None),
    ],
)
def test_a_target_is_reached_missed_or_not_measured(target: Target, value: float | None, reached: bool | None) -> None:
    verdict = of(deadlined=10.0, peer=40.0).verdict(target)
    assert (verdict.judged, verdict.reached) == (value, reached)


def test_a_target_of_figures_that_do_not_count_is_not_reached() -> None:
    results = of(deadlined=10.0, peer=40.0)
    results.invalid[PEER, "few"] = "it waited"
    verdict = results.verdict(Target("few", "cost", OURS, PEER, at_most=0.5))
    assert (verdict.reached, verdict.label, verdict.invalid) == (None, "invalid", "it waited")


def test_a_target_says_what_is_wanted() -> None:
    assert Target("few", "cost", OURS, "", at_least=0.5, at_most=1.5).wanted == "≥ 0.5, ≤ 1.5"


# whose turn it is


PAIRS = [(name, case) for case in ("few", "many") for name in "abcdef"]


def test_every_pair_has_its_turn_once_in_every_repetition() -> None:
    for repetition in range(3):
        assert sorted(turns(PAIRS, repetition)) == sorted(PAIRS)


def test_contestants_alternate_case_by_case_in_an_order_that_changes() -> None:
    found = [turns(PAIRS, repetition) for repetition in range(4)]
    assert all([case for _, case in order] == ["few"] * 6 + ["many"] * 6 for order in found)
    orders = {tuple(name for name, _ in order[start : start + 6]) for order in found for start in (0, 6)}
    assert len(orders) > 4


def test_two_runs_have_the_same_order() -> None:
    assert turns(PAIRS, 3) == turns(PAIRS, 3)


class Shaky(Benchmark):
    """One contestant is always the same; the values of the other alternate."""

    name = "shaky"
    title = "Nothing at all"
    metrics: Mapping[str, Metric] = {"cost": Metric("ns", "less")}

    def __init__(self) -> None:
        self.turns: list[str] = []

    def contestants(self) -> Sequence[Contestant]:
        return Contestant("calm"), Contestant("shaky")

    def cases(self) -> Sequence[str]:
        return ("few",)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        self.turns.append(contestant)
        return {"cost": 10.0 if contestant == "calm" else 10.0 + 5 * (self.turns.count("shaky") % 2)}


def test_a_pair_is_measured_until_its_interval_is_narrow_or_the_rule_ends() -> None:
    benchmark = Shaky()
    runner.measure(benchmark, runner.prepare(benchmark), Rule(3, 8))
    assert (benchmark.turns.count("calm"), benchmark.turns.count("shaky")) == (3, 8)


def test_the_rule_is_told() -> None:
    assert Rule(10, 20).text == f"10 starts each, up to 20 until the interval is within {PRECISE:.0%} of the median"


@pytest.mark.parametrize(("asked", "rule"), [(None, Rule(5, 10)), (3, Rule(3, 3))])
def test_a_number_that_was_asked_for_is_exact(asked: int | None, rule: Rule) -> None:
    assert runner.Plan(repetitions=asked).rule_of(Fake()) == rule


@pytest.mark.parametrize("name", ["http", "duel", "idle", "proxied"])
def test_servers_are_started_at_least_ten_times(name: str) -> None:
    assert runner.load(name).repetitions >= 10


# who is missing, who fails


def test_a_missing_contestant_is_not_asked_and_has_a_reason() -> None:
    benchmark = Fake()
    results = measured(benchmark)
    assert not any(name == ABSENT for name, _ in benchmark.turns)
    absent = results.contestants[2]
    assert results.why_not(absent, "few") == "missing: absent is not installed (pip install absent)"


def test_a_pair_that_is_skipped_has_a_reason() -> None:
    results = measured(Fake())
    assert results.why_not(Contestant(PEER), "many") == "not measured: cannot count so far"
    assert results.why_not(Contestant(PEER), "few") is None


def test_a_contestant_that_fails_is_not_asked_again_and_the_rest_goes_on() -> None:
    benchmark = Fake()
    results = measured(benchmark)
    assert benchmark.turns.count((BROKEN, "few")) == 2
    assert results.failures[BROKEN, "few"].endswith("no such thing: [bold]x[/]")
    assert results.why_not(Contestant(BROKEN), "few") == "failed: ContestantError: exit code 1"
    assert len(results.values[OURS, "few", "cost"]) == 3


@pytest.mark.parametrize("error", [OSError("12345"), HTTPException("12345"), ZeroDivisionError("12345")])
def test_whatever_a_contestant_fails_of_is_a_failure_of_its_own(error: Exception) -> None:
    class Dying(Fake):
        def measure(self, contestant: str, case: str) -> Mapping[str, float]:
            if contestant == PEER:
                raise error
            return super().measure(contestant, case)

    results = measured(Dying(broken=False))
    assert "12345" in results.failures[PEER, "few"]
    assert len(results.values[OURS, "few", "cost"]) == 3


def test_only_the_contestants_that_are_asked_for_are_measured_and_the_others_say_so() -> None:
    benchmark = Fake()
    results = measured(benchmark, only=[OURS])
    assert {name for name, _ in benchmark.turns} == {OURS}
    assert results.why_not(Contestant(PEER), "few") == "not measured: not asked for"


# what is printed and written


def test_rows_show_ratios_and_reasons() -> None:
    results = measured(Fake())
    rows = {
        row[0].splitlines()[0]: row for row in (tables.row(results, c, "few", ["cost"]) for c in Fake().contestants())
    }
    assert rows[OURS][1].startswith("11 ns\n")
    assert rows[PEER][1].startswith("41 ns  3.73x\n")
    assert rows[ABSENT][0].endswith("[yellow]missing: absent is not installed (pip install absent)[/]")
    assert rows[BROKEN] == [f"{BROKEN}\n[yellow]failed: ContestantError: exit code 1[/]", "-"]


def test_a_context_metric_is_not_compared() -> None:
    assert tables.cell(measured(Fake()), PEER, "few", "size") == "7 bytes"


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.8, "1,234,568"), (123.4, "123"), (56.78, "56.8"), (0.01234, "0.0123"), (0.0, "0")]
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


@draws
def test_all_is_well_if_every_target_that_was_measured_is_reached(offered: Fake, tmp_path: Path) -> None:
    offered.targets = (
        Target("few", "cost", OURS, PEER, at_most=0.5),
        Target("few", "cost", OURS, ABSENT, at_most=0.5),
    )
    code, output = invoke(tmp_path)
    assert code == 0
    assert "reached" in output
    assert "not measured" in output
    written = json.loads((tmp_path / "bench-fake.json").read_text())
    assert [target["reached"] for target in written["targets"]] == [True, None]
    assert written["machine"].keys() >= {"malloc", "governor", "smt", "processor", "python"}
    assert written.keys() >= {"commit", "dirty", "changes", "versions", "rule", "confidence"}
    assert written["versions"]["trio"]
    assert written["rule"] == "2 starts each"
    ratio = Results.read(written).ratio("few", "cost", PEER, OURS)
    assert ratio is not None
    assert ratio.median == 40.5 / 10.5
    assert (tmp_path / "bench-fake.png").stat().st_size > 1000


def kept(directory: Path) -> dict[tuple[str, str], list[float]]:
    """The values of `cost` in the file of `fake`, by contestant and case."""
    written = json.loads((directory / "bench-fake.json").read_text())
    return {
        (figure["contestant"], figure["case"]): figure["values"]
        for figure in written["figures"]
        if figure["metric"] == "cost"
    }


@draws
def test_a_further_run_adds_its_repetitions_to_what_it_measures_and_keeps_the_rest(
    offered: Fake, tmp_path: Path
) -> None:
    offered.targets = (Target("many", "cost", OURS, "", at_most=20.0), Target("few", "cost", OURS, "", at_most=5.0))
    assert invoke(tmp_path)[0] == 1
    code, _ = invoke(tmp_path, "--add", "--case", "few", "--only-contestant", OURS)
    assert code == 1, "a target is judged by all that is known"
    assert kept(tmp_path) == {
        (OURS, "few"): [10.0, 11.0, 12.0, 13.0],
        (OURS, "many"): [10.0, 11.0],
        (PEER, "few"): [40.0, 41.0],
    }
    written = json.loads((tmp_path / "bench-fake.json").read_text())
    assert written["repetitions"] == "2 to 4"
    assert written["cases"] == ["few", "many"]
    assert written["not_measured"] == [{"contestant": PEER, "case": "many", "why": "cannot count so far"}]
    assert len(written["targets"]) == 2


@draws
def test_who_failed_in_an_earlier_run_is_known_until_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(monkeypatch, Fake())
    assert invoke(tmp_path)[0] == 1
    assert invoke(tmp_path, "--add", "--only-contestant", OURS)[0] == 1

    def failed() -> set[tuple[str, str]]:
        written = json.loads((tmp_path / "bench-fake.json").read_text())
        return {(entry["contestant"], entry["case"]) for entry in written["failures"]}

    assert failed() == {(BROKEN, "few"), (BROKEN, "many")}
    assert invoke(tmp_path, "--add", "--case", "few")[0] == 1
    assert failed() == {(BROKEN, "many")}


@draws
def test_there_may_be_nothing_yet_to_add_to(offered: Fake, tmp_path: Path) -> None:
    assert invoke(tmp_path, "--add")[0] == 0
    assert kept(tmp_path)[PEER, "few"] == [40.0, 41.0]


@draws
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda written: written["machine"].update(python="2.7"), "was measured with python '2.7', which is another"),
        (lambda written: written.update(quick=True), "is of a quick run"),
        (lambda written: written.update(commit="0123"), "was measured with commit '0123', which is another"),
        (lambda written: written.update(changes="4567"), "was measured with changes '4567', which is another"),
        (lambda written: written["versions"].update(uvicorn="0.1"), "'uvicorn': '0.1'"),
        (lambda written: written.update(go="go1"), "was measured with go 'go1', which is another"),
    ],
)
def test_figures_that_have_no_common_median_are_not_added_up(
    offered: Fake, tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    invoke(tmp_path)
    file = tmp_path / "bench-fake.json"
    written = json.loads(file.read_text())
    change(written)
    file.write_text(json.dumps(written))
    offered.turns.clear()
    code, output = invoke(tmp_path, "--add")
    assert code == 1
    assert told in " ".join(output.split())
    assert not offered.turns
    assert json.loads(file.read_text()) == written


@draws
def test_a_file_that_is_no_json_is_not_added_to(offered: Fake, tmp_path: Path) -> None:
    (tmp_path / "bench-fake.json").write_text("{")
    code, output = invoke(tmp_path, "--add")
    assert code == 1
    assert "is no JSON" in " ".join(output.split())
    assert not offered.turns


def test_results_are_read_as_they_were_written() -> None:
    results = measured(Fake())
    results.invalid[PEER, "few"] = "it waited"
    results.targets = [Target("few", "cost", OURS, PEER, at_most=0.5)]
    assert Results.read(json.loads(json.dumps(results.written()))) == Results(
        list(results.contestants), list(results.cases), results.metrics, results.skips, results.values,
        results.failures, results.invalid, results.targets,
    )  # fmt: skip


@draws
def test_a_target_that_is_missed_is_exit_code_1(offered: Fake, tmp_path: Path) -> None:
    offered.targets = (Target("few", "cost", OURS, PEER, at_most=0.1),)
    code, output = invoke(tmp_path)
    assert code == 1
    assert "missed" in output


@draws
def test_a_contestant_that_fails_is_exit_code_1_with_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _offer(monkeypatch, Fake())
    code, output = invoke(tmp_path)
    assert code == 1
    assert "no such thing: [bold]x[/]" in output
    failures = json.loads((tmp_path / "bench-fake.json").read_text())["failures"]
    assert [failure["contestant"] for failure in failures] == [BROKEN, BROKEN]


def test_a_tool_that_is_missing_is_exit_code_2_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Helpless(Fake):
        def contestants(self) -> Sequence[Contestant]:
            raise ToolMissingError("wrk is not installed")

    benchmark = Helpless()
    _offer(monkeypatch, benchmark)
    code, output = invoke(tmp_path)
    assert code == 2
    assert "wrk is not installed" in output
    assert not benchmark.turns


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tea"], "'tea' is none of fake"),
        (["--only-contestant", "nobody"], "no contestant nobody"),
        (["--only-contestant", ABSENT], "absent is missing: absent is not installed"),
        (["--case", "none"], "no case none"),
        (["--repetitions", "0"], "'0' is not a whole number from 1 to 100."),
    ],
)
def test_wrong_arguments_are_exit_code_2(offered: Fake, tmp_path: Path, arguments: list[str], told: str) -> None:
    code, output = invoke(tmp_path, *arguments)
    assert code == 2
    assert told in output
    assert not offered.turns


@draws
def test_a_quick_run_judges_no_targets(offered: Fake, tmp_path: Path) -> None:
    offered.targets = (Target("few", "cost", OURS, PEER, at_most=0.1),)
    assert invoke(tmp_path, "--quick")[0] == 0
    assert json.loads((tmp_path / "bench-fake-quick.json").read_text())["targets"] == []


@pytest.mark.parametrize("name", contest.STATED)
def test_a_benchmark_is_found_by_its_name_and_has_the_cases_of_its_targets(name: str) -> None:
    benchmark = runner.load(name)
    assert benchmark.name == name
    cases = {*benchmark.cases(), *benchmark.quick().cases()}
    assert cases.issuperset(case for target in benchmark.stated.get("targets", ()) for case in target["cases"])


@pytest.mark.parametrize("name", ["reset", "heap", "echo", "wakes", "lateness", "churn"])
def test_the_table_of_a_benchmark_speaks_of_its_own_programs_and_cases(name: str) -> None:
    stated = table("benchmarks.toml")[name]
    contestants, cases = stated["programs"].keys(), {*stated["cases"], *stated["quick"]["cases"]}
    assert {*stated.get("bare", {}), *stated.get("bare", {}).values()} <= contestants
    for skip in stated.get("skips", ()):
        assert set(skip["contestants"]) <= contestants
        assert set(skip["cases"]) <= cases
    for target in stated.get("targets", ()):
        assert {*target["ours"], *target.get("theirs", ())} <= contestants
        assert set(target["cases"]) <= cases


def test_a_list_names_cases_and_contestants_and_measures_nothing(offered: Fake, tmp_path: Path) -> None:
    code, output = invoke(tmp_path, "--list")
    assert code == 0
    for word in ("fake", "many", PEER, "missing: absent is not installed"):
        assert word in output
    assert not offered.turns


# measuring processes


def test_a_process_tells_its_figures_in_its_last_line() -> None:
    code = "print('warming up'); print('{\"cost\": 3}')"
    assert processes.run([sys.executable, "-c", code]) == {"cost": 3.0}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit('out of luck')", r"exit code 1\nout of luck"),
        ("print('hello')", r"printed no figures\nhello"),
        ("print('[1]')", r"printed no figures"),
        ("", r"printed no figures"),
    ],
)
def test_a_process_without_figures_is_an_error_with_its_output(code: str, told: str) -> None:
    with pytest.raises(ContestantError, match=told):
        processes.run([sys.executable, "-c", code])


def test_a_process_that_gives_no_answer_is_ended() -> None:
    with pytest.raises(ContestantError, match=r"no answer in 0\.2 s"):
        processes.run([sys.executable, "-c", "import signal; signal.pause()"], seconds=0.2)


def test_the_pure_build_is_imported_from_a_copy_without_machine_code() -> None:
    code = "import deadlined.timers as t, json; print(json.dumps({'compiled': t.COMPILED}))"
    assert processes.run([sys.executable, "-c", code], builds.environment(builds.PURE)) == {"compiled": 0.0}


def test_the_installed_build_is_missing_exactly_if_it_is_not_compiled() -> None:
    assert (builds.missing(builds.INSTALLED) is None) is COMPILED
    assert builds.missing(builds.PURE) is None


def test_go_is_named_as_missing_where_there_is_no_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golang, "toolchain", lambda: None)
    assert golang.contestant("Go").missing == golang.MISSING


def test_the_allocators_settings_are_told() -> None:
    assert malloc({"MALLOC_ARENA_MAX": "1", "HOME": "/"}) == "MALLOC_ARENA_MAX=1"
    assert malloc({}) == "defaults"


def test_a_table_shows_reasons_to_people(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=120, record=True)
    monkeypatch.setattr(tables, "console", console)
    tables.show(Fake(), measured(Fake(), 1), Rule(1, 1).text)
    text = console.export_text()
    assert "missing: absent is not installed" in text
    assert "not measured: cannot count so far" in text
