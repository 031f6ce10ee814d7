"""The ends of the runtime's blocks: the error that ends them is raised itself, and their tasks are cancelled once.

A compiled coroutine that suspends while it handles an error does not find that error again (tests/test_compiled.py).
"""

from __future__ import annotations

import asyncio

import anyio
import pytest

from deadlined.runtime import open_contained_tasks, open_group
from tests.support.conformance import Loop, on_asyncio, on_each_loop, on_loops


@on_each_loop
async def test_the_end_of_a_block_raises_the_error_itself(loop: Loop) -> None:
    if loop.is_trio:
        # trio's nurseries do, as an ExceptionGroup
        return
    for block in (open_contained_tasks(), open_group()):
        await block.__aenter__()
        error = asyncio.CancelledError("the block's")
        with pytest.raises(asyncio.CancelledError) as caught:
            await block.__aexit__(type(error), error, None)
        assert caught.value is error


@on_each_loop
async def test_a_block_of_contained_tasks_keeps_its_error_while_it_waits(loop: Loop) -> None:
    async def work() -> None:
        await loop.forever()

    async def fails() -> None:
        async with open_contained_tasks() as tasks:
            tasks.new(work, bool, lambda _: None).start()
            await loop.settle()
            raise LookupError("lost")

    async with loop.tasks() as tasks:
        error = await tasks.start(fails).fails_with(Exception)
        assert "lost" in repr(error)


@on_asyncio
async def test_a_cancellation_by_anyio_in_each_step_leaves_contained_tasks_time_to_clean_up(loop: Loop) -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await loop.forever()
        finally:
            # not by the clock: it stands still while anything is ready
            for _ in range(20):
                await loop.step()
            ends.append("clean")

    with anyio.CancelScope() as scope:
        async with open_contained_tasks() as tasks:
            tasks.new(work, bool, bool).start()
            await loop.settle()
            scope.cancel()
            await loop.forever()
    assert ends == ["clean"]


@on_loops("asyncio")
async def test_contained_tasks_that_swallow_their_cancellation_are_cancelled_again_after_a_second(loop: Loop) -> None:
    cancellations = 0

    async def work() -> None:
        nonlocal cancellations
        while cancellations < 3:
            try:
                await loop.forever()
            except asyncio.CancelledError:
                cancellations += 1

    start = loop.after(0)
    async with open_contained_tasks() as tasks:
        tasks.new(work, bool, bool).start()
        await loop.settle()
    assert cancellations == 3
    assert loop.is_at(start + 2)


@on_asyncio
@pytest.mark.parametrize("rests", [True, False], ids=["waits", "goes on in each turn"])
async def test_a_contained_task_is_cancelled_a_few_turns_later_and_once(loop: Loop, rests: bool) -> None:
    cancellations = 0

    async def work() -> None:
        nonlocal cancellations
        try:
            while not rests:
                await loop.step()
            await loop.forever()
        except asyncio.CancelledError:
            cancellations += 1
            try:
                await loop.forever()
            finally:
                cancellations += 1

    async with open_contained_tasks() as tasks:
        task = tasks.new(work, bool, bool)
        task.start()
        await loop.settle()
        task.cancel()
        turns = 0
        while not cancellations:
            await loop.step()
            turns += 1
        assert turns <= (5 if rests else 9)
        await loop.settle()
        assert cancellations == 1


@on_asyncio
async def test_a_cancellation_that_is_put_off_comes_when_it_is_asked_for_again(loop: Loop) -> None:
    puts_off = True
    asked: list[bool] = []
    ends: list[str] = []

    async def work() -> None:
        try:
            await loop.forever()
        finally:
            ends.append("end")

    def put_off() -> bool:
        asked.append(puts_off)
        return puts_off

    async with open_contained_tasks() as tasks:
        task = tasks.new(work, bool, bool, put_off)
        task.start()
        await loop.settle()
        task.cancel()
        await loop.settle()
        assert (asked, ends) == ([True], [])
        puts_off = False
        task.cancel()
        await loop.settle()
        assert (asked, ends) == ([True, False], ["end"])


@on_loops("asyncio")
@pytest.mark.parametrize("before", [0.0, 0.1, 5.0])
async def test_the_end_of_a_block_interrupts_no_contained_task_that_was_cancelled_just_before(
    loop: Loop, before: float
) -> None:
    """One that was cancelled `before` the end, and goes on for longer than a second, is cancelled again at once."""
    cancelled: list[float] = []

    async def work() -> None:
        while len(cancelled) < 2:
            try:
                await loop.sleep(before + 0.5 if cancelled and before < 1 else 100)
                return
            except asyncio.CancelledError:
                cancelled.append(loop.after(0))

    start = loop.after(0)
    async with open_contained_tasks() as tasks:
        task = tasks.new(work, bool, bool)
        task.start()
        await loop.settle()
        task.cancel()
        if before:
            await loop.sleep(before)
    ends = [start, start + before] if before > 1 else [start]
    assert cancelled == ends
    assert loop.is_at(start + before + (0.5 if before < 1 else 0.0))


@on_loops("asyncio")
async def test_the_end_of_a_block_interrupts_no_contained_task_that_has_just_left_a_shield(loop: Loop) -> None:
    """It is cancelled again a second after that."""
    cancelled: list[float] = []

    async def work() -> None:
        with anyio.CancelScope(shield=True):
            await loop.sleep(0.75)
        while len(cancelled) < 2:
            try:
                await loop.forever()
            except asyncio.CancelledError:
                cancelled.append(loop.after(0))

    start = loop.after(0)
    async with open_contained_tasks() as tasks:
        tasks.new(work, bool, bool).start()
        await loop.settle()
    assert cancelled == [start + 0.75, start + 1.75]
