"""`python -m loadtest http`: when requests are due, what is counted, what fails a run. Pure."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.histogram import together
from loadtest.loop import Loop
from loadtest.openloop.client import Client, Plan, Tally
from loadtest.openloop.command import _conditions, _finish, _lines, _run, command
from loadtest.openloop.run import LEAST, MOST, Condition, Result, best, bounded_by_client, holds, search
from loadtest.target import Target

TARGET = Target("http://127.0.0.1/", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", False)


def test_arrivals_come_at_equal_distances() -> None:
    plan = Plan(TARGET, 10, 2, 1, 1.0)
    assert plan.requests == 20
    assert [plan.when(number) for number in range(4)] == [0.0, 0.1, 0.2, pytest.approx(0.3)]


def test_a_ramp_rises_from_nothing_to_the_rate() -> None:
    plan = Plan(TARGET, 1000, 10, 1, 1.0, ramp=True)
    times = [plan.when(number) for number in range(plan.requests)]
    assert len(times) == 5000
    assert sum(seconds < 5 for seconds in times) == 1250
    # the last second has all of the rate but a twentieth
    assert sum(9 <= seconds < 10 for seconds in times) == 950


@given(rate=st.floats(0.5, 1000), duration=st.floats(0.1, 5), ramp=st.booleans(), parts=st.integers(1, 5))
def test_the_parts_of_a_schedule_are_the_whole(rate: float, duration: float, ramp: bool, parts: int) -> None:
    whole = Plan(TARGET, rate, duration, parts, 1.0, ramp, processes=parts)
    times = sorted(
        part.when(number) for part in (whole.share(index) for index in range(parts)) for number in range(part.requests)
    )
    assert times == [whole.when(number) for number in range(whole.requests)]
    assert all(0 <= seconds <= duration * (1 + 1e-9) for seconds in times)


@pytest.mark.parametrize(
    ("text", "metric", "limit"),
    [
        ("p99>50ms", "p99", 50.0),
        ("p99.9 >= 1.5s", "p99.9", 1500.0),
        ("p50 < 200us", "p50", 0.2),
        ("max<=1s", "max", 1000.0),
        ("errors>0", "errors", 0.0),
        ("errors > 0.1%", "error part", 0.001),
        ("rate<900", "rate", 900.0),
    ],
)
def test_conditions_are_understood(text: str, metric: str, limit: float) -> None:
    condition = Condition.parse(text)
    assert (condition.metric, condition.text) == (metric, text)
    assert condition.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    "text", ["", "p99", "p99>50", "p98>50ms", "p99=50ms", "rate>5ms", "rate<5%", "p99>-1ms", "errors>1s"]
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no condition|give \w+ with"):
        Condition.parse(text)


@pytest.mark.parametrize(
    ("text", "value", "true"),
    [("p99>50ms", 50.0, False), ("p99>50ms", 50.1, True), ("p99>=50ms", 50.0, True), ("p99<50ms", 50.0, False),
     ("p99<=50ms", 50.0, True), ("p99>50ms", math.inf, True)],
)  # fmt: skip
def test_conditions_compare(text: str, value: float, true: bool) -> None:
    assert Condition.parse(text).true_of({"p99": value}) is true


def tally(*milliseconds: float, errors: dict[str, int] | None = None, late: float = 0.1, busy: float = 0.1) -> Tally:
    one = Tally(due=len(milliseconds), sent=len(milliseconds), errors=Counter(errors or {}), seconds=1.0, busy=busy)
    one.ok = one.due - sum(one.errors.values())
    for value in milliseconds:
        one.latency.record_value(round(value * 1000))
        one.late.record_value(round(late * 1000))
    return one


def result(*tallies: Tally, rate: float = 100.0, duration: float = 1.0) -> Result:
    return Result(Plan(TARGET, rate, duration, 64, 10.0, processes=len(tallies)), together(tallies))


def test_the_counts_of_processes_are_added() -> None:
    one, other = tally(*[1.0] * 90), tally(*[1.0] * 9, 500.0, errors={"no answer in time": 1})
    found = result(*pickle.loads(pickle.dumps([one, other])))
    assert (found.tally.sent, found.tally.ok, found.tally.errors.total(), found.rate) == (100, 99, 1, 99.0)
    latency = found.latency_ms
    assert latency["p50"] == latency["p99"] == pytest.approx(1.0, rel=0.01)
    assert latency["p99.9"] == latency["max"] == pytest.approx(500.0, rel=0.01)
    assert found.figures()["error part"] == 0.01


def test_the_json_has_the_pinned_names() -> None:
    written = json.loads(json.dumps(result(tally(1.0, 2.0)).as_json()))
    assert {"sent", "ok", "errors", "rate", "latency_ms"} <= written.keys()
    assert {"p50", "p90", "p99", "p99.9", "max"} <= written["latency_ms"].keys()
    assert (written["sent"], written["ok"], written["errors"], written["rate"]) == (2, 2, 0, 2.0)
    assert all(isinstance(value, float) for value in written["latency_ms"].values())
    assert (written["valid"], written["invalid"]) == (True, "")
    busy = result(tally(1.0, busy=0.99)).as_json()
    assert (busy["valid"], bool(busy["invalid"])) == (False, True)


def test_without_any_response_no_condition_on_latency_holds() -> None:
    found = result(Tally(due=5, errors=Counter({"Connection refused": 5}), seconds=1.0))
    assert set(found.latency_ms.values()) == {None}
    assert not holds(found, [Condition.parse("p99>50ms")])
    assert not holds(found, [Condition.parse("errors>1%")])


@pytest.mark.parametrize(
    ("late", "busy", "median", "errors", "text"),
    [
        (0.5, 0.5, 1.0, {}, ""),
        (19.9, 0.5, 1.0, {}, ""),
        (21.0, 0.5, 1.0, {}, "the client itself was late, by 21.0 ms"),
        (21.0, 0.5, 200.0, {}, ""),
        (0.5, 0.96, 1.0, {}, "a client process had work for 96% of the time: "),
        (0.5, 0.5, 1.0, {"Connection refused": 1}, ""),
        (0.5, 0.5, 1.0, {os.strerror(errno.EADDRNOTAVAIL): 1}, "no free port is left on this machine"),
    ],
)
def test_a_run_whose_client_was_the_bottleneck_is_invalid(
    late: float, busy: float, median: float, errors: dict[str, int], text: str
) -> None:
    found = tally(median, median, late=late, busy=busy, errors=errors).invalid
    assert found.startswith(text)
    assert bool(found) is bool(text)


def test_a_client_that_waits_for_a_processor_is_busy(tmp_path: Path) -> None:
    """What Linux counts of a thread, in nanoseconds: it ran, waited, and how often."""
    counts = tmp_path / "schedstat"
    counts.write_text("1000 2000000000 30\n")
    loop = Loop()
    before = loop.worked()
    own, loop._schedstat = loop._schedstat, os.open(counts, os.O_RDONLY)
    assert loop.worked() >= 2.0
    loop.close()
    loop._schedstat = -1
    assert 0.0 < loop.worked() <= before + 1.0
    os.close(own)


def test_what_the_loop_has_worked_is_what_makes_a_client_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = iter([7.0, 5007.0])
    monkeypatch.setattr(Loop, "worked", lambda self: next(worked))
    assert Client(Plan(TARGET, 1.0, 0.0, 1, 1.0)).run(monotonic()).busy > 1.0


def test_an_invalid_run_does_not_hold() -> None:
    found = result(tally(1.0, 1.0, late=500.0))
    assert found.tally.invalid
    assert not holds(found, [])


def server(highest: float) -> Callable[[Plan], Result]:
    """Return a server that answers in 1 ms up to a rate, and in 100 ms above."""
    return lambda plan: result(tally(*[1.0 if plan.rate <= highest else 100.0] * 10), rate=plan.rate)


@pytest.mark.parametrize("highest", [40.0, 100.0, 730.0, 12345.0])
def test_the_search_finds_the_highest_rate_that_holds(highest: float) -> None:
    conditions = [Condition.parse("p99>50ms")]
    results = search(Plan(TARGET, 100.0, 1.0, 64, 10.0), conditions, server(highest))
    found = best(results, conditions)
    assert found is not None
    assert 0.94 * highest <= found.plan.rate <= highest
    assert len(results) < 20


def test_a_search_in_vain_ends_at_the_least_rate() -> None:
    conditions = [Condition.parse("p99>0.5ms")]
    results = search(Plan(TARGET, 100.0, 20.0, 64, 10.0), conditions, server(1e9))
    assert best(results, conditions) is None
    assert results[-1].plan.rate == min(one.plan.rate for one in results) == LEAST


def test_a_search_in_vain_ends_where_no_request_is_due() -> None:
    results = search(Plan(TARGET, 100.0, 0.3, 64, 10.0), [Condition.parse("p99>0.5ms")], server(1e9))
    assert all(one.plan.share(0).requests for one in results)
    assert results[-1].plan.rate / 2 * 0.3 < 1


@pytest.mark.parametrize(
    ("highest", "client", "told", "code"),
    [
        # the client cannot ask more often; nor can the server answer; both at once
        (1e9, 300.0, "at least 300/s: the client was the bottleneck", 4),
        (300.0, 1e9, "300/s", 0),
        (300.0, 300.0, "300/s", 0),
        (1e9, 0.0, "none: the client was the bottleneck", 4),
        (0.0, 1e9, "none", 1),
    ],
)
def test_the_limit_of_the_client_is_not_said_to_be_the_servers(
    highest: float, client: float, told: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(plan: Plan) -> Result:
        found = server(highest)(plan)
        found.tally.busy = 0.5 if plan.rate <= client else 1.0
        return found

    conditions = [Condition.parse("p99>50ms")]
    results = search(Plan(TARGET, 300.0, 1.0, 64, 10.0), conditions, one)
    assert _finish(results, conditions, True, tmp_path / "json") == code
    assert capsys.readouterr().out == f"The highest rate that holds: {told}\n"
    written = json.loads((tmp_path / "json").read_text())
    assert written["bounded_by_client"] is (code == 4)


def test_a_moment_without_a_processor_is_no_limit_of_the_server() -> None:
    asked: list[float] = []

    def one(plan: Plan) -> Result:
        asked.append(plan.rate)
        found = server(1000.0)(plan)
        if asked == [100.0, 200.0]:
            # once: late itself, by what the condition then sees
            found = result(tally(*[100.0] * 10), rate=plan.rate)
            found.tally.busy = 1.0
        return found

    conditions = [Condition.parse("p99>50ms")]
    results = search(Plan(TARGET, 100.0, 1.0, 64, 10.0), conditions, one)
    found = best(results, conditions)
    assert found is not None
    assert asked[:4] == [100.0, 200.0, 200.0, 400.0]
    assert found.plan.rate > 900.0
    assert not bounded_by_client(results, conditions)


def test_a_run_that_is_over_at_once_says_nothing_of_the_client() -> None:
    found = Tally()
    found.ended(monotonic() + 0.3, 0.026)
    assert found.busy < 0.5
    assert not found.invalid


@pytest.mark.parametrize("first", [100.0, LEAST])
def test_a_search_that_finds_no_limit_ends_at_the_highest_rate(first: float) -> None:
    results = search(Plan(TARGET, first, 20.0, 64, 10.0), [Condition.parse("p99>50ms")], server(1e9))
    assert results[-1].plan.rate == max(one.plan.rate for one in results) == MOST


def test_a_run_that_asked_nothing_does_not_hold() -> None:
    assert not holds(result(Tally(seconds=1.0)), [Condition.parse("errors>1%")])


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        ((), []),
        (("p99>50ms",), ["p99>50ms", "errors>1%"]),
        (("rate<9", "p50>1s"), ["rate<9", "p50>1s", "errors>1%"]),
        (("p99>50ms", "errors>5"), ["p99>50ms", "errors>5"]),
        (("errors>50%",), ["errors>50%"]),
    ],
)
def test_errors_fail_a_run_unless_a_condition_names_them(given: tuple[str, ...], judged: list[str]) -> None:
    option = next(one for one in command.params if one.name == "conditions")
    assert [one.text for one in _conditions(click.Context(command), option, given)] == judged


@pytest.mark.parametrize(("rates", "found"), [((50.0, 100.0, 200.0), 50.0), ((200.0,), None)])
def test_an_interrupted_search_tells_the_best_so_far(
    rates: tuple[float, ...], found: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = [Condition.parse("p99>50ms")]
    results = [server(70.0)(Plan(TARGET, rate, 1.0, 64, 10.0)) for rate in rates]
    results[-1].tally.interrupted = True
    assert _finish(results, conditions, True, tmp_path / "json") == 130
    written = json.loads((tmp_path / "json").read_text())
    assert written["found"] == found
    assert [one["holds"] for one in written["search"]] == [rate <= 70.0 for rate in rates]
    assert f"holds so far: {f'{found:g}/s' if found else 'none'}" in capsys.readouterr().out


def test_a_line_of_figures_is_not_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("loadtest.openloop.command.run_plan", lambda *_: result(tally(1.0, errors={"x " * 100: 1})))
    _run(Plan(TARGET, 10.0, 1.0, 4, 1.0), Event())
    assert "x " * 100 in capsys.readouterr().out


def test_a_search_stops_where_it_is_interrupted() -> None:
    def interrupted(plan: Plan) -> Result:
        one = tally(1.0)
        one.interrupted = True
        return result(one, rate=plan.rate)

    assert len(search(Plan(TARGET, 100.0, 1.0, 64, 10.0), [], interrupted)) == 1


@pytest.mark.parametrize(
    ("rate", "connections", "asked", "processes"),
    [(100, 64, 0, 1), (1e6, 64, 3, 3), (1e6, 2, 5, 2), (100, 1, 0, 1)],
)
def test_as_many_processes_as_the_rate_needs(rate: float, connections: int, asked: int, processes: int) -> None:
    assert Plan(TARGET, rate, 1.0, connections, 10.0, processes=asked).clients == processes


@pytest.mark.parametrize("processors", [1, 3])
def test_no_more_processes_than_processors_that_may_be_used(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert Plan(TARGET, 1e6, 1.0, 64, 10.0).clients == processors


def test_percentiles_go_to_four_nines() -> None:
    one = tally(*[1.0] * 9998, 70.0, 900.0)
    latency = result(one).latency_ms
    assert latency["p99.9"] == pytest.approx(1.0, rel=0.01)
    assert latency["p99.99"] == pytest.approx(70.0, rel=0.01)
    assert latency["max"] == pytest.approx(900.0, rel=0.01)


@pytest.mark.parametrize(("kind", "slow"), [("not sent in time", True), ("Connection refused", False)])
def test_a_server_is_slower_than_the_rate_if_requests_found_no_connection(kind: str, slow: bool) -> None:
    tally = Tally(due=10, sent=5, ok=5, errors=Counter({kind: 5}))
    told = "\n".join(_lines(Result(Plan(TARGET, 10.0, 1.0, 4, 1.0), tally)))
    assert ("slower than the rate: 5 requests" in told) is slow
    # that the rest came late is said beside it
    tally.seconds = 3.0
    told = "\n".join(_lines(Result(Plan(TARGET, 10.0, 1.0, 4, 1.0), tally)))
    assert ("slower than the rate: 5 requests" in told) is slow
    assert "may be slower than the rate: the run took 2.0 s longer" in told


@pytest.mark.parametrize(
    ("last", "fastest", "rate"),
    [(0.99, 1.0, 100.0), (1.01, 1.0, 100.0), (1.1, 100.0, 100.0), (12.5, 500.0, 100 / 12), (0.0, 3600_000.0, 100.0)],
)
def test_the_rate_is_the_servers_if_it_answers_after_the_schedule(last: float, fastest: float, rate: float) -> None:
    one = tally(*[fastest] * 100)
    one.last = last
    found = result(one, Tally(seconds=1.0))
    assert found.rate == pytest.approx(rate, rel=0.01 if last > 2 else 0.0)
    assert Condition.parse("rate<90").true_of(found.figures()) is (rate < 90)


def test_the_mean_rate_of_a_ramp_is_told_and_is_its_rate() -> None:
    ramp = replace(result(tally(*[1.0] * 100)), plan=Plan(TARGET, 200.0, 1.0, 4, 1.0, ramp=True))
    assert next(_lines(ramp)).startswith("0 to 200/s, 100/s on average, for 1 s: 100 of 100 answered, 100.0/s")
    assert ramp.as_json()["ramp"] is True
