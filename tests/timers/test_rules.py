"""The rules of `Timers`, one example each: what is a store, what is a zombie, what fires when, and what is refused."""

from __future__ import annotations

import dataclasses
import logging
import math
import random
from collections.abc import Iterator

import pytest

from deadlined.timers import COMPILED, SCHEMES, Timer, Timers
from deadlined.timers.facility import SLACK, next_tick
from tests.support.timers import INF, QUEUES, Journal, assert_queue, assert_sound, wakes_for

MINUTE = 60.0
HOUR = 3600.0


@pytest.fixture(params=QUEUES)
def timers(request: pytest.FixtureRequest) -> Timers:
    return Timers(request.param)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def stored_state(timers: Timers) -> tuple[list[tuple[int, float, int, int]], int]:
    """Everything that any operation of the queue would change: keys, places, and the number of entries so far."""
    stored = assert_queue(timers._queue)
    return [(id(timer), timer.key, timer.slot, timer.index) for timer in stored], timers._order


def bound(live: int) -> float:
    """The most entries that may be stored for `live` timers."""
    return 4 / 3 * (live + SLACK)


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


# stopping


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


# zombies and memory


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
    pool = [journal.timer() for _ in range(400)]
    peak = 0
    now = 0.0
    # few, many and few live timers again: the share of stops swings
    for step in range(30_000):
        now += 0.01
        timer = rng.choice(pool)
        before = len(timers)
        if rng.random() < 0.5 + 0.45 * math.sin(step / 3000):
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
    assert peak > 300


# order


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


# one now per check


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


# callbacks that raise


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


# taking over


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


def test_what_waits_for_the_next_check_may_start_in_another_facility(timers: Timers, journal: Journal) -> None:
    second = Timers()
    timer = journal.timer("wanderer")

    def move_house() -> None:
        timers.stop(timer)
        second.modify(timer, 7.0)

    timers.modify(journal.timer_that("arms", lambda: timers.modify(timer, 1.5)), 1.0)
    timers.modify(journal.timer_that("moves", move_house), 2.0)
    assert timers.check(5.0) == INF
    assert (len(timers), len(second)) == (0, 1)
    assert_sound(second, [timer])
    second.check(7.0)
    assert journal.args() == ["arms", "moves", "wanderer"]


def test_take_leaves_alone_what_has_meanwhile_started_elsewhere(timers: Timers, journal: Journal) -> None:
    """Armed for the next check, stopped, started in a second facility: all before a third one takes over."""
    second, third = Timers(), Timers()
    timer = journal.timer("wanderer")

    def move_house() -> None:
        timers.stop(timer)
        second.modify(timer, 7.0)

    timers.modify(journal.timer_that("arms", lambda: timers.modify(timer, 1.5)), 1.0)
    timers.modify(journal.timer_that("moves", move_house), 2.0)
    timers.modify(journal.timer_that("closes", lambda: third.take(timers)), 3.0)
    timers.check(5.0)
    assert (len(timers), len(second), len(third)) == (0, 1, 0)
    assert_sound(second, [timer])


# periods


@pytest.mark.parametrize(
    ("when", "period", "now", "tick"),
    [
        (10.0, 1.0, 10.0, 11.0),
        (10.0, 1.0, 10.5, 11.0),
        (10.0, 1.0, 11.0, 12.0),
        (10.0, 1.0, 14.75, 15.0),
        (-10.0, 4.0, 0.0, 2.0),
        (0.0, 3600.0, 1e9, 1e9 + 3600.0 - 1e9 % 3600.0),
        # the phase is lost, the future is not
        (-INF, 2.0, 5.0, 7.0),
        (-1e308, 2.0, 1e308, math.nextafter(1e308, INF)),
        (0.0, 1e-300, 1e6, math.nextafter(1e6, INF)),
        (0.0, 1e-12, 1e9, math.nextafter(1e9, INF)),
        (0.0, 5e-324, 0.0, 5e-324),
        # later than any float is never
        (0.0, INF, 0.0, INF),
        (0.0, 1.0, INF, INF),
        (-INF, 1.0, INF, INF),
        (1e308, 1e308, 1e308, INF),
        (1.7e308, 1e308, 1.7e308, INF),
    ],
)
def test_next_tick(when: float, period: float, now: float, tick: float) -> None:
    assert next_tick(when, period, now) == tick


def test_next_tick_is_always_later_and_keeps_the_phase_where_a_float_can() -> None:
    rng = random.Random(3)
    for _ in range(5000):
        when, lateness = rng.uniform(-1e6, 1e6), rng.choice([0.0, 1.0, 1e3, 1e12]) * rng.random()
        period = 10.0 ** rng.uniform(-12, 6)
        now = when + lateness
        tick = next_tick(when, period, now)
        assert now < tick <= now + period * (1 + 1e-9) + 4 * math.ulp(now)
        if lateness <= 1e3 and period >= 1.0:
            ticks = (tick - when) / period
            assert ticks == pytest.approx(round(ticks), abs=1e-6)


def test_a_periodic_timer_skips_missed_ticks_and_keeps_its_phase(timers: Timers, journal: Journal) -> None:
    timers.modify(journal.timer("tick"), 1.0, period=2.0)
    assert timers.check(1.0) == 3.0
    assert timers.check(8.5) == 9.0
    assert journal.firings == [("tick", 0, 0.0), ("tick", 0, 5.5)]


@pytest.mark.parametrize("period", [5e-324, 1e-300, 1e-12, 1e-3])
def test_a_tiny_period_fires_once_per_check(timers: Timers, journal: Journal, period: float) -> None:
    timers.modify(journal.timer("tick"), -1e308, period=period)
    for now in (1e6, 1e6 + 1, 1e6 + 2):
        assert now < timers.check(now) <= now + max(period * (1 + 1e-3), 2 * math.ulp(now)) + timers.granularity
        assert journal.args() == ["tick"]


def test_a_timer_for_minus_inf_fires_at_once_and_then_keeps_its_period(timers: Timers, journal: Journal) -> None:
    timers.modify(journal.timer("tick"), -INF, period=2.0)
    assert timers.wake_time() == -INF
    assert timers.check(5.0) == 7.0
    assert journal.firings == [("tick", 0, INF)]


def test_a_check_at_inf_runs_everything_once_and_returns(timers: Timers, journal: Journal) -> None:
    assert timers.check(INF) == INF
    again = journal.timer_that("again", lambda: timers.modify(again, 3.0))
    timers.modify(again, 2.0)
    timers.modify(journal.timer("tick"), 1.0, period=1.0)
    timers.modify(journal.timer("far"), 1e308)
    assert timers.check(INF) == 3.0
    assert journal.firings == [("tick", 0, INF), ("again", 0, INF), ("far", 0, INF)]


# the Go tests that are about the heap


def test_overflow_period_runtime_timer(timers: Timers, journal: Journal) -> None:
    """Go's TestOverflowPeriodRuntimeTimer: a next tick beyond all floats is never, and corrupts nothing."""
    endless = journal.timer("endless")
    now = 1e307
    timers.modify(endless, now, period=1.7976931348623157e308)
    timers.modify(journal.timer("25 ms"), now + 0.025)
    assert timers.check(now) == INF
    assert sorted(journal.args()) == ["25 ms", "endless"]  # a float this large knows no milliseconds
    assert not endless.pending
    assert timers.stop(endless) is False
    timers.modify(endless, 0.0, period=1e308)
    timers.modify(journal.timer("25 ms"), 0.025)
    assert timers.check(0.0) == 0.025
    assert timers.check(0.025) == 1e308
    assert journal.args() == ["endless", "25 ms"]


def test_overflow_sleep(timers: Timers, journal: Journal) -> None:
    """Go's TestOverflowSleep: huge never fires and disturbs nobody; the far past fires at once."""
    huge, never, other = journal.timer("huge"), journal.timer("never"), journal.timer("31 ms")
    timers.modify(huge, 1.7976931348623157e308)
    timers.modify(never, INF)
    timers.modify(other, 1 / 32)
    assert timers.check(0.0) == 1 / 32
    assert journal.args() == []
    assert timers.check(1 / 32) == 1.7976931348623157e308
    assert journal.args() == ["31 ms"]
    timers.modify(journal.timer("past"), -1.7976931348623157e308)
    timers.modify(journal.timer("-inf"), -INF)
    timers.check(1 / 32)
    assert journal.args() == ["-inf", "past"]
    assert_sound(timers, [huge, never, other])
    assert timers.stop(huge) is True


@pytest.mark.parametrize("reused", [False, True], ids=["new timers", "one timer"])
def test_zero_timer(timers: Timers, journal: Journal, reused: bool) -> None:
    """Go's TestZeroTimer (#44868): a timer for now fires in the next check, every time."""
    timer = journal.timer()
    for i in range(5000):
        now = i * 1e-6
        if not reused:
            timer = journal.timer()
        assert timers.modify(timer, now) is False
        assert timers.check(now) == INF
        assert len(journal.args()) == 1


def test_timer_modified_earlier(timers: Timers, journal: Journal) -> None:
    """Go's TestTimerModifiedEarlier (#47329): a storm of stops and resets to the far past loses none."""
    many = [journal.timer(i) for i in range(1000)]
    for now, timer in enumerate(many):
        timers.modify(timer, now + HOUR)
        for _ in range(10):
            assert timers.stop(timer) is True
            assert timers.modify(timer, -1e9) is False
        if now % 100 == 99:
            assert timers.check(float(now)) == INF
            assert journal.args() == list(range(now - 99, now + 1))
    assert (len(timers), timers.zombies) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_adjust_timers(timers: Timers, seed: int) -> None:
    """Go's TestAdjustTimers (#47762): a hundred timers, each through eleven states, in random order."""
    rng = random.Random(seed)
    clock = [1000.0]
    fired: list[Timer] = []

    def life(timer: Timer) -> Iterator[None]:
        timers.modify(timer, clock[0])
        yield
        while timer not in fired:
            yield
        fired.remove(timer)
        yield
        for minutes in (1, 3, 2):
            assert timers.modify(timer, clock[0] + minutes * MINUTE) is False
            yield
            assert timers.stop(timer) is True
            yield
            assert timers.stop(timer) is False
        assert timers.modify(timer, clock[0] + MINUTE) is False
        yield
        assert timers.modify(timer, clock[0]) is True
        yield
        while timer not in fired:
            yield
        assert timers.stop(timer) is False

    many = [Timer(lambda who, seq, lateness: fired.append(many[who]), who) for who in range(100)]
    lives = [life(timer) for timer in many]
    steps = 0
    while lives:
        steps += 1
        assert steps < 20_000, "a timer that was reset to now has not fired"
        chosen = rng.choice(lives)
        try:
            next(chosen)
        except StopIteration:
            lives.remove(chosen)
        clock[0] += 0.001
        if rng.random() < 0.2:
            timers.check(clock[0])
    assert timers.check(clock[0]) == INF
    assert len(fired) == 100
    assert_sound(timers, many)


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
