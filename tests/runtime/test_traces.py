"""What foreign code can leave in a task of asyncio, and what leaves nothing there."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from deadlined.runtime.on_asyncio.traces import Traces

kept: list[Any] = []


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def run_to_end(step: Any) -> None:
    """Run a coroutine that does not suspend."""
    with pytest.raises(StopIteration):
        step.send(None)


def uncancelled() -> None:
    me().cancel()
    me().uncancel()


def failed() -> None:
    task = me()
    try:
        raise LookupError(task.get_name())
    except LookupError as error:
        kept.append(error)


def entered(manager: Any) -> None:
    kept.append(manager)
    run_to_end(manager.__aenter__())


def entered_scope() -> None:
    kept.append(anyio.CancelScope())
    kept[0].__enter__()


LEAVES: list[Callable[[], object]] = [
    lambda: kept.append(me()),
    lambda: kept.append({me(): "session"}),
    lambda: kept.append(weakref.ref(me())),
    lambda: kept.append(weakref.WeakKeyDictionary({me(): "state"})),
    lambda: me().set_name("request 5"),
    lambda: setattr(me(), "context", {}),
    lambda: me().add_done_callback(print),
    lambda: me().cancel(),
    lambda: me().cancel("with a message"),
    uncancelled,
    failed,
    lambda: entered(asyncio.timeout(5)),
    lambda: entered(asyncio.TaskGroup()),
    entered_scope,
]


async def scope_left() -> None:
    with anyio.CancelScope():
        await answer_at_once()


async def time_limit_left() -> None:
    async with asyncio.timeout(5):
        await answer_at_once()


async def answer_at_once() -> None:
    """Do not suspend."""


LEAVES_NOTHING: list[Callable[[], object]] = [
    lambda: None,
    me,
    lambda: id(me()),
    lambda: me().get_name(),
    lambda: logging.getLogger("application").warning("a record has the task's name"),
    lambda: me().cancelling(),
    lambda: run_to_end(time_limit_left()),
    lambda: asyncio.create_task(asyncio.sleep(0)),
    lambda: asyncio.get_running_loop().call_soon(print),
]


async def is_unchanged_by(action: Callable[[], object]) -> bool:
    """Return what a task of its own says of itself after the action."""
    answers: list[bool] = []

    def run() -> None:
        traces = Traces(me())
        traces.remember()
        action()
        answers.append(traces.none())

    async def body() -> None:
        run()

    ended = asyncio.Event()
    asyncio.Task(body()).add_done_callback(lambda task: ended.set())
    await ended.wait()
    return answers[0]


@pytest.mark.parametrize("action", LEAVES)
def test_what_leaves_a_trace(action: Callable[[], object]) -> None:
    try:
        assert not asyncio.run(is_unchanged_by(action))
    finally:
        kept.clear()


@pytest.mark.parametrize("action", LEAVES_NOTHING)
def test_what_leaves_none(action: Callable[[], object]) -> None:
    assert asyncio.run(is_unchanged_by(action))


def test_what_was_there_before_is_no_trace_but_what_the_task_refers_to() -> None:
    async def twice(action: Callable[[], object]) -> list[bool]:
        traces = Traces(me())
        answers = []
        for _ in range(2):
            traces.remember()
            action()
            answers.append(traces.none())
            traces.remember()
            answers.append(traces.none())
        return answers

    try:
        assert asyncio.run(twice(lambda: kept.append(me()))) == [False, True, False, True]
        assert asyncio.run(twice(lambda: me().set_name("mine"))) == [False] * 4
    finally:
        kept.clear()


def test_with_another_callback_no_task_passes() -> None:
    async def body() -> bool:
        me().add_done_callback(kept.append)
        traces = Traces(me())
        return traces.none()

    try:
        assert not asyncio.run(body())
    finally:
        kept.clear()


def test_a_scope_of_anyio_that_was_left_mixes_nothing_up() -> None:
    """It may keep its state of the task, weakly: then the task is not used again."""

    async def body() -> tuple[bool, bool]:
        traces = Traces(me())
        traces.remember()
        await scope_left()
        return traces.none(), me() in anyio._backends._asyncio._task_states  # type: ignore[attr-defined]

    untouched, known = asyncio.run(body())
    assert untouched is not known
