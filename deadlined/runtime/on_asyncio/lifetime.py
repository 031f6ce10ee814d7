"""The end of a host of asyncio: when its loop closes its asynchronous generators, as `asyncio.run` does at its end.

Facts      The loop closes all generators at the same time, each in a task.
Hazard     A generator of the program may wait for the network or a timer as it is closed.
Answer     The host is shut down when all others are closed.

This module is interpreted, because compiled code has no asynchronous generators.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import AsyncGenerator, Callable
from typing import Any


def at_end_of_loop(shut_down: Callable[[], object]) -> object:
    """Call `shut_down` when the running loop closes its generators. The caller must keep the returned object."""
    lifetime = _lifetime(shut_down)
    # the first step, by which the loop learns of it; it suspends at once
    with contextlib.suppress(StopIteration):
        lifetime.asend(None).send(None)
    return lifetime


async def _lifetime(shut_down: Callable[[], object]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        try:
            while others := _tasks_that_close_generators():
                await asyncio.wait(others)
        finally:
            shut_down()


def _tasks_that_close_generators() -> set[asyncio.Task[Any]]:
    """Return the other tasks that do the same as the calling one: to close an asynchronous generator."""
    me = asyncio.current_task()
    kind = None if me is None else type(me.get_coro())
    if kind is None or kind is types.CoroutineType:
        return set()
    return {task for task in asyncio.all_tasks() if task is not me and type(task.get_coro()) is kind}
