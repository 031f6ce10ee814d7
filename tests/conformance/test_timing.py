"""Go's timer API on every event loop: results of stop and reset, order, one receiver per start, and cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import math
from collections.abc import Awaitable, Callable

import pytest
import trio

from deadlined import Ticker, Timer, after_func, current_time, sleep, sleep_until, timing
from tests.support.conformance import Loop, Running, Tasks, in_virtual_time, on_asyncio, on_each_loop


@on_each_loop
async def test_the_clock_is_the_event_loops_own(loop: Loop) -> None:
    before = current_time()
    native = trio.current_time() if loop.is_trio else asyncio.get_running_loop().time()
    # uvloop's own clock is cached
    assert before <= native <= current_time() if loop.is_virtual else abs(before - native) < 10


@on_each_loop
async def test_a_sleep_ends_at_its_time(loop: Loop) -> None:
    when = loop.after(5)
    await sleep_until(when)
    assert loop.is_at(when)
    when = loop.after(3)
    await sleep(loop.seconds(3))
    assert loop.is_at(when)


@on_each_loop
@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
async def test_a_sleep_that_is_over_lets_other_tasks_run(loop: Loop, seconds: float) -> None:
    ran = []
    async with loop.tasks() as tasks:

        async def note() -> None:
            ran.append(1)

        tasks.start(note)
        before = current_time()
        # twice, because trio runs the tasks that are ready in any order
        await sleep(seconds)
        await sleep(seconds)
        assert loop.is_at(before)
        assert ran


@on_each_loop
async def test_a_sleep_for_ever_is_cancelled(loop: Loop) -> None:
    async with loop.tasks() as tasks:
        sleeping = tasks.start(sleep, math.inf)
        await loop.settle()
        assert sleeping.pending
        sleeping.cancel()
        await sleeping.wait()
        assert sleeping.cancelled
    with pytest.raises(ValueError, match="NaN"):
        await sleep(math.nan)


@in_virtual_time
async def test_sleepers_wake_in_the_order_of_their_times(loop: Loop) -> None:
    order: list[tuple[int, float]] = []
    start = current_time()

    async def sleeper(seconds: int) -> None:
        await sleep(seconds)
        order.append((seconds, current_time() - start))

    async with loop.tasks() as tasks:
        for running in [tasks.start(sleeper, number) for number in (5, 3, 6, 1, 2, 7, 9, 4, 8)]:
            await running.wait()
    assert order == [(number, float(number)) for number in range(1, 10)]


@on_each_loop
async def test_a_timer_gives_its_time_to_one_receiver(loop: Loop) -> None:
    timer = Timer(loop.seconds(5))
    when = loop.after(5)
    async with loop.tasks() as tasks:
        waiters = []
        for _ in range(3):
            waiters.append(tasks.start(timer.wait))
            await loop.settle()
        due = await waiters[0].succeeds()
        assert loop.is_at(due)
        assert abs(due - when) < (1e-9 if loop.is_virtual else 1)
        await loop.settle()
        assert [waiter.pending for waiter in waiters[1:]] == [True, True]
        assert timer.reset(loop.seconds(1)) is False
        await waiters[1].succeeds()
        assert waiters[2].pending


@on_each_loop
async def test_a_time_that_has_come_is_kept_until_it_is_received(loop: Loop) -> None:
    timer = Timer(0)
    when = timer._when
    await loop.sleep(5)
    assert timer.running
    assert await timer.wait() == when
    assert not timer.running
    assert timer.stop() is False


@in_virtual_time
async def test_stop_and_reset_say_whether_they_came_in_time(loop: Loop) -> None:
    timer = Timer(5)
    assert timer.stop() is True
    assert timer.stop() is False
    assert timer.reset(5) is False
    assert timer.reset(7) is True
    when = loop.after(7)
    assert await timer.wait() == when
    assert timer.reset(1) is False
    await loop.sleep(2)
    # due, but not received
    assert timer.stop() is True
    async with loop.tasks() as tasks:
        waiting = tasks.start(timer.wait)
        await loop.sleep(100)
        assert waiting.pending


@on_each_loop
async def test_a_ticker_keeps_its_phase_and_drops_ticks_for_a_slow_consumer(loop: Loop) -> None:
    start = current_time()
    period = loop.seconds(10)
    ticker = Ticker(period)
    phases = [(await anext(ticker) - start) / period for _ in range(3)]
    if loop.is_virtual:
        assert phases == [1, 2, 3]
        await loop.sleep(35)
        phases += [(await anext(ticker) - start) / period for _ in range(2)]
        assert phases == [1, 2, 3, 4, 7]
    assert phases == sorted(set(phases))
    ticker.stop()
    assert [when async for when in ticker] == []


@on_each_loop
async def test_stopping_a_ticker_ends_the_loops_over_it(loop: Loop) -> None:
    ticker = Ticker(3600)

    async def consume() -> list[float]:
        return [when async for when in ticker]

    async with loop.tasks() as tasks:
        loops = [tasks.start(consume) for _ in range(2)]
        await loop.settle()
        ticker.stop()
        assert [await consumer.succeeds() for consumer in loops] == [[], []]


async def begun(loop: Loop, tasks: Tasks, receive: Callable[[], Awaitable[float | None]]) -> Running:
    """Start a task that receives what is due already: it has begun, or will, and has not received it."""
    await loop.sleep(0.3)
    receiving = tasks.start(receive)
    await loop.step()
    return receiving


@on_each_loop
async def test_a_loop_that_is_behind_ends_when_the_ticker_is_stopped_before_it_has_received(loop: Loop) -> None:
    ticker = Ticker(1)
    # more than once, because trio runs the tasks that are ready in any order
    for _ in range(8):
        ticker.reset(loop.seconds(0.2))
        async with loop.tasks() as tasks:
            receiving = await begun(loop, tasks, lambda: anext(ticker, None))
            ticker.stop()
            await loop.settle()
            assert (receiving.pending, receiving.result) == (False, None)


@on_each_loop
async def test_stopped_and_started_anew_before_it_has_received_the_loop_goes_on(loop: Loop) -> None:
    ticker = Ticker(loop.seconds(0.2))
    async with loop.tasks() as tasks:
        receiving = await begun(loop, tasks, lambda: anext(ticker, None))
        ticker.stop()
        ticker.reset(loop.seconds(1))
        when = ticker._when
        assert await receiving.succeeds() == when
        ticker.stop()


@on_each_loop
async def test_a_timer_that_is_stopped_before_its_time_is_received_waits_for_a_reset(loop: Loop) -> None:
    timer = Timer(loop.seconds(0.2))
    async with loop.tasks() as tasks:
        receiving = await begun(loop, tasks, timer.wait)
        assert timer.stop() is True
        await loop.settle()
        assert receiving.pending
        timer.reset(0)
        when = timer._when
        assert await receiving.succeeds() == when


@on_each_loop
async def test_a_function_is_called_once_at_its_time_unless_it_is_stopped(loop: Loop) -> None:
    calls: list[tuple[str, float]] = []
    when = loop.after(5)
    first = after_func(loop.seconds(5), lambda: calls.append(("first", current_time())))
    second = after_func(loop.seconds(5), lambda: calls.append(("second", current_time())))
    assert second.stop() is True
    while not calls:
        await loop.sleep(1)
    await loop.sleep(5)
    assert [name for name, _ in calls] == ["first"]
    assert calls[0][1] == when if loop.is_virtual else calls[0][1] >= when
    assert first.stop() is False
    assert second.reset(0) is False
    assert len(calls) == 1
    await loop.sleep(1)
    assert [name for name, _ in calls] == ["first", "second"]


@on_each_loop
async def test_a_function_that_fails_is_logged_and_stops_nothing(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("lost")

    called = loop.event()
    with caplog.at_level(logging.ERROR):
        after_func(0, fail)
        after_func(loop.seconds(1), called.set)
        await called.wait()
    assert any(record.exc_info and record.exc_info[0] is LookupError for record in caplog.records)


_variable: contextvars.ContextVar[str] = contextvars.ContextVar("conformance", default="none")


@on_each_loop
async def test_a_function_sees_the_variables_of_who_asked_for_it(loop: Loop) -> None:
    seen: list[str] = []
    token = _variable.set("asker")
    after_func(loop.seconds(1), lambda: seen.append(_variable.get()))
    after_func(loop.seconds(1), lambda: _variable.set("leaked"))
    _variable.reset(token)
    await loop.sleep(5)
    assert seen == ["asker"]
    assert _variable.get() == "none"


@on_each_loop
async def test_an_async_function_is_refused(loop: Loop) -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match="async"):
        after_func(1, work)


@on_asyncio
async def test_a_function_may_return_the_task_that_it_has_started(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    started = loop.event()

    async def work() -> None:
        started.set()

    async with asyncio.TaskGroup() as group:
        after_func(loop.seconds(1), lambda: group.create_task(work()))
        await started.wait()
    assert not caplog.records


@on_each_loop
async def test_a_cancelled_waiter_leaves_the_time_to_the_next(loop: Loop) -> None:
    timer = Timer(loop.seconds(100))
    async with loop.tasks() as tasks:
        first = tasks.start(timer.wait)
        await loop.settle()
        second = tasks.start(timer.wait)
        await loop.settle()
        first.cancel()
        await first.wait()
        timer.reset(loop.seconds(1))
        assert math.isfinite(await second.succeeds())


@on_each_loop
async def test_a_waiter_that_is_cancelled_just_before_the_time_comes_does_not_take_it(loop: Loop) -> None:
    """The cancellation comes first and the task has not run yet when the time comes."""
    timer = Timer(math.inf)
    async with loop.tasks() as tasks:
        first = tasks.start(timer.wait)
        await loop.settle()
        second = tasks.start(timer.wait)
        await loop.settle()
        timer.reset(loop.seconds(1))

        first.cancel()
        # as if the alarm rang in the same step of the loop
        timer.fire(0, 0.0)
        await first.wait()
        assert first.cancelled
        await loop.settle()
        assert not second.pending
        assert math.isfinite(await second.succeeds())
        assert timer.stop() is False


@on_each_loop
async def test_a_lone_waiter_that_is_cancelled_in_the_step_of_the_alarm_leaves_the_time(loop: Loop) -> None:
    timer = Timer(math.inf)
    async with loop.tasks() as tasks:
        waiting = tasks.start(timer.wait)
        await loop.settle()
        # the alarm rings once, cancels the task, and then the time is due
        after_func(loop.seconds(5), waiting.cancel)
        timer.reset(loop.seconds(5))
        await waiting.wait()
        assert waiting.cancelled
        assert timer.running
        assert math.isfinite(await timer.wait())


@on_each_loop
async def test_a_sleeper_that_is_cancelled_before_its_time_is_cancelled(loop: Loop) -> None:
    async with loop.tasks() as tasks:
        sleeping = tasks.start(sleep, 5.0001 if loop.is_virtual else 3600)
        await loop.settle()
        after_func(loop.seconds(5), sleeping.cancel)
        await sleeping.wait()
        assert sleeping.cancelled


@on_asyncio
async def test_a_timeout_of_asyncio_around_a_timer_leaves_no_trace(loop: Loop) -> None:
    timer = Timer(loop.seconds(50))
    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(loop.seconds(1)):
                await timer.wait()
        assert task.cancelling() == 0
    assert timer.stop() is True


@on_each_loop
async def test_a_timer_belongs_to_its_event_loop(loop: Loop) -> None:
    import threading

    timer = Timer(3600)
    errors: list[BaseException] = []

    def in_another_loop() -> None:
        async def reset() -> None:
            try:
                timer.reset(1)
            except RuntimeError as error:
                errors.append(error)

        asyncio.run(reset())

    thread = threading.Thread(target=in_another_loop)
    thread.start()
    thread.join()
    assert "another event loop" in str(errors[0])
    assert timer.stop() is True


@on_asyncio
async def test_a_timer_ends_with_the_generators_of_its_event_loop(loop: Loop) -> None:
    """A program may close them by hand and let the loop run on."""
    timer, ticker = Timer(1), Ticker(1)
    await asyncio.get_running_loop().shutdown_asyncgens()
    for operation in (timer.wait, ticker.__anext__):
        with pytest.raises(RuntimeError, match="shutdown_asyncgens"):
            await asyncio.wait_for(operation(), loop.seconds(60))
    for reset in (timer.reset, ticker.reset):
        with pytest.raises(RuntimeError, match="shutdown_asyncgens"):
            reset(1)
    assert timer.stop()
    ticker.stop()


@on_each_loop
async def test_timers_are_counted_and_collected(loop: Loop) -> None:
    timer, ticker = Timer(3600), Ticker(3600)
    call = after_func(3600, bool)
    assert (timing.statistics().timers, timing.statistics().tickers) == (2, 1)
    del ticker
    gc.collect()
    assert timing.statistics().tickers == 0
    assert timer.stop()
    assert call.stop()
    assert timing.statistics().timers == 0


def test_outside_of_an_event_loop_there_is_no_time() -> None:
    for need in (current_time, lambda: Timer(1), lambda: Ticker(1), lambda: after_func(1, bool)):
        with pytest.raises(RuntimeError):
            need()
