"""Periodic timers: missed ticks are skipped and the phase is kept."""

from __future__ import annotations

import math
import random

import pytest

from deadlined.timers import Timers
from deadlined.timers.facility import next_tick
from tests.support.timers import INF, Journal


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
