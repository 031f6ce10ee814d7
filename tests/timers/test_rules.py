"""The rules of `Timers`, one example each: what moving a timer does to the queue, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import pytest

from deadlined.timers import COMPILED, SCHEMES, Timers
from tests.support.timers import HOUR, INF, Journal, stored_state, wakes_for

# moving


def test_later_is_a_store_and_touches_no_queue(timers: Timers, journal: Journal) -> None:
    many = [journal.timer(i) for i in range(100)]
    for i, timer in enumerate(many):
        timers.modify(timer, float(i))
    before = stored_state(timers)
    for timer in many:
        assert timers.modify(timer, timer.when + HOUR) is True
        timer.when += HOUR
    assert stored_state(timers) == before
    assert [timer.key for timer in many] == [float(i) for i in range(100)]


def test_a_timer_moved_later_fires_at_its_new_time_only(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("moved")
    timers.modify(timer, 1.0)
    timers.modify(timer, 5.0)
    assert timers.wake_time() == 1.0
    assert wakes_for(timers, timers.check(1.0), 5.0)
    assert wakes_for(timers, timers.check(4.999), 5.0)
    assert journal.args() == []
    assert timers.statistics().refiled == 1
    timers.check(5.0)
    assert journal.firings == [("moved", 0, 0.0)]


def test_a_plain_store_to_when_extends_a_pending_timer(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("stored")
    timers.modify(timer, 1.0)
    timer.when = 9.0
    timer.when = 3.0  # down again, but not before the key
    assert timers.check(2.0) == 3.0
    assert (journal.args(), timer.key) == ([], 3.0)
    timer.when = 4.0
    assert timers.check(3.5) == 4.0
    timers.check(4.5)
    assert journal.firings == [("stored", 0, 0.5)]


def test_an_extended_timer_that_is_due_at_its_new_time_too_fires_in_the_same_check(
    timers: Timers, journal: Journal
) -> None:
    extended, other = journal.timer("extended"), journal.timer("other")
    timers.modify(extended, 1.0)
    timers.modify(other, 2.0)
    extended.when = 3.0
    timers.check(3.0)
    assert journal.firings == [("other", 0, 1.0), ("extended", 0, 0.0)]


def test_earlier_moves_the_entry_at_once(timers: Timers, journal: Journal) -> None:
    for i in range(50):
        timers.modify(journal.timer(i), 10.0)
    timer = journal.timer("earlier")
    timers.modify(timer, 20.0)
    assert timers.modify(timer, 5.0) is True
    assert (timer.key, len(timers), timers.zombies) == (5.0, 51, 0)
    assert timers.wake_time() == 5.0
    timers.check(5.0)
    assert journal.args() == ["earlier"]


def test_moving_back_between_key_and_when_is_a_store_too(timers: Timers, journal: Journal) -> None:
    timer = journal.timer()
    timers.modify(timer, 1.0)
    timers.modify(timer, 9.0)
    before = stored_state(timers)
    timers.modify(timer, 2.0)
    timers.modify(timer, 1.0)
    assert stored_state(timers) == before
    timers.check(1.0)
    assert len(journal.firings) == 1


def test_modify_replaces_the_period(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("once")
    timers.modify(timer, 1.0, period=1.0)
    timers.modify(timer, 2.0)
    assert timers.check(2.0) == INF
    assert journal.args() == ["once"]


# refusals


@pytest.mark.parametrize(
    ("when", "period", "message"),
    [
        (math.nan, 0.0, "when must not be NaN"),
        (1.0, -1.0, "period must be >= 0"),
        (1.0, -5e-324, "period must be >= 0"),
        (1.0, -INF, "period must be >= 0"),
        (1.0, math.nan, "period must be >= 0"),
    ],
)
@pytest.mark.parametrize("state", ["idle", "pending", "zombie"])
def test_nonsense_is_refused_and_changes_nothing(
    timers: Timers, journal: Journal, state: str, when: float, period: float, message: str
) -> None:
    timer = journal.timer()
    if state != "idle":
        timers.modify(timer, 5.0, period=2.0)
    if state == "zombie":
        timers.stop(timer)
    before = (timer.when, timer.key, timer.period, timers.statistics())
    with pytest.raises(ValueError, match=message):
        timers.modify(timer, when, period)
    assert (timer.when, timer.key, timer.period, timers.statistics()) == before


def test_a_check_at_nan_is_refused(timers: Timers) -> None:
    with pytest.raises(ValueError, match="now must not be NaN"):
        timers.check(math.nan)


def test_an_unknown_queue_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown timer queue 'sundial'") as caught:
        Timers("sundial")
    assert "heap4" in SCHEMES
    for name in SCHEMES:
        assert name in str(caught.value)


@pytest.mark.parametrize("queue", sorted(SCHEMES))
def test_every_named_queue_serves(queue: str, journal: Journal) -> None:
    timers = Timers(queue)
    timers.modify(journal.timer("due"), 1.0)
    assert timers.check(1.0) == INF
    assert (journal.args(), timers.statistics().queue) == (["due"], queue)


def test_a_timer_that_is_stored_in_another_facility_is_refused(timers: Timers, journal: Journal) -> None:
    home = Timers()
    timer = journal.timer("loyal")
    home.modify(timer, 1.0)
    with pytest.raises(ValueError, match="stored in another Timers"):
        timers.modify(timer, 2.0)
    with pytest.raises(ValueError, match="stored in another Timers"):
        timers.stop(timer)
    home.stop(timer)
    with pytest.raises(ValueError, match="stored in another Timers"):
        timers.modify(timer, 2.0)
    assert (home.zombies, len(home), len(timers)) == (1, 1, 0)


def test_an_idle_timer_may_start_in_another_facility(timers: Timers, journal: Journal) -> None:
    home = Timers()
    timer = journal.timer("moved house")
    home.modify(timer, 1.0)
    home.check(1.0)
    timers.modify(timer, 2.0)
    timers.check(2.0)
    assert journal.args() == ["moved house", "moved house"]


# the rest of the surface


def test_statistics_are_a_frozen_snapshot(timers: Timers, journal: Journal) -> None:
    def fail() -> None:
        raise LookupError

    timers.modify(journal.timer("fired"), 1.0)
    timers.modify(journal.timer_that("failed", fail), 1.0)
    timers.modify(extended := journal.timer("extended"), 1.0)
    extended.when = 9.0
    timers.modify(stopped := journal.timer("stopped"), 10.0)
    timers.stop(stopped)
    timers.check(2.0)
    snapshot = timers.statistics()
    assert dataclasses.asdict(snapshot) == {
        "queue": timers.name,
        "stored": 2,
        "zombies": 1,
        "fired": 2,
        "refiled": 1,
        "failed": 1,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.fired = 0  # type: ignore[misc]
    timers.check(9.0)
    assert (snapshot.fired, timers.statistics().fired) == (2, 3)


def test_a_timer_shows_its_state(timers: Timers, journal: Journal) -> None:
    timer = journal.timer()
    timer.seq = 4
    assert repr(timer) == "<Timer idle seq=4>"
    timers.modify(timer, 1.5)
    assert repr(timer) == "<Timer when=1.5 seq=4>"
    timers.stop(timer)
    assert repr(timer) == "<Timer zombie seq=4>"


def test_compiled_says_what_runs() -> None:
    """A compiled method is no Python function with code of its own."""
    assert COMPILED is not hasattr(Timers.check, "__code__")
