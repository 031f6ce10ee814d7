"""Lifespans that misbehave, on each event loop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deadlined.asgi import Lifespan, LifespanFailed
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.runtime import LOOPS, Event, call_soon, protected_from_interrupts, run
from tests.support.on_loops import PATIENCE, in_trio, sleep, sleep_forever

pytestmark = pytest.mark.parametrize("loop", LOOPS)


class Mess(BaseException):
    """Not an Exception."""


# what only a program can raise; an Exception means that it has no lifespan
STRANGE: list[Callable[[], BaseException]] = [
    Mess,
    lambda: SystemExit("no database"),
    asyncio.CancelledError,
    GeneratorExit,
    lambda: BaseExceptionGroup("several", [Mess(), SystemExit(1)]),
]
NAMES = ["base", "exit", "cancelled", "generator exit", "group"]


async def started(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})


def within(loop: str, app: Any, block: Callable[[], Awaitable[object]], *, mode: str = "auto") -> None:
    async def main() -> None:
        async with Lifespan(app, grace=0.05, mode=mode):
            await block()

    run(loop, main)


def run_interrupted(loop: str, main: Callable[[], Awaitable[object]]) -> None:
    """Run `main`, which Ctrl-C ends."""
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        run(loop, main)
    if isinstance(caught.value, BaseExceptionGroup):
        assert caught.value.split(KeyboardInterrupt)[1] is None


FAILED_SERVED = "the application's lifespan failed, and the application is served without it"


async def nothing() -> None:
    """Leave the block at once."""


async def unreachable() -> None:
    pytest.fail("it was served")


@pytest.mark.parametrize("make", STRANGE, ids=NAMES)
@pytest.mark.parametrize("pause", [0.0, 0.001])
def test_a_startup_that_raises_what_is_no_exception_has_failed(
    loop: str, make: Callable[[], BaseException], pause: float
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await sleep(pause)
        raise make()

    with pytest.raises(LifespanFailed, match="it raised"):
        within(loop, app, unreachable)


@pytest.mark.parametrize("make", STRANGE, ids=NAMES)
def test_what_it_raises_later_is_logged_and_requests_are_served(
    loop: str, make: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    error = make()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        raise error

    async def block() -> None:
        while not caplog.records:
            await sleep(0.001)
        await sleep(0.001)

    within(loop, app, block)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, FAILED_SERVED)
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("make", STRANGE, ids=NAMES)
def test_what_its_shutdown_raises_is_logged(
    loop: str, make: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await receive()
        raise make()

    within(loop, app, nothing)
    assert [record.getMessage() for record in caplog.records] == ["the application's shutdown failed"]


@pytest.mark.parametrize("told", [False, True], ids=["served", "shutdown"])
def test_what_a_framework_reports_and_raises_is_logged_once(
    loop: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    error, reported = LookupError("half saved"), Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        if told:
            await receive()
        # as Starlette does
        await send({"type": "lifespan.shutdown.failed", "message": "Traceback: half saved"})
        reported.set()
        raise error

    within(loop, app, nothing if told else reported.wait)
    (record,) = caplog.records
    assert record.getMessage() == ("the application's shutdown failed" if told else FAILED_SERVED)
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_what_it_raises_once_it_is_cancelled_is_logged(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """It had its time; its clean-up fails after that."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await receive()
        try:
            await sleep_forever()
        finally:
            raise LookupError("not closed")

    within(loop, app, nothing)
    late, failed = caplog.records
    assert "did not finish its lifespan shutdown" in late.getMessage()
    assert failed.getMessage() == "the application's lifespan failed when it was cancelled"
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], LookupError)


def test_it_does_not_hide_what_has_ended_the_block(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        try:
            await sleep_forever()
        finally:
            raise LookupError("not closed")

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, BaseExceptionGroup)) as caught:
        within(loop, app, fail)
    if isinstance(caught.value, BaseExceptionGroup):
        assert caught.value.split(ZeroDivisionError)[1] is None


@pytest.mark.parametrize("message", [{}, {"message": None}, {"message": ""}], ids=["none", "None", "empty"])
def test_a_shutdown_that_fails_without_a_word_is_logged(
    loop: str, message: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await receive()
        await send({"type": "lifespan.shutdown.failed", **message})

    within(loop, app, nothing)
    assert [each.getMessage() for each in caplog.records] == ["the application's shutdown failed: it has not said why"]


def test_one_that_ends_before_its_shutdown_is_logged(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    ended = Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        # as Starlette does when a task group around the `yield` of a lifespan is cancelled
        await send({"type": "lifespan.shutdown.complete"})
        ended.set()

    within(loop, app, ended.wait)
    assert [record.getMessage() for record in caplog.records] == [
        "the application's lifespan ended before its shutdown, and the application is served without it"
    ]


async def stopped(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def test_what_is_around_it_may_close_after_its_shutdown(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    closed: list[bool] = []

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await stopped(receive, send)
        await sleep(0.001)
        closed.append(True)

    within(loop, middleware, nothing)
    assert (closed, caplog.records) == ([True], [])


@pytest.mark.parametrize("waits", [False, True], ids=["for ever", "for a message"])
def test_what_does_not_close_is_cancelled(loop: str, waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await stopped(receive, send)
        await (receive() if waits else sleep_forever())

    within(loop, app, nothing)
    assert caplog.records == []


async def raises_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    raise LookupError("none")


async def raises_later(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await sleep(0.001)
    raise LookupError("no database")


async def returns_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    """Do nothing."""


async def returns_later(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()


UNFINISHED = [
    (raises_at_once, r"^it has no lifespan, it raised LookupError\('none'\)$"),
    (raises_later, r"^it raised LookupError\('no database'\) before lifespan\.startup\.complete$"),
    (returns_at_once, r"^it has no lifespan, it returned$"),
    (returns_later, r"^it returned before lifespan\.startup\.complete$"),
]


@pytest.mark.parametrize(("app", "why"), UNFINISHED)
def test_one_that_is_required_has_failed_if_it_ends_before_it_has_started(
    loop: str, app: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LifespanFailed, match=why) as caught:
        within(loop, app, unreachable, mode="on")
    assert isinstance(caught.value.__cause__, LookupError) == ("raised" in why)
    assert caplog.records == []


@pytest.mark.parametrize("app", [app for app, _ in UNFINISHED])
def test_one_that_is_not_required_is_served_without(loop: str, app: Any) -> None:
    served: list[bool] = []

    async def block() -> None:
        served.append(True)

    within(loop, app, block)
    assert served == [True]


def test_one_that_is_required_may_fail_when_it_has_started(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        raise LookupError

    within(loop, app, nothing, mode="on")
    assert [record.getMessage() for record in caplog.records] == [FAILED_SERVED]


def test_one_that_is_required_gives_its_own_reason(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        raise LookupError("no database")

    with pytest.raises(LifespanFailed, match=r"^no database$"):
        within(loop, app, unreachable, mode="on")


def test_one_that_is_off_is_told_nothing(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("it was called")

    within(loop, app, nothing, mode="off")
    assert caplog.records == []


def test_a_mode_that_does_not_exist_is_an_error(loop: str) -> None:
    with pytest.raises(ValueError, match=r"^lifespan 'yes': it is one of auto, on, off$"):
        within(loop, started, unreachable, mode="yes")


def test_one_that_cancels_its_own_task_has_failed(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if in_trio():
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await sleep_forever()

    with pytest.raises(LifespanFailed, match="CancelledError"):
        within(loop, app, unreachable)


def test_one_that_ignores_its_shutdown_is_cancelled(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        try:
            await sleep_forever()
        finally:
            ended.append("cancelled")

    within(loop, app, nothing)
    assert ended == ["cancelled"]
    assert [record.getMessage() for record in caplog.records] == [
        "the application did not finish its lifespan shutdown within 0.05 s"
    ]


def test_an_error_of_the_block_ends_it_and_is_the_only_one(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await stopped(receive, send)

    async def fail() -> None:
        raise LookupError

    with pytest.RaisesGroup(LookupError):
        within(loop, app, fail)
    assert caplog.records == []


@pytest.mark.parametrize("when", ["as it starts", "in the block"])
def test_ctrl_c_once_it_has_started_shuts_it_down(loop: str, when: str) -> None:
    """So what follows the `yield` of a framework's lifespan runs, also without a `finally`."""
    told: list[str] = []

    @protected_from_interrupts
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if when == "as it starts":
            # it reaches the main task, which waits for the start
            signal.raise_signal(signal.SIGINT)
        await send({"type": "lifespan.startup.complete"})
        told.append((await receive())["type"])
        await sleep(0.001)
        told.append("done")
        await send({"type": "lifespan.shutdown.complete"})

    async def main() -> None:
        async with Lifespan(app):
            if when == "in the block":
                call_soon()(signal.raise_signal, signal.SIGINT)
            await sleep_forever()

    run_interrupted(loop, main)
    assert told == ["lifespan.shutdown", "done"]


def test_what_it_reports_of_its_own_cancellation_is_no_error(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        call_soon()(signal.raise_signal, signal.SIGINT)
        try:
            await sleep_forever()
        finally:
            await send({"type": "lifespan.shutdown.failed", "message": "Traceback: Cancelled"})

    async def main() -> None:
        async with Lifespan(app):
            pytest.fail("it was served")

    run_interrupted(loop, main)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_ctrl_c_in_its_shutdown_ends_it(loop: str) -> None:
    ended: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await started(receive, send)
        await receive()
        # in a step of the loop itself, so that it comes where the main task waits
        call_soon()(signal.raise_signal, signal.SIGINT)
        try:
            await sleep_forever()
        finally:
            ended.append("cancelled")

    async def main() -> None:
        async with Lifespan(app, grace=PATIENCE):
            pass

    run_interrupted(loop, main)
    assert ended == ["cancelled"]
