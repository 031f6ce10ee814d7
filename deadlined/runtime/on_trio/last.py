"""The system task that ends last, because the clean-up of the others may need it.

Facts      When the main task has ended or a system task has failed, trio cancels all system tasks together. Any task
           may shield its clean-up. Trio closes the async generators that are left after the last system task.
Hazard     Without the pump a clean-up would sleep for ever, and the drain of a server would find its sockets closed.
Answer     The pump shields itself from the cancellation while other tasks are left. An instrument notices their end.
Cost       None before that cancellation: the instrument is installed then.

This module is interpreted: trio reads the methods of an instrument's class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from trio.lowlevel import Task, add_instrument, current_task, enable_ki_protection, remove_instrument


class _Others(trio.abc.Instrument):
    """The main task and the system tasks, but for the task that makes this object. `scope` is cancelled when the last
    of them ends."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope(shield=True)
        nursery = current_task().parent_nursery
        assert nursery is not None
        self._nursery = nursery

    def are_left(self) -> bool:
        # the nursery of the main task is inside that of the system tasks; that of trio's own task is around both
        nurseries = self._nursery.parent_task.child_nurseries
        inner = nurseries[nurseries.index(self._nursery) :]
        return sum(len(nursery.child_tasks) for nursery in inner) > 1

    @enable_ki_protection
    def task_exited(self, task: Task) -> None:
        """Trio's loop calls it when a task has ended."""
        if not self.are_left():
            self.scope.cancel()


async def while_others_are_left(work: Callable[[], Awaitable[None]]) -> None:
    """Await `work()` in a system task, shielded from cancellation, and cancel it when no other task is left. Trio's own
    tasks do not count."""
    others = _Others()
    if not others.are_left():
        return
    add_instrument(others)
    try:
        with others.scope:
            await work()
    finally:
        remove_instrument(others)
