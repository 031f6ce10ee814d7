"""Taking over the pending timers of another facility."""

from __future__ import annotations

import pytest

from deadlined.timers import Timer, Timers
from tests.support.timers import INF, Journal, assert_sound


def test_take_moves_pending_timers_with_their_times_periods_and_order(timers: Timers, journal: Journal) -> None:
    other = Timers()
    names = [journal.timer(i) for i in range(30)]
    for timer in names:
        other.modify(timer, 5.0)
    ticking, extended, stopped = journal.timer("ticking"), journal.timer("extended"), journal.timer("stopped")
    other.modify(ticking, 6.0, period=10.0)
    other.modify(extended, 1.0)
    extended.when = 8.0
    other.modify(stopped, 2.0)
    other.stop(stopped)
    timers.modify(mine := journal.timer("mine"), 5.0)
    timers.take(other)
    assert (len(other), other.zombies, other.wake_time()) == (0, 0, INF)
    assert (len(timers), timers.zombies) == (33, 0)
    assert_sound(timers, [mine, *names, ticking, extended, stopped])
    assert extended.key == 8.0
    assert not stopped.zombie
    assert timers.check(10.0) == 16.0
    assert journal.args() == ["mine", *range(30), "ticking", "extended"]
    assert other.check(100.0) == INF
    assert timers.stop(ticking) is True


@pytest.mark.parametrize("taken", [False, True])
def test_the_place_of_one_that_was_extended(timers: Timers, journal: Journal, taken: bool) -> None:
    extended = journal.timer("extended")
    timers.modify(extended, 20.0)
    timers.modify(journal.timer("later"), 30.0)
    timers.modify(extended, 30.0)
    heir = Timers() if taken else timers
    if taken:
        heir.take(timers)
    heir.check(30.0)
    assert journal.args() == (["extended", "later"] if taken else ["later", "extended"])


def test_taking_itself_is_refused(timers: Timers, journal: Journal) -> None:
    timers.modify(journal.timer("kept"), 1.0)
    with pytest.raises(ValueError, match="cannot take its own"):
        timers.take(timers)
    timers.check(1.0)
    assert journal.args() == ["kept"]


def test_what_a_callback_takes_waits_for_the_next_check(timers: Timers, journal: Journal) -> None:
    other = Timers()
    other.modify(journal.timer("taken"), 0.0)
    timers.modify(journal.timer_that("taker", lambda: timers.take(other)), 1.0)
    assert timers.check(1.0) == 0.0
    assert journal.args() == ["taker"]
    timers.check(1.0)
    assert journal.args() == ["taken"]


def test_a_facility_may_be_taken_over_from_inside_its_own_check(timers: Timers, journal: Journal) -> None:
    """What is still due goes along, and so does what was waiting for the next check."""
    heir = Timers()
    armed, due = journal.timer("armed"), journal.timer("due")
    timers.modify(journal.timer_that("arms", lambda: timers.modify(armed, 0.0)), 1.0)
    timers.modify(journal.timer_that("closes", lambda: heir.take(timers)), 2.0)
    timers.modify(due, 3.0)
    assert timers.check(5.0) == INF
    assert (journal.args(), len(timers), len(heir)) == (["arms", "closes"], 0, 2)
    heir.check(5.0)
    assert journal.args() == ["armed", "due"]


@pytest.fixture
def wanderer(timers: Timers, second: Timers, journal: Journal) -> Timer:
    """A timer that one callback arms for the next check, and another stops and starts in a second facility."""
    timer = journal.timer("wanderer")

    def move_house() -> None:
        timers.stop(timer)
        second.modify(timer, 7.0)

    timers.modify(journal.timer_that("arms", lambda: timers.modify(timer, 1.5)), 1.0)
    timers.modify(journal.timer_that("moves", move_house), 2.0)
    return timer


@pytest.fixture
def second() -> Timers:
    return Timers()


def test_what_waits_for_the_next_check_may_start_in_another_facility(
    timers: Timers, second: Timers, journal: Journal, wanderer: Timer
) -> None:
    assert timers.check(5.0) == INF
    assert (len(timers), len(second)) == (0, 1)
    assert_sound(second, [wanderer])
    second.check(7.0)
    assert journal.args() == ["arms", "moves", "wanderer"]


def test_take_leaves_alone_what_has_meanwhile_started_elsewhere(
    timers: Timers, second: Timers, journal: Journal, wanderer: Timer
) -> None:
    """It was armed for the next check, stopped, and started in the second facility, before a third one takes over."""
    third = Timers()
    timers.modify(journal.timer_that("closes", lambda: third.take(timers)), 3.0)
    timers.check(5.0)
    assert (len(timers), len(second), len(third)) == (0, 1, 0)
    assert_sound(second, [wanderer])
