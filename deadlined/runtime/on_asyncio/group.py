"""A group of tasks: asyncio's TaskGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..host import Group
from .hiding import hide
from .shields import cancel


class AsyncioGroup(Group):
    """A TaskGroup whose tasks can be cancelled together. `asyncio.all_tasks()` does not show them to programs."""

    __slots__ = ("_group", "_tasks")

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Group:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        try:
            await self._group.__aexit__(kind, error, traceback)
            passed = error
        except BaseExceptionGroup as failures:
            # Before Python 3.13 the frame of asyncio that raises it refers to it, and to a cancellation that came
            # meanwhile: a cycle
            _clear_last_frame(failures)
            failures.__context__ = None
            raise failures.with_traceback(None) from None
        except asyncio.CancelledError as cancelled:
            # asyncio's frames refer to it, and are left out; those of the block show where it was cancelled
            raise cancelled.with_traceback(traceback if cancelled is error else None) from None
        finally:
            # an error that passes refers to this frame
            error = traceback = None
        if passed is not None:
            # not left to the caller: if that is compiled, it has lost the error while it was suspended here
            try:
                raise passed
            finally:
                passed = None
        return None

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        task = self._group.create_task(_run(function, args))
        hide(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            cancel(task)

    def shield(self) -> None:
        return None


def _clear_last_frame(error: BaseException) -> None:
    """Clear the local variables of the frame that has raised `error`."""
    frame, traceback = None, error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
    if frame is not None:
        frame.clear()


async def _run(function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
    # create_task takes coroutines only, and compiled functions may return other awaitables
    await function(*args)
