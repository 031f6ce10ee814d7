"""`after_func`: what is called, when, where, and what an error or a refusal does; and what `statistics` tells."""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import os
import subprocess
import sys
from collections.abc import Awaitable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from trio.testing import MockClock

import deadlined.runtime
from deadlined import Ticker, Timer, after_func, sleep, timing
from tests.support.net import HOUR, INF
from tests.support.poll import conn_pair
from tests.support.timing import jump_and_poll, pending_entries, poll_now, run_until_blocked

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


class TestCalling:
    async def test_it_calls_with_the_arguments_at_the_time(self, autojump_clock: MockClock) -> None:
        calls: list[tuple[str, int, float]] = []

        def call(text: str, number: int) -> None:
            calls.append((text, number, trio.current_time()))

        after_func(2.5, call, "a", 1)
        await sleep(10)
        assert calls == [("a", 1, 2.5)]

    @pytest.mark.parametrize("seconds", [0, -1, -INF])
    async def test_without_delay_it_is_called_soon_but_not_inside(
        self, seconds: float, autojump_clock: MockClock
    ) -> None:
        calls: list[float] = []
        after_func(seconds, lambda: calls.append(trio.current_time()))
        assert calls == []
        await run_until_blocked()
        assert calls == [0]

    async def test_stopped_it_is_not_called(self, autojump_clock: MockClock) -> None:
        timer = after_func(1, pytest.fail)
        assert timer.stop()
        assert not timer.stop()
        await sleep(5)
        assert pending_entries() == 0

    async def test_after_the_call_a_stop_says_false_and_a_reset_calls_once_more(
        self, autojump_clock: MockClock
    ) -> None:
        calls: list[float] = []
        timer = after_func(1, lambda: calls.append(trio.current_time()))
        await sleep(2)
        assert not timer.stop()
        assert not timer.reset(1)
        assert timer.reset(5)
        await sleep(10)
        assert calls == [1, 7]

    async def test_it_may_reset_itself_and_an_immediate_reset_starves_nobody(self, autojump_clock: MockClock) -> None:
        calls: list[float] = []

        def call() -> None:
            calls.append(trio.current_time())
            if len(calls) < 100:
                assert not timer.reset(0 if len(calls) % 2 else 1)

        timer = after_func(1, call)
        beside = Ticker(1)
        assert await anext(beside) == 1
        await sleep(HOUR)
        assert calls == sorted([*range(1, 51), *range(1, 51)])

    async def test_it_may_stop_start_and_reset_others_that_are_due_with_it(self, mock_clock: MockClock) -> None:
        answers: list[Any] = []
        stopped, moved = Timer(INF), Timer(INF)

        def call() -> None:
            answers.extend([stopped.stop(), moved.reset(10), after_func(0, answers.append, "started").running])

        after_func(1, call)
        stopped = after_func(1, pytest.fail)
        moved = after_func(1, answers.append, "moved")
        await run_until_blocked()
        jump_and_poll(mock_clock, 1)
        assert answers == [True, True, True]
        poll_now()
        assert answers == [True, True, True, "started"]
        jump_and_poll(mock_clock, 10)
        assert answers[4:] == ["moved"]

    async def test_it_wakes_tasks_and_starts_them_in_a_nursery(
        self, autojump_clock: MockClock, nursery: trio.Nursery
    ) -> None:
        started = trio.Event()

        async def work(name: str) -> None:
            assert name == "name"
            await sleep(1)
            started.set()

        after_func(1, nursery.start_soon, work, "name")
        await started.wait()
        assert trio.current_time() == 2

    async def test_it_runs_in_a_copy_of_the_callers_context(self, autojump_clock: MockClock) -> None:
        seen: list[str] = []

        def call() -> None:
            seen.append(NAME.get())
            NAME.set("callee")

        NAME.set("caller")
        after_func(1, call)
        NAME.set("later")
        await sleep(2)
        assert seen == ["caller"]
        assert NAME.get() == "later"

    async def test_no_time_arrives_at_its_timer(self) -> None:
        timer = after_func(HOUR, pytest.fail)
        with pytest.raises(RuntimeError, match="no time to receive"):
            await timer.wait()
        assert timer.stop()


class Compiled(Coroutine[Any, Any, None]):
    """A coroutine as compilers make them: of another type than the interpreter's."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def send(self, value: object) -> NoReturn:
        pytest.fail("nobody starts it")

    def throw(self, *error: object) -> NoReturn:
        pytest.fail("nobody starts it")

    def __await__(self) -> NoReturn:
        pytest.fail("nobody starts it")


def is_refused(caplog: pytest.LogCaptureFixture) -> bool:
    """Return True if all that was logged is that a plain function is needed."""
    [record] = caplog.records
    return record.exc_info is not None and isinstance(record.exc_info[1], TypeError)


class TestErrors:
    async def test_an_error_is_logged_and_harms_no_other_timer(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls: list[int] = []

        def crash() -> None:
            raise ZeroDivisionError("on purpose")

        after_func(1, calls.append, 1)
        crashing = after_func(1, crash)
        after_func(1, calls.append, 2)
        with caplog.at_level(logging.ERROR, logger="deadlined.timers"):
            await sleep(1)
        assert calls == [1, 2]
        [record] = caplog.records
        assert record.exc_info is not None
        error = record.exc_info[1]
        assert isinstance(error, ZeroDivisionError)
        assert "after_func called <function" in error.__notes__[0]
        assert not crashing.stop()
        found = deadlined.runtime.statistics()
        assert found is not None
        assert found.poller.timers.failed == 1

    async def test_a_coroutine_that_comes_back_is_an_error_and_not_forgotten(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        def hidden() -> Coroutine[None, None, None]:
            return work()

        async def work() -> None:
            pytest.fail("nobody starts it")

        after_func(1, hidden)
        with caplog.at_level(logging.ERROR, logger="deadlined.timers"):
            await sleep(2)
        assert is_refused(caplog)

    async def test_so_is_one_of_a_compiled_function(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        coroutine = Compiled()
        after_func(1, lambda: coroutine)
        with caplog.at_level(logging.ERROR, logger="deadlined.timers"):
            await sleep(2)
        assert is_refused(caplog)
        assert coroutine.closed

    async def test_so_is_one_of_the_library(self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
        async with conn_pair() as (conn, peer):

            def hidden() -> Awaitable[None]:
                return conn.aclose()

            after_func(1, hidden)
            with caplog.at_level(logging.ERROR, logger="deadlined.timers"):
                await sleep(2)
            assert is_refused(caplog)
            await conn.send_all(b"open")
            assert await peer.receive_some() == b"open"

    async def test_an_async_function_is_refused(self) -> None:
        class Work:
            async def __call__(self) -> None: ...

            async def method(self) -> None: ...

        for function in (trio.sleep, functools.partial(trio.sleep, 1), Work(), Work().method):
            with pytest.raises(TypeError, match=r"after_func\(seconds, nursery.start_soon, fn\)"):
                after_func(1, function, 1)
        assert pending_entries() == 0

    async def test_what_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(TypeError, match="needs a function to call, not 5"):
            after_func(1, 5)  # type: ignore[arg-type]

    async def test_nan_is_refused(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            after_func(math.nan, pytest.fail)
        timer = after_func(HOUR, pytest.fail)
        with pytest.raises(ValueError, match="NaN"):
            timer.reset(math.nan)
        assert timer.stop()

    def test_an_exit_ends_the_run(self) -> None:
        async def main() -> None:
            after_func(0, sys.exit, 3)
            await trio.sleep_forever()

        with pytest.raises(trio.TrioInternalError) as caught:
            trio.run(main)
        cause = caught.value.__cause__
        assert isinstance(cause, BaseExceptionGroup)
        assert cause.split(SystemExit)[1] is None


@pytest.fixture
def debugging() -> Iterator[None]:
    timing.set_debug(True)
    yield
    timing.set_debug(False)


def line_of_caller() -> str:
    """The place of the line that calls this, as the statistics write it."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class TestStatistics:
    async def test_they_count_what_is_neither_received_nor_stopped_nor_collected(
        self, autojump_clock: MockClock
    ) -> None:
        def counts() -> tuple[int, int]:
            found = timing.statistics()
            return found.timers, found.tickers

        assert counts() == (0, 0)
        timer, ticker, func = Timer(1), Ticker(1), after_func(1, bool)
        after_func(2, bool)
        assert counts() == (3, 1)
        await sleep(1)
        assert not func.running
        assert counts() == (2, 1)
        await timer.wait()
        assert counts() == (1, 1)
        timer.reset(1)
        assert counts() == (2, 1)
        timer.stop()
        ticker.stop()
        assert counts() == (1, 0)
        ticker.reset(1)
        assert counts() == (1, 1)
        del ticker
        await sleep(2)
        assert counts() == (0, 0)

    async def test_a_ticker_that_was_started_and_forgotten_shows_where(self, debugging: None) -> None:
        kept = [(Ticker(HOUR), line_of_caller()) for _ in range(3)]
        timer, place = after_func(HOUR, pytest.fail), line_of_caller()
        assert timing.statistics().places == {f"Ticker {kept[0][1]}": 3, f"Timer {place}": 1}
        assert repr(timer).endswith(f"made at {place} calls {pytest.fail!r}>")
        timer.stop()
        kept.pop()[0].stop()
        assert timing.statistics().places == {f"Ticker {kept[0][1]}": 2}

    async def test_an_error_shows_where_its_function_came_from(
        self, debugging: None, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        place, _ = line_of_caller(), after_func(1, int, "no number")
        await sleep(2)
        assert place in caplog.text

    async def test_places_are_told_of_what_was_made_while_debugging_was_on(self) -> None:
        timing.set_debug(False)
        before = Ticker(HOUR)
        timing.set_debug(True)
        during = Ticker(HOUR)
        timing.set_debug(False)
        after = Ticker(HOUR)
        found = timing.statistics()
        assert (found.tickers, len(found.places)) == (3, 1)
        assert [bool(ticker.place) for ticker in (before, during, after)] == [False, True, False]

    @pytest.mark.parametrize(
        ("options", "variable", "on"),
        [
            ([], None, False),
            ([], "1", True),
            ([], "0", False),
            ([], "", False),
            (["-X", "dev"], None, True),
        ],
    )
    def test_debugging_is_switched_on_by_the_environment_or_the_development_mode(
        self, options: list[str], variable: str | None, on: bool
    ) -> None:
        program = """
import trio
from deadlined import Ticker, timing
async def main():
    ticker = Ticker(1)
    print(*timing.statistics().places.items())
trio.run(main)
"""
        environment = {name: value for name, value in os.environ.items() if name != "DEADLINED_DEBUG"}
        if variable is not None:
            environment["DEADLINED_DEBUG"] = variable
        told = subprocess.run(
            [sys.executable, *options, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=Path(deadlined.__file__).parents[1],
        )
        assert told.stdout == ("('Ticker <string>:5', 1)\n" if on else "\n")

    def test_outside_of_a_run_there_are_none(self) -> None:
        with pytest.raises(RuntimeError):
            timing.statistics()
