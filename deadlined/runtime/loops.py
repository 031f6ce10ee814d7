"""The event loops by name, and a run of one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

import trio

from .current import event_loop_runs

ResultT = TypeVar("ResultT")

# what `run` knows; the first is the default
LOOPS = ("trio", "asyncio", "uvloop")


def require_loop(name: str) -> None:
    """Raise ImportError if the event loop is not installed, ValueError if there is none of this name."""
    if name not in LOOPS:
        raise ValueError(f"there is no event loop {name!r}; choose one of {', '.join(LOOPS)}")
    import_module(name)


def run(loop: str, main: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
    """Run `main(*args)` in a new event loop, and return its result. Errors as `require_loop`, those of `main`, and
    RuntimeError inside of a running event loop.

    In asyncio and uvloop the run goes on if something calls `loop.stop()`, or cancels all tasks of
    `asyncio.all_tasks()`; both are logged.
    """
    require_loop(loop)
    if event_loop_runs():
        raise RuntimeError("run() cannot be called while an event loop runs in this thread")
    if loop == "trio":
        return trio.run(_await, main, args)
    return _run_asyncio(loop, main, args)


def _run_asyncio(name: str, main: Callable[..., Awaitable[ResultT]], args: tuple[Any, ...]) -> ResultT:
    # not imported for programs that do not use it
    from .on_asyncio.running import run_hidden

    return run_hidden(None if name == "asyncio" else import_module(name).new_event_loop, _await(main, args))


async def _await(main: Callable[..., Awaitable[ResultT]], args: tuple[Any, ...]) -> ResultT:
    return await main(*args)
