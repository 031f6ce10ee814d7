"""The blocks of the runtime raise the error that ends them themselves.

A compiled coroutine that suspends while it handles an error does not find that error again (tests/test_compiled.py).
"""

from __future__ import annotations

import asyncio

import pytest

from deadlined.runtime import open_contained_tasks, open_group
from tests.support.conformance import Loop, on_each_loop


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
