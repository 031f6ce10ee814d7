"""Stopping a timer: a zombie stays behind, may be revived, and costs bounded memory."""

from __future__ import annotations

import math
import random

import pytest

from deadlined.timers import Timers
from deadlined.timers.facility import SLACK
from tests.support.timers import HOUR, INF, Journal, assert_sound, stored_state, wakes_for


def bound(live: int) -> float:
    """The most entries that may be stored for `live` timers."""
    return 4 / 3 * (live + SLACK)


def test_stop_leaves_a_zombie_that_never_fires(timers: Timers, journal: Journal) -> None:
    timer = journal.timer()
    timers.modify(timer, 1.0)
    before = stored_state(timers)
    assert timers.stop(timer) is True
    assert stored_state(timers) == before
    assert (timer.zombie, timer.pending, timers.zombies, len(timers)) == (True, False, 1, 1)
    assert timers.stop(timer) is False
    assert timers.zombies == 1
    assert timers.check(2.0) == INF
    assert (journal.args(), timers.zombies, len(timers), timer.zombie) == ([], 0, 0, False)


def test_stop_of_a_fired_or_never_started_timer_is_false(timers: Timers, journal: Journal) -> None:
    timer = journal.timer()
    assert timers.stop(timer) is False
    timers.modify(timer, 1.0)
    timers.check(1.0)
    assert timers.stop(timer) is False
    assert timers.zombies == 0


def test_stop_ends_a_periodic_timer(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("tick")
    timers.modify(timer, 1.0, period=1.0)
    timers.check(2.0)
    assert timers.stop(timer) is True
    timers.check(10.0)
    assert journal.args() == ["tick"]


def test_modify_to_inf_is_stop(timers: Timers, journal: Journal) -> None:
    timer = journal.timer()
    assert timers.modify(timer, INF) is False
    assert len(timers) == 0
    timers.modify(timer, 1.0, period=1.0)
    assert timers.modify(timer, INF, period=1.0) is True
    assert timer.zombie
    timers.check(5.0)
    assert journal.args() == []


def test_a_zombie_is_revived_in_place_by_a_later_start(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("revived")
    timers.modify(timer, 1.0)
    timers.stop(timer)
    before = stored_state(timers)
    assert timers.modify(timer, 3.0) is False
    assert stored_state(timers) == before
    assert (timers.zombies, timer.pending) == (0, True)
    timers.check(2.0)
    assert journal.args() == []
    timers.check(3.0)
    assert journal.args() == ["revived"]


def test_a_zombie_is_revived_by_an_earlier_start_with_its_one_entry(timers: Timers, journal: Journal) -> None:
    timer = journal.timer("revived")
    timers.modify(timer, 9.0)
    timers.stop(timer)
    assert timers.modify(timer, 3.0) is False
    assert (timers.zombies, len(timers), timers.wake_time()) == (0, 1, 3.0)
    timers.check(9.0)
    assert journal.args() == ["revived"]


def test_a_timer_stopped_by_another_of_the_same_check_does_not_fire(timers: Timers, journal: Journal) -> None:
    victim = journal.timer("victim")
    answers: list[bool] = []
    killer = journal.timer_that("killer", lambda: answers.append(timers.stop(victim)))
    timers.modify(killer, 1.0)
    timers.modify(victim, 1.0)
    assert timers.check(5.0) == INF
    assert (journal.args(), answers) == (["killer"], [True])


def test_a_callback_finds_its_own_timer_fired_and_free(timers: Timers, journal: Journal) -> None:
    """The entry is taken out before the callback, so stop says False and a new start is a new entry."""
    answers: list[bool] = []

    def act() -> None:
        answers.append(timer.pending)
        answers.append(timers.stop(timer))
        answers.append(timers.modify(timer, 5.0))

    timer = journal.timer_that("self", act)
    timers.modify(timer, 1.0)
    assert wakes_for(timers, timers.check(1.0), 5.0)
    assert answers == [False, False, False]
    assert_sound(timers, [timer])


def test_a_periodic_callback_finds_its_next_tick_filed(timers: Timers, journal: Journal) -> None:
    seen: list[tuple[float, float, bool]] = []
    timer = journal.timer_that("tick", lambda: seen.append((timer.when, timer.key, timers.stop(timer))))
    timers.modify(timer, 1.0, period=2.0)
    assert timers.check(1.5) == INF
    assert seen == [(3.0, 3.0, True)]


def test_a_check_sweeps_zombies_once_they_exceed_a_quarter(timers: Timers, journal: Journal) -> None:
    many = [journal.timer() for _ in range(100)]
    for timer in many:
        timers.modify(timer, HOUR)
    allowed = SLACK + 25
    # not the first and not the last: whichever the queue shows first lives
    for timer in many[1 : allowed + 1]:
        timers.stop(timer)
    timers.check(0.0)
    assert (timers.zombies, len(timers)) == (allowed, 100)
    timers.stop(many[allowed + 1])
    timers.check(0.0)
    assert (timers.zombies, len(timers)) == (0, 100 - allowed - 1)
    assert_sound(timers, many)


def test_sweeping_comes_after_the_due_timers_ran(timers: Timers, journal: Journal) -> None:
    """A callback of a check still sees the zombies that the check sweeps at its end."""
    seen: list[int] = []
    witness = journal.timer_that("due", lambda: seen.append(timers.zombies))
    others = [journal.timer() for _ in range(100)]
    for timer in [witness, *others]:
        timers.modify(timer, 1.0 if timer is witness else HOUR)
    for timer in others:
        timers.stop(timer)
    assert timers.check(1.0) == INF
    assert seen == [100]
    assert (timers.zombies, len(timers)) == (0, 0)
    assert_sound(timers, [witness, *others])


def test_wake_time_drops_zombies_at_the_head(timers: Timers, journal: Journal) -> None:
    zombies = [journal.timer() for _ in range(5)]
    for i, timer in enumerate(zombies):
        timers.modify(timer, float(i))
        timers.stop(timer)
    timers.modify(live := journal.timer("live"), 9.0)
    timers.modify(behind := journal.timer("behind"), 10.0)
    timers.stop(behind)
    assert timers.wake_time() == 9.0
    assert (timers.zombies, len(timers)) == (1, 2)
    assert_sound(timers, [*zombies, live, behind])


def test_a_timer_per_request_that_is_stopped_at_once_costs_no_memory_without_any_check(timers: Timers) -> None:
    """golang/go#6239: a `context.WithTimeout` per request, none of which ever fires."""
    journal = Journal()
    for i in range(5000):
        timers.modify(timer := journal.timer(), HOUR + i)
        timers.stop(timer)
        assert len(timers) <= bound(1)


@pytest.mark.parametrize("checking", [False, True], ids=["no check between", "checks between"])
def test_zombies_are_bounded_over_a_long_random_churn(timers: Timers, checking: bool) -> None:
    """At each growth and after each check the bound holds for the live timers of that moment.

    Between those, stops make zombies of what is stored already: never more than the bound of the most that was live.
    """
    rng = random.Random(20)
    journal = Journal()
    pool = [journal.timer() for _ in range(200)]
    peak = 0
    now = 0.0
    # few, many and few live timers again: the share of stops swings
    for step in range(15_000):
        now += 0.02
        timer = rng.choice(pool)
        before = len(timers)
        if rng.random() < 0.5 + 0.45 * math.sin(step / 1500):
            timers.modify(timer, now + rng.choice([1.0, 30.0, HOUR]))
        else:
            timers.stop(timer)
        live = len(timers) - timers.zombies
        peak = max(peak, live)
        if len(timers) > before:
            assert len(timers) <= bound(live)
        if checking and step % 7 == 0:
            timers.check(now)
            assert len(timers) <= bound(len(timers) - timers.zombies)
        assert len(timers) <= bound(peak)
    assert_sound(timers, pool)
    assert peak > 120
