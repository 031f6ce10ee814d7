"""A check runs what is due: in order, with one reading of the clock, whatever a callback raises."""

from __future__ import annotations

import logging
import math
import random

import pytest

from deadlined.timers import Timers
from tests.support.timers import INF, Journal, assert_sound


def test_equal_times_fire_first_in_first_out(timers: Timers, journal: Journal) -> None:
    for i in range(1000):
        timers.modify(journal.timer(i), 1.0)
    timers.check(1.0)
    assert journal.args() == list(range(1000))


def test_a_sweep_keeps_first_in_first_out(timers: Timers, journal: Journal) -> None:
    many = [journal.timer(i) for i in range(1000)]
    for timer in many:
        timers.modify(timer, 1.0)
    for timer in many[::2]:
        timers.stop(timer)
    timers.check(0.0)
    assert timers.zombies == 0
    timers.check(1.0)
    assert journal.args() == list(range(1, 1000, 2))


def test_moving_earlier_enters_the_queue_behind_those_of_that_time(timers: Timers, journal: Journal) -> None:
    first, second = journal.timer("first"), journal.timer("second")
    timers.modify(first, 5.0)
    timers.modify(second, 1.0)
    timers.modify(first, 1.0)
    timers.check(1.0)
    assert journal.args() == ["second", "first"]


def test_an_extended_timer_enters_its_new_place_when_its_old_key_passes(timers: Timers, journal: Journal) -> None:
    extended = journal.timer("extended")
    timers.modify(extended, 1.0)
    extended.when = 3.0
    timers.modify(journal.timer("before"), 3.0)
    timers.check(2.0)
    timers.modify(journal.timer("after"), 3.0)
    timers.check(3.0)
    assert journal.args() == ["before", "extended", "after"]


def test_due_timers_fire_in_the_order_of_their_times(timers: Timers, journal: Journal) -> None:
    times = [float(i) for i in range(500)]
    random.Random(1).shuffle(times)
    for when in times:
        timers.modify(journal.timer(when), when)
    timers.check(499.0)
    assert journal.args() == sorted(times)


def test_a_timer_that_arms_itself_for_now_fires_once_per_check(timers: Timers, journal: Journal) -> None:
    timer = journal.timer_that("again", lambda: timers.modify(timer, 1.0))
    timers.modify(timer, 1.0)
    for _ in range(3):
        assert timers.check(1.0) == 1.0
        assert journal.args() == ["again"]


def test_what_a_callback_arms_for_the_past_waits_for_the_next_check(timers: Timers, journal: Journal) -> None:
    armed = [journal.timer("-inf"), journal.timer("past"), journal.timer("now")]

    def act() -> None:
        for timer, when in zip(armed, (-INF, 0.0, 1.0), strict=True):
            timers.modify(timer, when)

    timers.modify(journal.timer_that("arms", act), 1.0)
    timers.modify(journal.timer("due as well"), 1.0)
    assert timers.check(1.0) == -INF
    assert journal.args() == ["arms", "due as well"]
    assert timers.check(1.0) == INF
    assert journal.args() == ["-inf", "past", "now"]


def test_a_due_timer_that_a_callback_moves_within_the_past_waits_for_the_next_check(
    timers: Timers, journal: Journal
) -> None:
    moved = journal.timer("moved")
    timers.modify(journal.timer_that("mover", lambda: timers.modify(moved, 2.0)), 1.0)
    timers.modify(moved, 1.0)
    assert timers.check(5.0) == 2.0
    assert journal.args() == ["mover"]
    timers.check(5.0)
    assert journal.firings == [("moved", 0, 3.0)]


def test_what_waits_for_the_next_check_may_be_stopped_or_moved_by_the_same_check(
    timers: Timers, journal: Journal
) -> None:
    stopped, moved = journal.timer("stopped"), journal.timer("moved")
    answers: list[bool] = []

    def arm() -> None:
        timers.modify(stopped, 0.0)
        timers.modify(moved, 0.0)

    def rearrange() -> None:
        answers.append(timers.stop(stopped))
        answers.append(timers.modify(moved, 7.0))

    timers.modify(arming := journal.timer_that("arm", arm), 1.0)
    timers.modify(rearranging := journal.timer_that("rearrange", rearrange), 2.0)
    assert timers.check(5.0) == 7.0
    assert answers == [True, True]
    assert_sound(timers, [stopped, moved, arming, rearranging])
    timers.check(7.0)
    assert journal.args() == ["arm", "rearrange", "moved"]


def test_a_firing_never_comes_early(timers: Timers, journal: Journal) -> None:
    for when in (0.0, 1.0, 1e6, 1e300):
        timer = journal.timer(when)
        timers.modify(timer, when)
        timers.check(math.nextafter(when, -INF))
        assert journal.firings == []
        timers.check(when)
        assert journal.args() == [when]


def test_lateness_at_the_beginning_of_time_is_zero_and_no_nan(timers: Timers, journal: Journal) -> None:
    timers.modify(journal.timer("first"), -INF)
    timers.check(-INF)
    assert journal.firings == [("first", 0, 0.0)]


def test_what_was_left_to_the_next_check_keeps_its_rank_if_the_check_is_interrupted(
    timers: Timers, journal: Journal
) -> None:
    def arm_and_interrupt() -> None:
        timers.modify(journal.timer("B"), 0.5)
        raise KeyboardInterrupt

    timers.modify(journal.timer_that("first", lambda: timers.modify(journal.timer("A"), 0.5)), 1.0)
    timers.modify(journal.timer_that("second", arm_and_interrupt), 1.0)
    with pytest.raises(KeyboardInterrupt):
        timers.check(1.0)
    assert journal.args() == ["first", "second"]
    timers.check(1.0)
    assert journal.args() == ["A", "B"]


def test_lateness_is_now_minus_when(timers: Timers, journal: Journal) -> None:
    timers.modify(journal.timer("a"), 1.0)
    timers.modify(journal.timer("b"), -2.0)
    timers.check(4.0)
    assert journal.firings == [("b", 0, 6.0), ("a", 0, 3.0)]


def test_a_callback_finds_the_time_it_was_due_at_exactly(timers: Timers, journal: Journal) -> None:
    seen: list[float] = []
    once = journal.timer_that("once", lambda: seen.append(once.due))
    tick = journal.timer_that("tick", lambda: seen.append(tick.due))
    timers.modify(once, 0.1)
    timers.modify(tick, 0.2, period=0.5)
    timers.check(1e9)
    assert seen == [0.1, 0.2]


def test_a_check_with_nothing_due_calls_nothing_and_says_when(timers: Timers, journal: Journal) -> None:
    assert timers.check(100.0) == INF
    timers.modify(journal.timer(), 200.0)
    assert timers.check(100.0) == 200.0
    assert journal.args() == []


def test_seq_is_the_value_when_the_timer_is_taken_out(timers: Timers, journal: Journal) -> None:
    overtaken = journal.timer("overtaken")
    overtaken.seq = 6

    def act() -> None:
        overtaken.seq += 1
        bumping.seq += 1

    bumping = journal.timer_that("bumping", act)
    bumping.seq = 3
    timers.modify(bumping, 1.0)
    timers.modify(overtaken, 1.0)
    timers.check(1.0)
    assert journal.firings == [("bumping", 3, 0.0), ("overtaken", 7, 0.0)]


def test_a_callback_that_raises_is_logged_and_loses_no_other_timer(
    timers: Timers, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    failing = journal.timer_that("failing", fail)
    timers.modify(journal.timer("before"), 1.0)
    timers.modify(failing, 2.0, period=1.0)
    timers.modify(journal.timer("after"), 2.0)
    with caplog.at_level(logging.ERROR, "deadlined.timers"):
        assert timers.check(2.0) == 3.0
    assert journal.args() == ["before", "failing", "after"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("deadlined.timers", logging.ERROR)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert repr(failing.callback) in record.getMessage()
    assert timers.statistics().failed == 1


def test_keyboard_interrupt_passes_through_and_the_rest_stays_due(timers: Timers, journal: Journal) -> None:
    armed = journal.timer("armed")

    def interrupt() -> None:
        timers.modify(armed, 0.0)
        raise KeyboardInterrupt

    timers.modify(journal.timer("first"), 1.0)
    timers.modify(interrupted := journal.timer_that("interrupt", interrupt), 2.0)
    timers.modify(rest := journal.timer("rest"), 3.0)
    with pytest.raises(KeyboardInterrupt):
        timers.check(5.0)
    assert journal.args() == ["first", "interrupt"]
    assert_sound(timers, [interrupted, rest, armed])
    assert timers.check(5.0) == INF
    assert journal.args() == ["armed", "rest"]
    assert timers.statistics().failed == 0


def test_keyboard_interrupt_loses_nothing_that_waits_for_the_next_check(timers: Timers, journal: Journal) -> None:
    armed = journal.timer("armed")

    def interrupt() -> None:
        raise KeyboardInterrupt

    timers.modify(journal.timer_that("arms", lambda: timers.modify(armed, 1.5)), 1.0)
    timers.modify(journal.timer_that("interrupts", interrupt), 2.0)
    with pytest.raises(KeyboardInterrupt):
        timers.check(5.0)
    assert (armed.key, len(timers)) == (1.5, 1)
    timers.check(5.0)
    assert journal.args() == ["arms", "interrupts", "armed"]


def test_check_inside_a_callback_is_refused(timers: Timers, journal: Journal) -> None:
    def reenter() -> None:
        with pytest.raises(RuntimeError, match="inside a timer's callback"):
            timers.check(9.0)

    timers.modify(journal.timer_that("outer", reenter), 1.0)
    timers.modify(journal.timer("other"), 2.0)
    assert timers.check(1.0) == 2.0
    assert (journal.args(), timers.statistics().failed) == (["outer"], 0)
    timers.check(2.0)
    assert journal.args() == ["other"]
