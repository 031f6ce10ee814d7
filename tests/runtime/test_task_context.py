"""A task context: a copy of the task's context that can be swapped for a fresh one."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import trio

from deadlined.runtime.on_trio.context import TaskContext


class TestTaskContext:
    NAME: ContextVar[str] = ContextVar("NAME", default="nobody")

    async def test_it_is_new_after_the_next_step(self) -> None:
        context = TaskContext(copy_context())
        self.NAME.set("one")
        context.renew()
        assert self.NAME.get() == "one"
        await trio.lowlevel.checkpoint()
        assert self.NAME.get() == "nobody"

    async def test_each_is_a_copy_of_the_origin(self) -> None:
        origin = copy_context()
        origin.run(self.NAME.set, "origin")
        context = TaskContext(origin)
        for _ in range(2):
            context.renew()
            await trio.lowlevel.checkpoint()
            assert self.NAME.get() == "origin"
            self.NAME.set("changed")
        assert origin[self.NAME] == "origin"

    async def test_what_was_begun_in_the_old_one_goes_on_there(self) -> None:
        """A task of its own has its own context."""
        seen: list[str] = []

        async def child() -> None:
            await trio.lowlevel.checkpoint()
            seen.append(self.NAME.get())

        context = TaskContext(copy_context())
        self.NAME.set("one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            context.renew()
        assert seen == ["one"]
