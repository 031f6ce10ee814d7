"""What has ended is freed at once: nothing that the runtime drives leaves a reference cycle for the collector.

Since Python 3.12 the frames of an error's traceback keep the names of the frames that called them, so that one name
that holds an error, or what a task was woken with, closes a cycle through all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial

import pytest
import trio

from deadlined.runtime.on_trio.context import RunInContextCopy
from deadlined.runtime.on_trio.parking import TaskParker, TrioParking
from deadlined.runtime.on_trio.suspend_hook import run_hooked
from deadlined.runtime.on_trio.suspension import SuspendHook
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.net import unix_pair

Task = Callable[[], Awaitable[None]]


async def sleep_and_return() -> None:
    await trio.sleep(1)


async def sleep_and_fail() -> None:
    await trio.sleep(1)
    raise LookupError


async def sleep_until_cancelled() -> None:
    with trio.move_on_after(1):
        await trio.sleep_forever()


async def sleep_twice() -> None:
    await sleep_until_cancelled()
    await sleep_until_cancelled()


async def with_hook(task: Task) -> None:
    async def run() -> None:
        await task()

    await run_hooked(SuspendHook(run(), lambda: None))


async def in_context(task: Task) -> None:
    await RunInContextCopy(copy_context(), lambda _: task(), None)


async def both(task: Task) -> None:
    await with_hook(lambda: in_context(task))


@pytest.mark.parametrize("drive", [with_hook, in_context, both])
@pytest.mark.parametrize("task", [sleep_and_return, sleep_and_fail, sleep_until_cancelled, sleep_twice])
async def test_a_driven_task_leaves_no_cycle(
    task: Task, drive: Callable[[Task], Awaitable[None]], autojump_clock: trio.testing.MockClock
) -> None:
    async def act() -> None:
        for _ in range(3):
            with suppress(LookupError):
                await drive(task)

    await assert_leaves_no_garbage(act)


@pytest.mark.parametrize("drive", [with_hook, in_context, both])
async def test_a_driven_task_that_is_cancelled_leaves_no_cycle(
    drive: Callable[[Task], Awaitable[None]], autojump_clock: trio.testing.MockClock
) -> None:
    await assert_leaves_no_garbage(partial(give_up_three_times, lambda: drive(trio.sleep_forever)))


async def test_a_parked_task_that_is_cancelled_leaves_no_cycle(autojump_clock: trio.testing.MockClock) -> None:
    async with unix_pair() as (conn, _):
        waits: list[Task] = [
            conn.wait_readable,
            lambda: wait_at(TaskParker(lambda: None)),
            lambda: wait_at(TrioParking(conn._desc.read)),
        ]
        for wait in waits:
            await assert_leaves_no_garbage(partial(give_up_three_times, wait))


async def give_up_three_times(wait: Task) -> None:
    for _ in range(3):
        with trio.move_on_after(1):
            await wait()


async def wait_at(place: Awaitable[object]) -> None:
    await place
