"""A sleep by a timer of asyncio's loop, in virtual time: on loops that ring early, cancelled, and for ever."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVarTuple

import pytest

from deadlined import current_time, sleep, sleep_until
from deadlined.runtime import current_host
from tests.support.conformance import SteppedLoop

Args = TypeVarTuple("Args")

YEAR = 365.0 * 24 * 3600  # seconds


class CountingLoop(SteppedLoop):
    """A loop that keeps the alarms that were set, and their contexts. The first ones ring early."""

    def __init__(self, early: int = 0) -> None:
        super().__init__()
        self.early = early
        self.alarms: list[asyncio.TimerHandle] = []
        self.contexts: list[contextvars.Context | None] = []

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self.early > 0:
            self.early -= 1
            delay /= 4
        self.contexts.append(context)
        self.alarms.append(super().call_later(delay, callback, *args, context=context))
        return self.alarms[-1]

    def pending(self) -> int:
        """Return how many alarms have yet to ring."""
        return sum(not alarm.cancelled() and alarm.when() > self.time() for alarm in self.alarms)


def run_on(loop: CountingLoop, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


def stored() -> int:
    """Return how many timers the poller's queue has."""
    return current_host().statistics().poller.timers.stored


@pytest.mark.parametrize("early", [0, 1, 5])
def test_a_sleep_never_ends_early_though_the_loop_does(early: int) -> None:
    loop = CountingLoop(early)

    async def main() -> None:
        when = loop.time() + 1024
        await sleep_until(when)
        assert loop.time() == when
        assert len(loop.alarms) == 1 + early

    run_on(loop, main)


def test_a_sleep_is_a_timer_of_the_loop_and_of_no_poller() -> None:
    loop = CountingLoop()

    async def main() -> None:
        asleep = asyncio.create_task(sleep(16))
        await asyncio.sleep(0)
        assert loop.pending() == 1
        assert stored() == 0
        await asleep
        assert loop.pending() == 0

    run_on(loop, main)


def test_where_the_poller_wakes_finer_a_sleep_is_in_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLINED_PRECISE", "1")

    async def main() -> None:
        asleep = asyncio.create_task(sleep(3600))
        await asyncio.sleep(0)
        assert stored() == 1
        asleep.cancel()
        await asyncio.gather(asleep, return_exceptions=True)

    asyncio.run(main())


def test_a_cancelled_sleep_leaves_no_alarm_behind() -> None:
    loop = CountingLoop()

    async def main() -> None:
        asleep = asyncio.create_task(sleep(16))
        await asyncio.sleep(0)
        begun = loop.time()
        asleep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asleep
        assert loop.time() == begun
        assert loop.pending() == 0

    run_on(loop, main)


def test_a_sleep_that_is_cancelled_in_the_turn_of_its_alarm_is_cancelled() -> None:
    loop = CountingLoop()
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        loop.set_exception_handler(lambda _, failure: failures.append(failure))
        when = loop.time() + 16
        asleep = asyncio.create_task(sleep_until(when))
        # due in the same turn, and called first
        loop.call_at(when - 5e-10, asleep.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asleep

    run_on(loop, main)
    assert failures == []


def test_a_closed_coroutine_leaves_no_alarm_behind() -> None:
    loop = CountingLoop()

    async def main() -> None:
        coroutine = sleep(16)
        coroutine.send(None)
        assert loop.pending() == 1
        coroutine.close()
        assert loop.pending() == 0

    run_on(loop, main)


@pytest.mark.parametrize("seconds", [YEAR, 1e12, math.inf])
def test_the_loop_is_never_asked_for_more_than_it_can_count(seconds: float) -> None:
    loop = CountingLoop()

    async def main() -> None:
        asleep = asyncio.create_task(sleep(seconds))
        await asyncio.sleep(0)
        assert loop.pending() == 1
        assert loop.alarms[-1].when() - loop.time() <= 1e6
        asleep.cancel()
        await asyncio.gather(asleep, return_exceptions=True)

    run_on(loop, main)


def test_a_sleep_that_takes_two_alarms_ends_at_its_time() -> None:
    loop = CountingLoop()

    async def main() -> None:
        when = loop.time() + 1.5e6
        await sleep_until(when)
        assert current_time() == when
        assert len(loop.alarms) == 2

    run_on(loop, main)


def test_an_alarm_keeps_no_variable_of_the_task_that_set_it() -> None:
    """A cancelled one stays in the loop's queue until its time."""
    loop = CountingLoop()

    async def main() -> None:
        contextvars.ContextVar[int]("variable").set(1)
        await sleep(16)
        assert loop.contexts == [contextvars.Context()]

    run_on(loop, main)


def test_nan_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="NaN"):
            await sleep(math.nan)
        with pytest.raises(ValueError, match="NaN"):
            await sleep_until(math.nan)

    asyncio.run(main())
