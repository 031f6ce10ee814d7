"""When the queues find their timers due: never early, late by no more than they say, and without ticking in between.

A sleeper plays the poller: it checks when `wake_time` says so and at no other time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deadlined.timers import Timer, Timers
from deadlined.timers.clockwork import Clockwork
from deadlined.timers.hashed import HashedWheel
from deadlined.timers.hierarchical import HierarchicalWheel
from deadlined.timers.kernel import KernelWheel
from deadlined.timers.ticks import FURTHEST, NEVER, TICK, check_tick, has_tick, tick_from, tick_until, time_of
from deadlined.timers.wheel import SimpleWheel
from tests.support.examples import examples
from tests.support.timers import EXACT, INF, QUEUES, WHEELS, Filer, Journal, assert_sound

HOUR = 3600.0
DAY = 24 * HOUR
on_all_queues = pytest.mark.parametrize("name", QUEUES)
on_all_wheels = pytest.mark.parametrize("name", WHEELS)
on_exact_queues = pytest.mark.parametrize("name", EXACT)

# delays of all magnitudes, each as likely: a tenth of a tick to a thousand years
DELAYS = st.tuples(st.floats(-13.0, 35.0), st.floats(1.0, 2.0)).map(lambda pair: pair[1] * 2.0 ** math.floor(pair[0]))
STARTS = st.sampled_from([0.0, -1.0, -1e5, 0.1, 1e6, 123456.789, 1.7e9])


class ReadyCallback:
    """A facility, its clock, and when each timer fired."""

    def __init__(self, name: str, now: float = 0.0) -> None:
        self.timers = Timers(name)
        self.now = now
        self.wakes = 0
        self.fired: dict[Timer, float] = {}

    def timer(self) -> Timer:
        timer: Timer = Timer(lambda arg, seq, lateness: self.fired.update({timer: self.now}))
        return timer

    def sleep(self, until: float = INF) -> None:
        """Let time pass until the queue is empty, or `until`, which is slept through."""
        while (wake := self.timers.wake_time()) < INF and wake <= until:
            self.now = max(self.now, wake)
            self.wakes += 1
            assert self.wakes < 10_000, "the wheel ticks"
            self.timers.check(self.now)
        if until < INF:
            self.now = max(self.now, until)

    def check(self) -> None:
        self.timers.check(self.now)

    def allowed(self, delay: float) -> float:
        """How late a timer may be that was started with this delay."""
        return self.timers.granularity + self.timers.coarseness * max(0.0, delay)


# lateness


@on_all_queues
@settings(max_examples=examples(60))
@given(STARTS, st.lists(st.tuples(DELAYS, st.booleans(), DELAYS), min_size=1, max_size=25))
def test_no_timer_is_early_and_none_later_than_the_queue_says(
    name: str, start: float, steps: list[tuple[float, bool, float]]
) -> None:
    """Timers start at all times, with and without a check before and after; only wake times fire them."""
    sleeper = ReadyCallback(name, start)
    started: list[tuple[Timer, float, float]] = []
    for delay, checks, pause in steps:
        timer = sleeper.timer()
        sleeper.timers.modify(timer, sleeper.now + delay)
        started.append((timer, sleeper.now, sleeper.now + delay))
        if checks:
            sleeper.check()
        sleeper.sleep(sleeper.now + min(pause, HOUR))
    sleeper.sleep()
    for timer, began, when in started:
        fired = sleeper.fired[timer]
        assert when <= fired <= when + sleeper.allowed(when - began) + math.ulp(fired)
        if not sleeper.timers.granularity:
            assert fired == when


@on_all_queues
@pytest.mark.parametrize("when", [-INF, -1e300, -1e9, 0.0, 1e-9, 0.1, 1e9, 2.0**42 + 0.5, 1e15, 1e300, 1.7e308])
def test_any_float_is_a_time(name: str, when: float) -> None:
    """Near or far, past or future, before and after the queue knows what time it is."""
    for now, checks in itertools.product([-1e300, -1.0, 0.0, 1e6, 1e300], [False, True]):
        sleeper = ReadyCallback(name, now)
        if checks:
            sleeper.check()
        timer, other = sleeper.timer(), sleeper.timer()
        sleeper.timers.modify(timer, when)
        sleeper.timers.modify(other, now + 1.0)
        assert sleeper.timers.wake_time() == min(when, now + 1.0)
        if checks:
            sleeper.check()
        assert_sound(sleeper.timers, [timer, other])
        sleeper.sleep()
        late = sleeper.fired[timer] - max(when, now)
        assert 0.0 <= late <= sleeper.allowed(when - now)
        assert sleeper.fired.keys() == {timer, other}


@pytest.mark.parametrize("name", ["hashed", "hierarchical", "wheel"])
def test_a_wheel_of_single_ticks_is_late_up_to_a_tick(name: str) -> None:
    worst = 0.0
    for delay in (TICK * (number + 1 / 512) for number in range(1, 3000, 7)):
        sleeper = ReadyCallback(name)
        sleeper.check()
        sleeper.timers.modify(timer := sleeper.timer(), delay)
        sleeper.check()
        sleeper.sleep()
        worst = max(worst, sleeper.fired[timer] - delay)
    assert 0.99 * TICK < worst < TICK


def kernel_lateness(start: int, delay: int) -> float:
    """In parts of the delay, both in ticks, for a timer that is placed at `start`."""
    sleeper = ReadyCallback("kernel", start * TICK)
    sleeper.timers.modify(timer := sleeper.timer(), (start + delay) * TICK)
    sleeper.check()
    sleeper.sleep()
    late = (sleeper.fired[timer] - timer.due) / TICK
    assert late == int(late)
    return late / delay


@pytest.mark.parametrize("level", range(1, 8))
def test_the_kernels_wheel_is_late_up_to_an_eighth_of_the_delay_and_the_bound_is_tight(level: int) -> None:
    """Worst where a level begins: the delay is the smallest, the slots are eight times longer all at once."""
    begin = 63 * 8 ** (level - 1)
    rng = random.Random(level)
    near = (begin + rng.randrange(1, max(2, begin // 40)) for _ in range(400))
    lateness = [kernel_lateness(rng.randrange(10**9), delay) for delay in near]
    assert max(lateness) <= 0.125
    assert max(lateness) > (0.1 if level == 1 else 0.115)


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**31))
def test_the_kernels_bound_holds_for_any_delay_at_any_time(start: int, delay: int) -> None:
    assert 0.0 <= kernel_lateness(start, delay) <= 0.125


def test_the_kernels_wheel_is_exact_below_63_ticks() -> None:
    assert {kernel_lateness(start, delay) for start in (0, 5, 1000) for delay in range(1, 64)} == {0.0}


@on_all_queues
def test_after_an_idle_hour_a_short_deadline_is_not_taken_for_a_long_one(name: str) -> None:
    """A wheel's clock is the last check: what is filed by it would be too coarse by that hour."""
    sleeper = ReadyCallback(name)
    sleeper.check()
    sleeper.now = HOUR
    soon, later = sleeper.timer(), sleeper.timer()
    sleeper.timers.modify(soon, HOUR + 1.0)
    sleeper.timers.modify(later, HOUR + 10.0)
    sleeper.sleep()
    assert HOUR + 1.0 <= sleeper.fired[soon] <= HOUR + 1.0 + sleeper.allowed(1.0)
    assert HOUR + 10.0 <= sleeper.fired[later] <= HOUR + 10.0 + sleeper.allowed(10.0)


@on_all_queues
def test_what_is_due_when_it_is_filed_fires_at_the_next_check(name: str) -> None:
    """Between two ticks, too."""
    sleeper = ReadyCallback(name, 0.3)
    sleeper.check()
    for when in (0.3, 0.3 - 1e-9, -INF, 0.0):
        sleeper.timers.modify(timer := sleeper.timer(), when)
        sleeper.check()
        assert sleeper.fired[timer] == 0.3


@on_all_queues
def test_one_check_fires_by_time_even_what_was_due_in_different_slots(name: str) -> None:
    rng = random.Random(4)
    sleeper = ReadyCallback(name)
    journal = Journal()
    times = [rng.choice([rng.uniform(0.0, 0.1), rng.uniform(0.0, 10.0), rng.uniform(0.0, DAY)]) for _ in range(2000)]
    for number, when in enumerate(times):
        sleeper.timers.modify(journal.timer((when, number)), when)
        if number % 100 == 0:
            sleeper.check()
            sleeper.now += 1e-5
    journal.args()
    sleeper.timers.check(2 * DAY)
    fired = journal.args()
    assert fired == sorted(fired)
    assert len(sleeper.timers) == 0


# sleeping


@on_all_queues
@settings(max_examples=examples(60))
@given(STARTS, DELAYS)
def test_nobody_ticks_while_a_timer_is_far_away(name: str, start: float, delay: float) -> None:
    """One wake, in which it fires; only a hierarchical wheel wakes once more per hand that it moves down."""
    sleeper = ReadyCallback(name, start)
    sleeper.timers.modify(timer := sleeper.timer(), start + delay)
    sleeper.check()
    wake = sleeper.timers.wake_time()
    assert wake <= start + delay + sleeper.allowed(delay) + math.ulp(wake)
    sleeper.sleep()
    assert sleeper.wakes <= (6 if name == "hierarchical" else 1)
    assert timer in sleeper.fired


def test_a_hierarchical_wheel_wakes_once_per_hand() -> None:
    """Each of the six digits of this tick takes one wake; the last of them fires."""
    sleeper = ReadyCallback("hierarchical")
    sleeper.timers.modify(timer := sleeper.timer(), sum(64**level for level in range(6)) * TICK)
    sleeper.check()
    sleeper.sleep()
    assert sleeper.wakes == 6
    assert sleeper.fired[timer] == timer.due


@on_all_queues
def test_a_stopped_timer_wakes_nobody_wherever_it_lies(name: str) -> None:
    """Beside one in the same slot, in another, in none; before and after a check has placed them."""
    for checks, delay in itertools.product([False, True], [0.01, 0.5, 7.0, 7.25, 100.0, 1e6, 1e12]):
        sleeper = ReadyCallback(name)
        sleeper.check()
        sleeper.timers.modify(stopped := sleeper.timer(), delay)
        sleeper.timers.modify(other := sleeper.timer(), 1e13)
        # a whole number of rounds later, in the same slot of a hashed wheel
        sleeper.timers.modify(neighbour := sleeper.timer(), delay + 512)
        if checks:
            sleeper.check()
        sleeper.timers.stop(stopped)
        assert delay < sleeper.timers.wake_time() or name == "hierarchical"
        assert_sound(sleeper.timers, [stopped, other, neighbour])
        sleeper.timers.stop(neighbour)
        sleeper.timers.stop(other)
        assert sleeper.timers.wake_time() == INF
        sleeper.sleep()
        assert (sleeper.fired, len(sleeper.timers)) == ({}, 0)


@on_all_queues
def test_a_cleared_deadline_leaves_the_wake_time_of_the_others(name: str) -> None:
    sleeper = ReadyCallback(name)
    sleeper.timers.modify(sleeper.timer(), 60.0)
    sleeper.timers.modify(stopped := sleeper.timer(), 7.0)
    assert sleeper.timers.wake_time() == 7.0
    sleeper.timers.stop(stopped)
    assert sleeper.timers.wake_time() == 60.0


# many


@on_all_queues
def test_a_mass_expires_in_one_check(name: str) -> None:
    sleeper = ReadyCallback(name)
    journal = Journal()
    rng = random.Random(9)
    # a sorted or an unsorted list is for few timers, and yet takes these
    times = [rng.uniform(0.0, 75.0) for _ in range(10_000)]
    for number, when in enumerate(times):
        sleeper.timers.modify(journal.timer((when, number)), when)
        if number == 5000:
            sleeper.check()
    sleeper.timers.check(1000.0)
    assert journal.args() == sorted((when, number) for number, when in enumerate(times))
    assert (len(sleeper.timers), sleeper.timers.wake_time()) == (0, INF)


@on_all_queues
@pytest.mark.parametrize("checks", [False, True], ids=["before any check", "after a check"])
def test_a_crowd_of_stopped_timers_is_swept_at_once_when_one_is_at_the_head(name: str, checks: bool) -> None:
    """One by one would be slow in a queue without order. So those behind the first that lives go, too."""
    sleeper = ReadyCallback(name)
    sleeper.timers.modify(live := sleeper.timer(), 5.0)
    stopped = [sleeper.timer() for _ in range(2000)]
    for number, timer in enumerate(stopped):
        sleeper.timers.modify(timer, 1.0 + number / 100)
    if checks:
        sleeper.check()
    for timer in stopped:
        sleeper.timers.stop(timer)
    assert (len(sleeper.timers), sleeper.timers.zombies) == (2001, 2000)
    assert sleeper.timers.wake_time() <= 5.0 + sleeper.allowed(5.0)
    assert (len(sleeper.timers), sleeper.timers.zombies) == (1, 0)
    assert_sound(sleeper.timers, [*stopped, live])


@on_all_queues
def test_a_busy_hour_of_many_connections(name: str) -> None:
    """Timeouts that are extended, cleared and started anew, with checks at wake times and in between."""
    rng = random.Random(7)
    sleeper = ReadyCallback(name, 1e5)
    pool = [sleeper.timer() for _ in range(60)]
    late_by = 0.0
    for _ in range(6000):
        sleeper.sleep(sleeper.now + rng.expovariate(2.0))
        sleeper.wakes = 0
        timer = rng.choice(pool)
        if timer in sleeper.fired:
            fired = sleeper.fired.pop(timer)
            assert fired >= timer.due
            late_by = max(late_by, fired - timer.due)
            # its entry may be one that was filed for the longest timeout
            assert fired - timer.due <= sleeper.allowed(75.0)
        delay = rng.choice([0.2, 5.0, 10.0, 75.0])
        if rng.random() < 0.2:
            sleeper.timers.stop(timer)
        else:
            sleeper.timers.modify(timer, sleeper.now + delay)
        if rng.random() < 0.3:
            sleeper.check()
    assert_sound(sleeper.timers, pool)
    assert sleeper.timers.statistics().refiled > 100
    assert (late_by == 0.0) == (name in EXACT)


@pytest.mark.parametrize(("giver", "heir"), list(itertools.permutations(QUEUES, 2)))
def test_a_queue_takes_over_the_timers_of_another_kind(giver: str, heir: str) -> None:
    old, new = ReadyCallback(giver), Timers(heir)
    journal = Journal()
    timers = [journal.timer(number) for number in range(40)]
    for number, timer in enumerate(timers):
        old.timers.modify(timer, (number * 7 % 40) ** 3 / 10.0)
        if number == 20:
            old.check()
    journal.args()
    old.timers.stop(timers[7])
    new.take(old.timers)
    assert (len(old.timers), old.timers.wake_time(), old.timers.zombies) == (0, INF, 0)
    assert_sound(new, timers)
    waiting = [timer.arg for timer in sorted(timers, key=lambda timer: timer.when) if timer.pending]
    new.check(1e4)
    assert journal.args() == waiting
    assert len(waiting) >= 37


# range


def placed(queue: Clockwork, delay: float) -> str:
    """Where a timer is stored that is `delay` seconds away."""
    filer = Filer(queue)
    queue.due(1000.0)
    timer = filer.add(1000.0 + delay)
    queue.due(1000.0)
    return "heap" if timer.slot < 0 else "slots"


@pytest.mark.parametrize(
    ("kind", "within", "beyond"),
    [
        (SimpleWheel, 4095 * TICK, 4096 * TICK),
        (HashedWheel, 1e12, 1e13),
        (HierarchicalWheel, 64**6 * TICK - 1001.0, 64**6 * TICK),
        (KernelWheel, 63 * 8**7 * TICK, 64 * 8**7 * TICK),
    ],
)
def test_what_lies_beyond_a_wheel_lies_in_its_heap(kind: Callable[[], Clockwork], within: float, beyond: float) -> None:
    assert placed(kind(), TICK) == "slots"
    assert placed(kind(), within) == "slots"
    assert placed(kind(), beyond) == "heap"
    assert placed(kind(), -TICK) == "heap"
    assert placed(kind(), 1e300) == "heap"


@on_all_wheels
def test_a_wheel_may_have_another_tick(name: str) -> None:
    kinds: dict[str, Callable[[float], Clockwork]] = {
        "wheel": SimpleWheel,
        "hashed": HashedWheel,
        "hierarchical": HierarchicalWheel,
        "kernel": KernelWheel,
    }
    queue = kinds[name](0.25)
    assert queue.granularity == 0.25
    filer = Filer(queue)
    queue.due(0.0)
    timer = filer.add(1.1)
    assert queue.due(0.0) is None
    assert queue.due(1.2) is None
    assert queue.wake_time() == 1.25
    assert queue.due(1.25) is timer


@on_all_wheels
def test_a_wheel_whose_clock_is_set_back_still_fires_at_its_times(name: str) -> None:
    sleeper = ReadyCallback(name, 1e6)
    sleeper.check()
    sleeper.now = 10.0
    sleeper.timers.modify(timer := sleeper.timer(), 20.0)
    sleeper.check()
    sleeper.sleep()
    assert sleeper.fired[timer] == 20.0


# ticks


@pytest.mark.parametrize("tick", [0.0, -1.0, 0.001, 3.0, INF, -INF, math.nan])
def test_a_tick_that_is_no_power_of_two_is_refused(tick: float) -> None:
    with pytest.raises(ValueError, match="a tick must be a power of two in seconds, such as 1/1024, not"):
        check_tick(tick)
    with pytest.raises(ValueError, match="power of two"):
        KernelWheel(tick)


@given(st.sampled_from([TICK, 1.0, 0.25, 64.0]), st.floats(allow_nan=False))
@example(64.0, 5e-324)
@example(64.0, -5e-324)
def test_a_time_lies_between_the_tick_until_it_and_the_tick_from_it(tick: float, when: float) -> None:
    before = tick_until(when, tick)
    assert -FURTHEST <= before <= FURTHEST
    if has_tick(when, tick):
        after = tick_from(when, tick)
        assert time_of(before, tick) <= when <= time_of(after, tick)
        assert after - before in (0, 1)
        assert (after == before) == (time_of(after, tick) == when)
    else:
        assert abs(before) == FURTHEST


@given(st.sampled_from([TICK, 1.0, 0.25, 64.0]), st.integers(-FURTHEST + 1, FURTHEST - 1))
def test_a_whole_tick_is_its_own_time(tick: float, number: int) -> None:
    assert tick_from(time_of(number, tick), tick) == tick_until(time_of(number, tick), tick) == number


def test_never_comes_never() -> None:
    assert time_of(NEVER, TICK) == INF
    assert time_of(FURTHEST, TICK) < INF
