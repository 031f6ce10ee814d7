"""`RunInContextCopy`: each call runs in a context copy of its own, whether it suspends or not."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import ContextVar, copy_context

import pytest
import trio
from trio.lowlevel import checkpoint, current_task
from trio.testing import MockClock

from deadlined.runtime.on_trio.context import RunInContextCopy

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


class Visitor:
    """Notes what it finds in NAME, and leaves its own name there, before and after it has slept."""

    def __init__(self, sleeps: int = 0) -> None:
        self._sleeps = sleeps
        self.found: list[str] = []

    async def __call__(self, name: str) -> None:
        self.found.append(NAME.get())
        NAME.set(name)
        for _ in range(self._sleeps):
            await checkpoint()
            self.found.append(NAME.get())


async def test_it_begins_with_what_was_there_and_leaves_nothing() -> None:
    NAME.set("origin")
    origin = copy_context()
    NAME.set("task")
    visitor = Visitor()
    for name in ("first", "second"):
        await RunInContextCopy(origin, visitor, name)
    assert visitor.found == ["origin", "origin"]
    assert NAME.get() == "task"
    assert origin[NAME] == "origin"


async def test_what_it_has_set_it_sees_after_each_sleep_and_the_next_does_not() -> None:
    NAME.set("origin")
    origin = copy_context()
    visitor = Visitor(sleeps=3)
    for name in ("first", "second"):
        await RunInContextCopy(origin, visitor, name)
    assert visitor.found == ["origin", "first", "first", "first", "origin", "second", "second", "second"]
    assert origin[NAME] == "origin"


async def test_tasks_that_it_starts_and_threads_inherit_its_context() -> None:
    found: list[str] = []

    async def child() -> None:
        found.append(NAME.get())

    async def parent(name: str) -> None:
        NAME.set(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        found.append(await trio.to_thread.run_sync(NAME.get))

    await RunInContextCopy(copy_context(), parent, "parent")
    assert found == ["parent", "parent"]


@pytest.mark.parametrize("sleeps", [0, 1])
async def test_an_error_comes_out(sleeps: int) -> None:
    async def fail(number: int) -> None:
        for _ in range(number):
            await checkpoint()
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        await RunInContextCopy(copy_context(), fail, sleeps)


async def test_a_cancellation_goes_in_and_comes_out(autojump_clock: MockClock) -> None:
    seen: list[type[BaseException]] = []

    async def sleep(_: None) -> None:
        try:
            await trio.sleep_forever()
        except BaseException as error:
            seen.append(type(error))
            raise

    with trio.move_on_after(1) as scope:
        await RunInContextCopy(copy_context(), sleep, None)
    assert scope.cancelled_caught
    assert seen == [trio.Cancelled]


async def test_one_that_survives_a_cancellation_goes_on(autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def stubborn(_: None) -> None:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        await trio.sleep(1)
        done.append(NAME.get())

    await RunInContextCopy(copy_context(), stubborn, None)
    assert done == ["nobody"]


async def test_the_task_does_not_change_only_its_context_does() -> None:
    tasks = []

    async def look(_: None) -> None:
        tasks.append(current_task())
        await checkpoint()
        tasks.append(current_task())

    await RunInContextCopy(copy_context(), look, None)
    assert tasks == [current_task()] * 2


async def test_whatever_can_be_awaited_will_do() -> None:
    class Once:
        def __await__(self) -> Generator[object, object, None]:
            yield from checkpoint().__await__()  # noqa: ASYNC105

    async def forwarded(_: None) -> None:
        await Once()

    await RunInContextCopy(copy_context(), forwarded, None)
    await RunInContextCopy(copy_context(), lambda _: Once(), None)
