"""Go's own tests of package time (time/sleep_test.go, tick_test.go) as far as they concern this API, under their names.

Where Go sleeps and allows for a slow machine, the clock here is virtual and the times are exact. Without a counterpart:
nil and uninitialised timers (TestIssue5745, TestZeroTimerResetPanics) and the length of a channel.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import weakref
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import deadlined
from deadlined import Ticker, Timer, after_func, sleep
from tests.support.net import HOUR, INF, Attempt
from tests.support.timing import pending_entries, stored_entries

HUGE = sys.float_info.max
MINUTE = 60.0


async def nothing_comes(timer: Timer, seconds: float) -> None:
    """Wait so long in vain."""
    with trio.move_on_after(seconds) as scope:
        await timer.wait()
    assert scope.cancelled_caught


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 0.001, 0.01])
async def test_sleep(seconds: float) -> None:
    """On the real clock, of which only one thing can be said: never early."""
    start = trio.current_time()
    await sleep(seconds)
    assert trio.current_time() >= start + seconds


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 0.001, 0.01])
async def test_after(seconds: float) -> None:
    start = trio.current_time()
    due = await Timer(seconds).wait()
    assert trio.current_time() >= due >= start + seconds


async def test_after_func(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Ten calls in a chain, each of which starts the next and then work that lasts: the work does not delay the
    chain."""
    calls: list[float] = []

    async def work() -> None:
        await sleep(1.0)

    def call() -> None:
        calls.append(trio.current_time())
        if len(calls) < 10:
            after_func(0, call)
        nursery.start_soon(work)

    after_func(0, call)
    await sleep(0.5)
    assert calls == [0.0] * 10


async def test_ticker_stress() -> None:
    """A period below the clock's resolution, while garbage is collected: ticks come, each later than the one
    before."""
    received = [0.0]
    async for when in Ticker(1e-9):
        assert when > received[-1]
        received.append(when)
        if len(received) % 20 == 0:
            gc.collect()
        if len(received) > 100:
            break


async def test_ticker_concurrent_stress() -> None:
    async def consume() -> None:
        count = 0
        async for _ in Ticker(1e-9):
            count += 1
            if count == 100:
                return

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(consume)


async def test_after_func_starvation() -> None:
    """Two tasks that keep each other busy, on the real clock: virtual time stands still while anything can run."""
    fired = trio.Event()

    async def play(hears: trio.MemoryReceiveChannel[None], says: trio.MemorySendChannel[None]) -> None:
        while not fired.is_set():
            await says.send(None)
            await hears.receive()

    with trio.fail_after(MINUTE):
        async with trio.open_nursery() as nursery:
            to_left, from_right = trio.open_memory_channel[None](1)
            to_right, from_left = trio.open_memory_channel[None](1)
            nursery.start_soon(play, from_right, to_right)
            nursery.start_soon(play, from_left, to_left)
            after_func(1e-6, fired.set)
            await fired.wait()
            nursery.cancel_scope.cancel()


async def test_after_tick(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    for _ in range(10):
        await Timer(0.1).wait()
    assert trio.current_time() == pytest.approx(start + 1.0)


async def test_after_stop(autojump_clock: MockClock) -> None:
    fired: list[int] = []
    after_func(0.1, fired.append, 100)
    func = after_func(0.05, fired.append, 50)
    channel = Timer(0.15)
    assert func.stop()
    assert channel.stop()
    await sleep(0.2)
    assert fired == [100]
    assert not func.stop()
    assert not channel.stop()
    await nothing_comes(channel, HOUR)


async def test_after_queuing(autojump_clock: MockClock) -> None:
    slots = [5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0]
    fired: list[tuple[int, float]] = []

    async def wait(slot: int) -> None:
        await Timer(slot * 0.5).wait()
        fired.append((slot, trio.current_time()))

    async with trio.open_nursery() as nursery:
        for slot in slots:
            nursery.start_soon(wait, slot)
    assert fired == [(slot, slot * 0.5) for slot in sorted(slots)]


async def test_after_queuing_of_functions_keeps_the_order_of_equal_times(autojump_clock: MockClock) -> None:
    slots = [5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0]
    fired: list[tuple[int, int]] = []
    for index, slot in enumerate(slots):
        after_func(slot * 0.5, fired.append, (slot, index))
    await sleep(10)
    assert fired == sorted((slot, index) for index, slot in enumerate(slots))


async def test_timer_stop_stress(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    fired: list[int] = []

    async def stop_in_time(i: int) -> None:
        timer = after_func(2, fired.append, i)
        await sleep(1)
        assert timer.stop()

    for i in range(100):
        nursery.start_soon(stop_in_time, i)
    await sleep(3)
    assert fired == []


async def test_reset(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    d = 1.0
    timer = Timer(2 * d)
    await sleep(d)
    assert timer.reset(3 * d)
    waiting = Attempt(nursery, timer.wait)
    await sleep(2 * d)
    assert waiting.pending
    await sleep(2 * d)
    assert waiting.ended == 4 * d
    assert not timer.reset(50.0)


async def test_overflow_sleep(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    sleeping = [Attempt(nursery, partial(sleep, seconds)) for seconds in (HUGE, INF)]
    waiting = Attempt(nursery, Timer(HUGE).wait)
    start = trio.current_time()
    await Timer(0.025).wait()
    assert trio.current_time() == start + 0.025
    assert await Timer(-HUGE).wait() == start + 0.025
    await sleep(-HUGE)
    assert trio.current_time() == start + 0.025
    assert waiting.pending
    assert all(attempt.pending for attempt in sleeping)
    nursery.cancel_scope.cancel()


async def test_overflow_period(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Go's TestOverflowPeriodRuntimeTimer."""
    endless = Ticker(HUGE)
    ticking = Attempt(nursery, lambda: anext(endless))
    await Timer(0.025).wait()
    assert trio.current_time() == 0.025
    assert ticking.pending
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["channel", "function", "reused"])
async def test_zero_timer(kind: str, autojump_clock: MockClock) -> None:
    """Due at once is never late, however often (golang/go#44868)."""
    reused = Timer(INF)
    for _ in range(1000):
        if kind == "channel":
            await Timer(0).wait()
        elif kind == "function":
            called = trio.Event()
            after_func(0, called.set)
            await called.wait()
        else:
            reused.reset(0)
            await reused.wait()
    assert trio.current_time() == 0.0


async def test_timer_modified_earlier(autojump_clock: MockClock) -> None:
    """A storm of moves into the past (golang/go#47329)."""
    for _ in range(200):
        fired = trio.Event()
        timer = after_func(HOUR, fired.set)
        for _ in range(10):
            assert timer.stop()
            assert not timer.reset(-HUGE)
        await fired.wait()
        assert not timer.stop()
    assert trio.current_time() == 0.0


async def test_adjust_timers(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Timers that are stopped, moved and received in a random order of their lives (golang/go#47762)."""
    chance = random.Random(47762)

    async def live(timer: Timer) -> None:
        assert await timer.wait() == 0.0
        for minutes in (1, 3, 2):
            assert not timer.reset(minutes * MINUTE)
            await sleep(chance.random())
            assert timer.stop()
            assert not timer.stop()
            await sleep(chance.random())
        assert not timer.reset(0)
        due = trio.current_time()
        assert await timer.wait() == due == trio.current_time()
        assert not timer.stop()

    lives = [Attempt(nursery, partial(live, Timer(0))) for _ in range(100)]
    for attempt in lives:
        await attempt.done()
        assert attempt.error is None
    assert pending_entries() == 0


async def stop_or_reset_beside_a_receiver(act: Callable[[Timer], bool], clock: MockClock) -> list[bool]:
    """Two timers come at once; one is received, then the other stopped or reset."""
    answers = []
    for _ in range(100):
        taken, other = Timer(0.001), Timer(0.001)
        await taken.wait()
        assert not act(taken)
        answers.append(act(other))
        await nothing_comes(other, 1.0)
    return answers


async def test_stop_result(autojump_clock: MockClock) -> None:
    """A stop that says False has left nothing behind, and one that says True has taken it back (golang/go#69312)."""
    assert await stop_or_reset_beside_a_receiver(Timer.stop, autojump_clock) == [True] * 100


async def test_reset_result(autojump_clock: MockClock) -> None:
    assert await stop_or_reset_beside_a_receiver(lambda timer: timer.reset(HOUR), autojump_clock) == [True] * 100


async def test_multi_wakeup_ticker(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """One ticker, many tasks: each tick wakes one of them."""
    ticker = Ticker(1.0)
    waiting = [Attempt(nursery, lambda: anext(ticker)) for _ in range(200)]
    for attempt in waiting:
        await attempt.done()
    assert sorted(attempt.result or 0.0 for attempt in waiting) == [float(second) for second in range(1, 201)]


async def test_multi_wakeup_timer(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    timer = Timer(INF)
    waiting = [Attempt(nursery, timer.wait) for _ in range(200)]
    for count in range(1, 201):
        await sleep(1.0)
        assert not timer.reset(0)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(not attempt.pending for attempt in waiting) == count


async def test_ticker(autojump_clock: MockClock) -> None:
    delta = 0.25
    ticker = Ticker(delta)
    received = [await anext(ticker) for _ in range(5)]
    ticker.reset(2 * delta)
    received += [await anext(ticker) for _ in range(5)]
    assert received == [0.25, 0.5, 0.75, 1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75]
    assert trio.current_time() == 3.75
    ticker.stop()
    await sleep(2 * delta)
    assert [when async for when in ticker] == []


async def test_long_adjust_timers(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Far timers that are made and dropped with every operation leave nothing in the heap."""
    for _ in range(100):
        nursery.start_soon(sleep, 1e-5)
    for _ in range(2000):
        far = after_func(5.0, pytest.fail)
        Timer(5.0)
        assert far.stop()
    # of 2,000 stopped entries; it is bounded by 4/3 of what lives plus a constant
    assert stored_entries() < 200


@pytest.mark.parametrize("stop", [False, True])
def test_timer_gc(stop: bool) -> None:
    """Timers and tickers that nobody stops are garbage, even while their hour has not come."""

    def make() -> list[weakref.ref[Timer | Ticker]]:
        made: list[Timer | Ticker] = [maker(HOUR) for _ in range(100) for maker in (Timer, Ticker)]
        if stop:
            for source in made:
                source.stop()
        return [weakref.ref(source) for source in made]

    async def main() -> None:
        remembered = make()
        gc.collect()
        assert len(remembered) == 200
        assert [ref() for ref in remembered if ref() is not None] == []

    trio.run(main)


async def test_chan(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """Stop and reset, before and after the time has come: nothing stale is received."""
    timer = Timer(0.01)
    assert timer.stop()
    assert not timer.stop()
    assert not timer.reset(0.01)
    assert timer.reset(0.01)
    await sleep(0.02)
    assert timer.stop(), "the time had come, and nobody had received it"
    await nothing_comes(timer, 1.0)
    assert not timer.reset(0.01)
    await sleep(0.02)
    moved = trio.current_time()
    assert timer.reset(HOUR)
    assert timer.reset(0.01)
    assert await timer.wait() == moved + 0.01
    assert not timer.reset(HOUR)
    # while a receiver is blocked: far, then near
    waiting = Attempt(nursery, timer.wait)
    await sleep(0.5)
    assert timer.reset(2 * HOUR)
    assert timer.reset(0.5)
    await waiting.done()
    assert waiting.ended == trio.current_time()
    assert not timer.stop()


async def test_chan_of_a_ticker(autojump_clock: MockClock) -> None:
    ticker = Ticker(1.0)
    await sleep(5.5)
    ticker.reset(1.0)
    assert await anext(ticker) == 6.5
    await sleep(5.0)
    ticker.stop()
    ticker.reset(2.0)
    assert await anext(ticker) == 6.5 + 5.0 + 2.0


async def test_after_times(autojump_clock: MockClock) -> None:
    """The time that is received is the one that was due, however late it is taken."""
    timer = Timer(0.01)
    await sleep(0.5)
    assert await timer.wait() == 0.01


async def test_tick_times(autojump_clock: MockClock) -> None:
    ticker = Ticker(0.25)
    await sleep(1.1)
    assert await anext(ticker) == 0.25


@pytest.mark.parametrize("period", [0, 0.0, -1, -HUGE, -INF, INF, math.nan])
async def test_new_ticker_lt_zero_duration(period: float) -> None:
    with pytest.raises(ValueError, match="period must be positive and finite"):
        Ticker(period)
    assert deadlined.timing.statistics().tickers == 0


@pytest.mark.parametrize("period", [0, 0.0, -1, -HUGE, -INF, INF, math.nan])
async def test_ticker_reset_lt_zero_duration(period: float, autojump_clock: MockClock) -> None:
    """A refused period changes nothing."""
    ticker = Ticker(1.0)
    with pytest.raises(ValueError, match="period must be positive and finite"):
        ticker.reset(period)
    received = [await anext(ticker) for _ in range(3)]
    assert [later - earlier for earlier, later in pairwise(received)] == [1.0, 1.0]
