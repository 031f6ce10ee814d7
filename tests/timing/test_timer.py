"""`Timer` and `after_func`: what start, stop and reset promise."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from deadlined import Ticker, Timer, after_func
from deadlined.timing import set_debug
from tests.support.net import HOUR, INF, Attempt, count_sleeps
from tests.support.timing import jump_and_poll, pending_entries, run_until_blocked, stored_entries

BEHIND = "the stopped entry is expected to be stored still"


class TestTimer:
    async def test_wait_is_a_checkpoint_whether_the_time_has_come_or_not(self, autojump_clock: MockClock) -> None:
        assert await count_sleeps(Timer(0).wait) == 1
        assert await count_sleeps(Timer(1).wait) == 1

    async def test_a_cancelled_wait_receives_nothing(self) -> None:
        timer = Timer(0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await timer.wait()
        assert scope.cancelled_caught
        assert timer.stop()

    async def test_one_start_serves_one_receiver(self, autojump_clock: MockClock) -> None:
        timer = Timer(1)
        assert await timer.wait() == 1
        with trio.move_on_after(HOUR) as scope:
            await timer.wait()
        assert scope.cancelled_caught

    async def test_the_receiver_that_came_first_is_served_first(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(1)
        waiting = []
        for _ in range(3):
            waiting.append(Attempt(nursery, timer.wait))
            await run_until_blocked()
        for served in range(3):
            mock_clock.jump(1)
            await run_until_blocked()
            assert [attempt.pending for attempt in waiting] == [i > served for i in range(3)]
            assert not timer.reset(1)
        assert [attempt.result for attempt in waiting] == [1, 2, 3]

    async def test_a_newcomer_does_not_overtake_whoever_waits(self, mock_clock: MockClock) -> None:
        """It comes when the time has come and the pump has not yet seen it."""
        timer = Timer(1)
        async with trio.open_nursery() as nursery:
            first = Attempt(nursery, timer.wait)
            await run_until_blocked()
            mock_clock.jump(1)
            with trio.move_on_after(1):
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_when_idle, scope)
                    await timer.wait()
                assert scope.cancelled_caught
            assert first.result == 1

    async def test_a_cancelled_waiter_leaves_its_place_to_the_next(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(1)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as leaving:
                gone = Attempt(leaving, timer.wait)
                await run_until_blocked()
                staying = Attempt(nursery, timer.wait)
                await run_until_blocked()
                scope.cancel()
        assert gone.result is None
        mock_clock.jump(1)
        await run_until_blocked()
        assert staying.result == 1

    async def test_who_waits_while_it_is_moved_waits_for_the_new_time(
        self, autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(5)
        waiting = Attempt(nursery, timer.wait)
        for _ in range(4):
            await trio.sleep(4)
            assert timer.reset(5)
        await waiting.done()
        assert (waiting.result, waiting.ended) == (21, 21)

    @pytest.mark.parametrize("seconds", [0, -1, -INF])
    async def test_a_reset_to_now_or_before_serves_whoever_waits_at_once(
        self, seconds: float, autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(HOUR)
        waiting = Attempt(nursery, timer.wait)
        await run_until_blocked()
        assert timer.reset(seconds)
        assert waiting.pending, "it happens at the next check, not inside of reset"
        await waiting.done()
        assert (waiting.result, waiting.ended) == (0, 0)

    async def test_stopped_when_the_time_has_come_but_is_not_seen_it_is_not_received(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(5)
        waiting = Attempt(nursery, timer.wait)
        await run_until_blocked()
        mock_clock.jump(5)
        assert timer.stop()
        await run_until_blocked()
        assert waiting.pending
        nursery.cancel_scope.cancel()

    async def test_stopped_when_the_receiver_is_woken_but_has_not_run_it_is_received(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        timer = Timer(5)
        waiting = Attempt(nursery, timer.wait)
        await run_until_blocked()
        jump_and_poll(mock_clock, 5)
        assert waiting.pending
        assert not timer.stop()
        assert not timer.reset(HOUR)
        await run_until_blocked()
        assert waiting.result == 5

    async def test_a_receiver_that_is_woken_and_cancelled_before_it_runs_has_received(
        self, mock_clock: MockClock
    ) -> None:
        timer = Timer(5)
        async with trio.open_nursery() as nursery:
            waiting = Attempt(nursery, timer.wait)
            await run_until_blocked()
            jump_and_poll(mock_clock, 5)
            nursery.cancel_scope.cancel()
        assert waiting.result == 5
        assert not timer.stop()

    async def test_an_endless_one_is_made_stopped(self, autojump_clock: MockClock) -> None:
        timer = Timer(INF)
        assert not timer.stop()
        assert not timer.reset(1)
        assert timer.reset(INF)
        assert not timer.reset(1)
        assert await timer.wait() == 1

    async def test_nobody_who_waits_means_no_entry_and_no_time_that_moves(self, autojump_clock: MockClock) -> None:
        timers = [Timer(1), Timer(2)]
        ticker = Ticker(1)
        assert stored_entries() == 0
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == INF
        with trio.move_on_after(0.5):
            await anext(ticker)
        with trio.move_on_after(0.25):
            await timers[0].wait()
        assert pending_entries() == 0
        assert trio.current_time() == 0.75

    async def test_nan_is_refused_and_changes_nothing(self, autojump_clock: MockClock) -> None:
        with pytest.raises(ValueError, match="NaN"):
            Timer(math.nan)
        timer = Timer(3)
        with pytest.raises(ValueError, match="NaN"):
            timer.reset(math.nan)
        assert await timer.wait() == 3

    async def test_it_tells_its_state(self) -> None:
        set_debug(False)
        timer = Timer(INF)
        assert repr(timer) == "<Timer stopped>"
        assert repr(after_func(INF, print)) == "<Timer stopped calls <built-in function print>>"
        timer.reset(0)
        assert repr(timer).startswith("<Timer when=")


async def cancel_when_idle(scope: trio.CancelScope) -> None:
    await run_until_blocked()
    scope.cancel()
