"""The rules of sleeping, timers and tickers that are this project's own: who receives, what ends, what is refused."""

from __future__ import annotations

import contextvars
import gc
import math
import signal
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from deadlined import Ticker, Timer, after_func, sleep, sleep_until
from deadlined.runtime import statistics
from deadlined.timers import COMPILED
from tests.support.interrupts import interrupted_at
from tests.support.net import HOUR, INF, Attempt, count_sleeps
from tests.support.timing import jump_and_poll, pending_entries, poll_now, run_until_blocked, stored_entries

MINUTE = 60.0
THING: contextvars.ContextVar[object] = contextvars.ContextVar("THING")
BEHIND = "the stopped entry is expected to be stored still"


class TestSleeping:
    @pytest.mark.parametrize("seconds", [5, 0.25, 0, -1, -INF])
    async def test_it_sleeps_exactly_as_long_as_asked(self, seconds: float, autojump_clock: MockClock) -> None:
        await sleep(seconds)
        assert trio.current_time() == max(seconds, 0)

    @pytest.mark.parametrize("when", [5, 0, -1, -INF])
    async def test_it_sleeps_until_a_time(self, when: float, autojump_clock: MockClock) -> None:
        await sleep_until(when)
        assert trio.current_time() == max(when, 0)

    @pytest.mark.parametrize("seconds", [5, 0, -1, -INF])
    async def test_it_is_a_checkpoint_always(self, seconds: float, autojump_clock: MockClock) -> None:
        assert await count_sleeps(lambda: sleep(seconds)) == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            await sleep(seconds)
        assert scope.cancelled_caught

    async def test_sleepers_wake_in_the_order_of_their_times(self, autojump_clock: MockClock) -> None:
        woken: list[int] = []

        async def nap(seconds: int) -> None:
            await sleep(seconds)
            woken.append(seconds)

        async with trio.open_nursery() as nursery:
            for seconds in (3, 1, 4, 0, 5, 9, 2, 6):
                nursery.start_soon(nap, seconds)
        assert woken == [0, 1, 2, 3, 4, 5, 6, 9]

    async def test_a_cancelled_sleep_leaves_nothing_that_moves_time(self, autojump_clock: MockClock) -> None:
        with trio.move_on_after(1) as scope:
            await sleep(5)
        assert scope.cancelled_caught
        assert trio.current_time() == 1
        assert pending_entries() == 0
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == INF

    async def test_a_cancelled_sleep_keeps_its_task_no_longer_alive(self) -> None:
        class Thing:
            """Held by the sleeping task only."""

        async def nap(thing: Thing) -> None:
            THING.set(thing)
            await sleep(HOUR)

        earlier = after_func(MINUTE, pytest.fail)
        thing = Thing()
        remembered = weakref.ref(thing)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nap, thing)
                del thing
                await run_until_blocked()
                assert remembered() is not None
                scope.cancel()
        gc.collect()
        assert stored_entries() == 2, BEHIND
        assert remembered() is None
        assert earlier.stop()

    async def test_a_sleep_that_never_ends_is_cancelled_like_any_other(self, autojump_clock: MockClock) -> None:
        with trio.move_on_after(10 * HOUR) as scope:
            await sleep(INF)
        assert scope.cancelled_caught
        assert trio.current_time() == 10 * HOUR

    async def test_who_was_woken_and_is_cancelled_before_it_runs_has_slept(self, mock_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            napping = Attempt(nursery, lambda: sleep(5))
            await run_until_blocked()
            jump_and_poll(mock_clock, 5)
            nursery.cancel_scope.cancel()
        assert (napping.ended, napping.error) == (5, None)

    async def test_it_wakes_beside_deadlines_of_connections_and_of_trio(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            napping = [Attempt(nursery, partial(sleep if i % 2 else trio.sleep, i)) for i in range(1, 20)]
        assert [attempt.ended for attempt in napping] == list(range(1, 20))

    @pytest.mark.parametrize("nap", [sleep, sleep_until])
    async def test_nan_is_refused(self, nap: Callable[[float], Awaitable[None]]) -> None:
        with pytest.raises(ValueError, match="NaN"):
            await nap(math.nan)

    async def test_what_is_no_number_is_refused(self) -> None:
        with pytest.raises(TypeError):
            await sleep("5")  # type: ignore[arg-type]


class TestForgotten:
    """The heap keeps nobody alive but a function that is still to be called."""

    @pytest.mark.parametrize("make", [Timer, Ticker])
    async def test_a_timer_that_was_waited_for_in_vain_is_garbage(self, make: Callable[[float], Any]) -> None:
        earlier = after_func(MINUTE, pytest.fail)
        source = make(HOUR)
        wait = source.wait if isinstance(source, Timer) else source.__anext__
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await run_until_blocked()
                assert pending_entries() == 2
                scope.cancel()
        remembered = weakref.ref(source)
        del source, wait
        gc.collect()
        assert stored_entries() == 2, BEHIND
        assert remembered() is None
        assert earlier.stop()

    @pytest.mark.parametrize("make", [Timer, Ticker])
    async def test_one_that_only_a_waiting_task_knows_lives(
        self, make: Callable[[float], Any], autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        source = make(HOUR)
        waiting = Attempt[float](nursery, source.wait if isinstance(source, Timer) else source.__anext__)
        await run_until_blocked()
        del source
        gc.collect()
        await waiting.done()
        assert waiting.result == HOUR

    async def test_a_ticker_whose_loop_was_left_is_garbage(self, autojump_clock: MockClock) -> None:
        ticker = Ticker(1.0)
        remembered = weakref.ref(ticker)
        async for _ in ticker:
            break
        del ticker
        gc.collect()
        assert remembered() is None

    async def test_a_function_is_called_though_nobody_keeps_its_timer_and_then_it_is_garbage(
        self, autojump_clock: MockClock
    ) -> None:
        called: list[float] = []
        remembered = weakref.ref(after_func(HOUR, lambda: called.append(trio.current_time())))
        gc.collect()
        assert remembered() is not None
        await sleep(HOUR)
        assert called == [HOUR]
        assert remembered() is None, "its entry still points back at it"

    async def test_a_function_that_was_stopped_is_garbage(self) -> None:
        earlier = after_func(MINUTE, pytest.fail)
        timer = after_func(HOUR, pytest.fail)
        remembered = weakref.ref(timer)
        timer.stop()
        del timer
        gc.collect()
        assert stored_entries() == 2, BEHIND
        assert remembered() is None
        assert earlier.stop()


class TestRuns:
    """Everything belongs to one run."""

    @pytest.mark.parametrize(
        "use",
        [lambda: Timer(1), lambda: Ticker(1), lambda: after_func(1, print)],
        ids=["Timer", "Ticker", "after_func"],
    )
    def test_outside_of_a_run_there_are_none(self, use: Callable[[], object]) -> None:
        with pytest.raises(RuntimeError, match=r"inside trio.run\(\) or asyncio.run\(\) only"):
            use()

    @pytest.mark.parametrize("nap", [sleep, sleep_until])
    @pytest.mark.parametrize("seconds", [0, 1])
    def test_outside_of_a_run_nobody_sleeps(self, nap: Callable[[float], Any], seconds: float) -> None:
        with pytest.raises(RuntimeError, match=r"inside trio.run\(\) or asyncio.run\(\) only"):
            nap(seconds).send(None)

    def test_a_run_ends_with_everything_running(self) -> None:
        """No function is called any more, nobody is warned, nothing hangs."""
        left: list[Timer | Ticker] = []

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                left.extend([Timer(1), Ticker(1), after_func(1, pytest.fail)])
                nursery.start_soon(sleep, HOUR)
                nursery.start_soon(left[0].wait)  # type: ignore[union-attr]
                nursery.start_soon(left[1].__anext__)  # type: ignore[union-attr]
                await run_until_blocked()
                nursery.cancel_scope.cancel()

        trio.run(main, clock=MockClock(autojump_threshold=0))
        for source in left:
            source.stop()
            with pytest.raises(RuntimeError):
                source.reset(1)
        assert [source.running for source in left] == [False] * 3

    def test_a_timer_of_another_run_is_refused(self) -> None:
        async def make() -> list[Timer | Ticker]:
            return [Timer(1), Ticker(1), after_func(1, pytest.fail)]

        async def use(old: list[Timer | Ticker]) -> None:
            for source in old:
                with pytest.raises(RuntimeError, match=r"made in another event loop"):
                    source.reset(1)
            timer, ticker, _ = old
            assert isinstance(timer, Timer)
            assert isinstance(ticker, Ticker)
            with pytest.raises(RuntimeError, match=r"made in another event loop"):
                await timer.wait()
            with pytest.raises(RuntimeError, match=r"made in another event loop"):
                await anext(ticker)
            for source in old:
                source.stop()

        trio.run(use, trio.run(make))

    async def test_many_sleepers_share_the_wakes_of_the_pump(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(sleep, 1)
            await run_until_blocked()
            before = statistics()
        after = statistics()
        assert before is not None
        assert after is not None
        assert after.poller.polls - before.poller.polls < 5


class TestControlC:
    """Each in a run of its own, whose main task gets the KeyboardInterrupt."""

    @pytest.mark.parametrize("operation", ["sleep", "timer", "ticker"])
    def test_a_sleeping_task_is_interrupted_and_leaves_no_entry(self, operation: str) -> None:
        async def interrupt() -> None:
            signal.raise_signal(signal.SIGINT)

        async def main() -> None:
            wait: dict[str, Callable[[], Awaitable[object]]] = {
                "sleep": lambda: sleep(HOUR),
                "timer": Timer(HOUR).wait,
                "ticker": Ticker(HOUR).__anext__,
            }
            await run_until_blocked()
            # a system task is protected, so the signal goes to the main task, which is parked by then
            trio.lowlevel.spawn_system_task(interrupt)
            with pytest.raises(KeyboardInterrupt):
                await wait[operation]()
            assert pending_entries() == 0
            await sleep(0.001)

        trio.run(main)

    @pytest.mark.skipif(COMPILED, reason="compiled code has no lines to interrupt")
    @pytest.mark.parametrize("operation", ["sleep", "due sleep", "timer", "due timer", "ticker", "due ticker"])
    def test_at_any_line_of_a_wait_no_entry_is_left(self, operation: str) -> None:
        async def main() -> None:
            step = 0
            while True:
                timer = Timer(0 if operation.startswith("due") else 1)
                ticker = Ticker(1)
                if operation == "due ticker":
                    await sleep(1)
                wait: dict[str, Callable[[], Awaitable[object]]] = {
                    "sleep": lambda: sleep(1),
                    "due sleep": lambda: sleep(0),
                    "timer": timer.wait,
                    "due timer": timer.wait,
                    "ticker": ticker.__anext__,
                    "due ticker": ticker.__anext__,
                }
                reached: list[str] = []
                interrupted = False
                try:
                    with interrupted_at(step, reached):
                        await wait[operation]()
                    await trio.lowlevel.checkpoint()
                except KeyboardInterrupt:
                    interrupted = True
                assert interrupted == bool(reached)
                assert pending_entries() == 0, reached
                if not reached:
                    break
                step += 1
            assert step >= 5, "the trace has not seen the wait"

        trio.run(main, clock=MockClock(autojump_threshold=0))

    @pytest.mark.skipif(COMPILED, reason="compiled code has no lines to interrupt")
    @pytest.mark.parametrize("operation", ["stop", "later", "earlier", "past", "stop ticker", "reset ticker"])
    def test_at_any_line_a_change_is_finished(self, operation: str) -> None:
        """The KeyboardInterrupt comes after it."""

        async def main() -> None:
            step = 0
            while await self.interrupt_once(operation, step):
                step += 1
            assert step >= 4, "the trace has not seen the operation"

        trio.run(main, clock=MockClock(autojump_threshold=0))

    async def interrupt_once(self, operation: str, step: int) -> bool:
        """Whether the operation has a line of that number."""
        reached: list[str] = []
        async with trio.open_nursery() as nursery:
            timer, ticker = Timer(10), Ticker(10)
            nursery.start_soon(timer.wait)
            nursery.start_soon(anext, ticker, None)
            await run_until_blocked()
            act: dict[str, Callable[[], object]] = {
                "stop": timer.stop,
                "later": lambda: timer.reset(20),
                "earlier": lambda: timer.reset(5),
                "past": lambda: timer.reset(0),
                "stop ticker": ticker.stop,
                "reset ticker": lambda: ticker.reset(5),
            }
            try:
                with interrupted_at(step, reached):
                    act[operation]()
                if reached:
                    await trio.sleep_forever()
            except KeyboardInterrupt:
                assert reached
            # an entry each, exactly for the time that is waited for; the interrupt may fall before the change
            assert pending_entries() == timer.running + ticker.running
            assert [source._entry.when for source in (timer, ticker)] == [timer._when, ticker._when]
            nursery.cancel_scope.cancel()
        assert pending_entries() == 0
        return bool(reached)


async def test_poll_now_leaves_the_pump_awake_for_what_comes(autojump_clock: MockClock) -> None:
    """The support's own check: after a poll from outside the pump still hears of an earlier time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep, 100)
        await run_until_blocked()
        poll_now()
        await sleep(1)
        assert trio.current_time() == 1
        nursery.cancel_scope.cancel()
