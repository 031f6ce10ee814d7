"""`Ticker`: a buffer of one tick, in step with its phase."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from deadlined import Ticker, sleep
from tests.support.net import Attempt, count_sleeps
from tests.support.timing import jump_and_poll, run_until_blocked


class TestTicker:
    async def test_ticks_come_with_the_period(self, autojump_clock: MockClock) -> None:
        received = []
        async for when in Ticker(0.5):
            received.append((when, trio.current_time()))
            if len(received) == 4:
                break
        assert received == [(0.5, 0.5), (1.0, 1.0), (1.5, 1.5), (2.0, 2.0)]

    async def test_for_a_slow_consumer_one_tick_is_kept_and_the_phase_too(self, autojump_clock: MockClock) -> None:
        received = []
        async for when in Ticker(1.0):
            received.append((when, trio.current_time()))
            if len(received) == 4:
                break
            await sleep(2.5)
        # 1 in time; 2 has waited, 3 was dropped; 4 has waited, 5 and 6 were dropped; 7 has waited
        assert received == [(1.0, 1.0), (2.0, 3.5), (4.0, 6.0), (7.0, 8.5)]

    async def test_a_tick_is_a_checkpoint_whether_it_has_come_or_not(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        assert await count_sleeps(lambda: anext(ticker)) == 1
        await sleep(5)
        assert await count_sleeps(lambda: anext(ticker)) == 1

    async def test_a_cancelled_consumer_loses_no_tick(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        await sleep(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(ticker)
        assert scope.cancelled_caught
        assert await anext(ticker) == 1.0

    async def test_consumers_share_the_ticks_in_their_order(
        self, autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        ticker = Ticker(1.0)
        received: list[tuple[str, float]] = []

        async def consume(name: str) -> None:
            while True:
                received.append((name, await anext(ticker)))

        for name in "abc":
            nursery.start_soon(consume, name)
            await run_until_blocked()
        await trio.sleep(6.5)
        assert received == [("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", 5), ("c", 6)]
        nursery.cancel_scope.cancel()

    async def test_a_loop_ends_when_the_ticker_is_stopped_from_its_body(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        received = []
        async for when in ticker:
            received.append(when)
            if when == 3.0:
                ticker.stop()
        assert received == [1.0, 2.0, 3.0]
        assert trio.current_time() == 3.0

    async def test_loops_that_wait_end_when_the_ticker_is_stopped(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)

        received = []

        async def consume() -> None:
            received.extend([when async for when in ticker])

        async with trio.open_nursery() as nursery:
            loops = [Attempt(nursery, lambda: count_sleeps(consume)) for _ in range(3)]
            await sleep(2.5)
            ticker.stop()
            ticker.stop()
        assert sorted(received) == [1.0, 2.0]
        assert trio.current_time() == 2.5
        assert sum(loop.result or 0 for loop in loops) == 2 + 3, "a sleep per tick, and one per end"

    async def test_the_end_of_a_loop_is_a_checkpoint(self) -> None:
        ticker = Ticker(1.0)
        ticker.stop()

        async def loop() -> None:
            async for _ in ticker:
                pytest.fail("a tick of a stopped ticker")

        assert await count_sleeps(loop) == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            await loop()
        assert scope.cancelled_caught

    async def test_a_tick_that_has_come_is_not_received_after_a_stop(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        await sleep(1.5)
        ticker.stop()
        assert [when async for when in ticker] == []

    async def test_stopped_in_the_moment_of_a_tick_that_is_not_seen_the_loop_ends_without_it(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        ticker = Ticker(1.0)
        waiting = Attempt(nursery, lambda: anext(ticker, None))
        await run_until_blocked()
        mock_clock.jump(1.0)
        ticker.stop()
        await run_until_blocked()
        assert (waiting.pending, waiting.result) == (False, None)

    async def test_stopped_when_a_consumer_is_woken_but_has_not_run_it_has_that_tick(
        self, mock_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        ticker = Ticker(1.0)
        waiting = Attempt(nursery, lambda: anext(ticker))
        await run_until_blocked()
        jump_and_poll(mock_clock, 1.0)
        ticker.stop()
        await run_until_blocked()
        assert waiting.result == 1.0

    async def test_stopped_and_started_anew_before_they_look_the_loops_go_on(
        self, autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        ticker = Ticker(1.0)
        waiting = Attempt(nursery, lambda: anext(ticker))
        await sleep(0.5)
        ticker.stop()
        ticker.reset(2.0)
        await waiting.done()
        assert waiting.result == 2.5

    async def test_a_reset_moves_whoever_waits(self, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
        ticker = Ticker(10.0)
        waiting = Attempt(nursery, lambda: anext(ticker))
        await sleep(1)
        ticker.reset(0.5)
        await waiting.done()
        assert waiting.result == 1.5
        ticker.reset(100.0)
        assert await anext(ticker) == 101.5

    async def test_a_stopped_one_can_be_started_anew(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        ticker.stop()
        assert repr(ticker) == "<Ticker stopped>"
        await sleep(10)
        ticker.reset(1.0)
        assert await anext(ticker) == 11.0

    async def test_a_period_too_small_for_the_clock_still_moves_on(self, autojump_clock: MockClock) -> None:
        autojump_clock.jump(1e9)
        ticker = Ticker(1e-300)
        received = [await anext(ticker) for _ in range(2)]
        assert 1e9 == received[0] < received[1]

    async def test_what_is_no_number_is_refused(self) -> None:
        with pytest.raises(TypeError):
            Ticker("1")  # type: ignore[arg-type]
