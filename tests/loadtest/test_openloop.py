"""`python -m loadtest http`: when requests are due, what is counted, what fails a run. Pure."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.histogram import together
from loadtest.openloop.client import Tally
from loadtest.openloop.command import _lines
from loadtest.openloop.condition import Condition
from loadtest.openloop.result import Plan, Result, bottleneck
from loadtest.openloop.run import best, holds, search
from loadtest.openloop.schedule import Schedule
from loadtest.target import Target

TARGET = Target("http://127.0.0.1/", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", False)


def test_arrivals_come_at_equal_distances() -> None:
    schedule = Schedule(10, 2)
    assert len(schedule) == 20
    assert [schedule.when(number) for number in range(4)] == [0.0, 0.1, 0.2, pytest.approx(0.3)]


def test_a_ramp_rises_from_nothing_to_the_rate() -> None:
    schedule = Schedule(1000, 10, ramp=True)
    times = [schedule.when(number) for number in range(len(schedule))]
    assert len(times) == 5000
    assert sum(seconds < 5 for seconds in times) == 1250
    # the last second has all of the rate but a twentieth
    assert sum(9 <= seconds < 10 for seconds in times) == 950


@given(rate=st.floats(0.5, 1000), duration=st.floats(0.1, 5), ramp=st.booleans(), parts=st.integers(1, 5))
def test_the_parts_of_a_schedule_are_the_whole(rate: float, duration: float, ramp: bool, parts: int) -> None:
    whole = Schedule(rate, duration, ramp)
    times = sorted(
        part.when(number)
        for part in (Schedule(rate, duration, ramp, index, parts) for index in range(parts))
        for number in range(len(part))
    )
    assert times == [whole.when(number) for number in range(len(whole))]
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
    with pytest.raises(ValueError, match=r"no condition|with a unit|no unit"):
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


def test_without_any_response_no_condition_on_latency_holds() -> None:
    found = result(Tally(due=5, errors=Counter({"Connection refused": 5}), seconds=1.0))
    assert set(found.latency_ms.values()) == {None}
    assert not holds(found, [Condition.parse("p99>50ms")])
    assert not holds(found, [Condition.parse("errors>1%")])


@pytest.mark.parametrize(
    ("late", "busy", "median", "text"),
    [
        (0.5, 0.5, 1.0, ""),
        (20.0, 0.5, 1.0, ""),
        (21.0, 0.5, 1.0, "the client itself was late, by 21.0 ms"),
        (21.0, 0.5, 200.0, ""),
        (0.5, 0.96, 1.0, "a client process used 96%"),
    ],
)
def test_a_run_whose_client_was_the_bottleneck_is_invalid(late: float, busy: float, median: float, text: str) -> None:
    assert bottleneck(late, busy, median).startswith(text)
    assert bool(bottleneck(late, busy, median)) is bool(text)


def test_an_invalid_run_does_not_hold() -> None:
    found = result(tally(1.0, 1.0, late=500.0))
    assert found.invalid
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


def test_a_search_in_vain_ends() -> None:
    conditions = [Condition.parse("p99>0.5ms")]
    results = search(Plan(TARGET, 100.0, 1.0, 64, 10.0), conditions, server(1e9))
    assert best(results, conditions) is None
    assert len(results) <= 20


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
