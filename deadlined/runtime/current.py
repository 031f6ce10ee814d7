"""The host of the event loop that runs now, and what a program needs of it without holding it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType

from trio import Cancelled

from .guest import trio_runs
from .host import Group, Host, RuntimeStatistics
from .on_trio.host import current_trio_host, started_trio_host
from .tasks import ContainedTasks


def asyncio_runs() -> bool:
    """Return True if the caller runs in an event loop of asyncio, and not in a run of trio inside of that."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None and not trio_runs()


@cache
def _on_asyncio() -> ModuleType:
    # not imported for programs that do not use asyncio, and once: an import in a function costs more than a sleep
    from . import on_asyncio

    return on_asyncio


def event_loop_runs() -> bool:
    """Return True if the caller runs in an event loop, of trio or asyncio."""
    return trio_runs() or asyncio_runs()


def current_host() -> Host:
    """Return the host of the event loop that runs in this thread; the first call in a loop starts its pump.

    RuntimeError without a running event loop, and if the first call comes after the end of all tasks of a run of trio:
    in an async generator that was left suspended. The host is closed there, and refuses timers and descriptors.
    """
    if asyncio_runs():
        host: Host = _on_asyncio().current_asyncio_host()
        return host
    return current_trio_host()


def current_time() -> float:
    """Return the time of the running event loop's clock, in seconds: the scale of all deadlines.

    Under trio it is `trio.current_time()`, under asyncio and uvloop `time.monotonic()`. RuntimeError outside of an
    event loop.
    """
    return current_host().clock.now()


def statistics() -> RuntimeStatistics | None:
    """Return the counts of the running event loop's pump; None if it was not started yet. RuntimeError outside of an
    event loop."""
    host: Host | None
    host = _on_asyncio().started_asyncio_host() if asyncio_runs() else started_trio_host()
    return None if host is None else host.statistics()


async def checkpoint() -> None:
    """Let other tasks run, and raise a pending cancellation."""
    await current_host().checkpoint()


def is_loops_cancellation(error: BaseException) -> bool:
    """Return True if `error` is a cancellation that no program can raise itself: one of trio's, also in a group.
    asyncio's cannot be told apart."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(Cancelled)[1] is None
    return isinstance(error, Cancelled)


def open_group() -> Group:
    """Make a group of tasks: `async with open_group() as group`."""
    return current_host().group()


def open_contained_tasks() -> ContainedTasks:
    """Make an owner of contained tasks: `async with open_contained_tasks() as tasks`."""
    return current_host().contained_tasks()


def call_soon() -> Callable[..., None]:
    """Return a function `call(function, *args)` for signal handlers and other threads: this event loop will call
    `function(*args)` soon."""
    return current_host().call_soon_from_anywhere


def cancelled_tasks() -> Callable[[], list[str]]:
    """Return this event loop's `Host.cancelled_tasks`, for other threads."""
    return current_host().cancelled_tasks
