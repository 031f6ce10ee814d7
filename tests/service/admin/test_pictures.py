"""Sums of what processes have counted, and the pace at which they are asked."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.service.admin.pace import PAGE_PATIENCE, PATIENCE, SHARE, Pace
from deadlined.service.admin.picture import Worker, add
from deadlined.service.admin.service import UnavailableError
from tests.support.admin import answer, counters, picture


def test_everything_is_summed() -> None:
    assert add(counters(1), None, counters(2)) == counters(3)
    assert add(counters(5)) == counters(5)
    assert add(None) is None
    assert add() is None


def test_what_only_one_process_has_counted_is_kept() -> None:
    first = counters(requests={"GET": {"200": 1, "404": 2}}, closed={"done": 1})
    second = counters(requests={"GET": {"200": 3}, "PUT": {"201": 4}}, closed={"idle_timeout": 2})
    total = add(first, second)
    assert total is not None
    assert total.requests == {"GET": {"200": 4, "404": 2}, "PUT": {"201": 4}}
    assert total.closed == {"done": 1, "idle_timeout": 2}


@given(st.lists(st.integers(0, 1000), max_size=5), st.integers(0, 1000))
def test_a_process_that_has_ended_stays_in_the_totals(alive: list[int], gone: int) -> None:
    shown = picture(*map(answer, alive), retired=counters(gone))
    assert shown.totals() == counters(sum(alive) + gone)


def test_a_picture_is_ready_while_a_process_serves() -> None:
    assert picture(answer(), answer()).ready
    # one that is slow to answer serves nevertheless
    assert picture(answer(), None).ready
    whole = picture(answer(), answer(), answer())
    for missing in range(3):
        # those that have died are replaced, and one drains
        drains = msgspec.structs.replace(whole.workers[0], state="draining")
        shown = msgspec.structs.replace(whole, workers=[drains, *whole.workers[missing:]])
        assert (shown.ready, shown.serving) == (True, 3 - missing)
    assert not msgspec.structs.replace(whole, workers=[drains]).ready
    assert not msgspec.structs.replace(whole, workers=[]).ready


@pytest.mark.parametrize("status", ["starting", "draining"])
def test_a_picture_is_not_ready_before_all_have_served_nor_in_a_drain(status: str) -> None:
    assert not msgspec.structs.replace(picture(answer(), answer()), status=status).ready


def test_a_picture_is_not_ready_if_no_process_answers_that_serves() -> None:
    first, second = picture(answer(), answer()).workers
    drains = Worker(worker=0, pid=99, up=True, state="draining")
    for workers, ready in [
        ([silent(first), second], True),
        ([silent(first), silent(second)], False),
        ([silent(first), silent(second), drains], False),
    ]:
        shown = msgspec.structs.replace(picture(answer(), answer()), workers=workers)
        assert (shown.ready, shown.all_silent) == (ready, not ready)
    assert not msgspec.structs.replace(picture(answer()), workers=[]).all_silent


def silent(worker: Worker) -> Worker:
    return msgspec.structs.replace(worker, silent=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_answers_take_their_share_of_the_time_at_most() -> None:
    clock = Clock()
    pace = Pace(clock)
    asked, begun, spent = clock.now, [], 0.0
    for number in range(200):
        # whoever asks 100 times per second
        clock.now = max(clock.now, asked + 0.01 * number)
        clock.now += pace.reserve()
        begun.append(clock.now)
        clock.now += 0.005
        spent += 0.005
        pace.spent(0.005)
    assert spent / (clock.now - asked) <= SHARE * 1.05
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) >= 0.005 / SHARE * 0.999


def test_who_asks_now_and_then_never_waits() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(10):
        assert pace.reserve() == 0.0
        pace.spent(0.005)
        clock.now += 1.0


def test_a_slow_answer_is_forgotten_after_some_fast_ones() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.reserve()
    pace.spent(0.2)
    for _ in range(60):
        clock.now += pace.reserve()
        pace.spent(0.0001)
    before = clock.now
    clock.now += pace.reserve()
    assert clock.now - before < 0.02


def test_a_crowd_is_told_to_come_back() -> None:
    pace = Pace(Clock())
    pace.reserve()
    pace.spent(0.05)
    waits = []
    with pytest.raises(UnavailableError):
        while True:
            waits.append(pace.reserve())
    assert waits == sorted(waits)
    assert PATIENCE - 0.6 < waits[-1] <= PATIENCE


def test_a_page_gives_way_before_others_are_told_to_come_back() -> None:
    pace = Pace(Clock())
    pace.reserve()
    pace.spent(0.35)
    with pytest.raises(UnavailableError):
        pace.reserve(PAGE_PATIENCE)
    # and has taken no turn
    assert pace.reserve() == pytest.approx(3.5)
