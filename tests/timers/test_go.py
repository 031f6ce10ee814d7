"""Go's own tests of package time that are about the heap, under their names."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from deadlined.timers import Timer, Timers
from tests.support.timers import HOUR, INF, MINUTE, Journal, assert_sound


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
