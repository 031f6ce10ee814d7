"""The event loops by name, and a run of one of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

import trio

ResultT = TypeVar("ResultT")

# what `run` knows; the first is the default
LOOPS = ("trio", "asyncio", "uvloop")

_log = logging.getLogger("deadlined.runtime")


def require_loop(name: str) -> None:
    """Raise ImportError if the event loop is not installed, ValueError if there is none of this name."""
    if name not in LOOPS:
        raise ValueError(f"there is no event loop {name!r}; choose one of {', '.join(LOOPS)}")
    import_module(name)


def run(loop: str, main: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
    """Run `main(*args)` in a new event loop, and return its result. Errors as `require_loop`, those of `main`, and
    RuntimeError inside of a running event loop.

    In asyncio and uvloop a call of `loop.stop()` does not end the run: it is logged, and the loop goes on.
    """
    require_loop(loop)
    if loop == "trio":
        return trio.run(_await, main, args)
    return _run_asyncio(loop, main, args)


def _run_asyncio(name: str, main: Callable[..., Awaitable[ResultT]], args: tuple[Any, ...]) -> ResultT:
    # not imported for programs that do not use it
    import asyncio

    if asyncio._get_running_loop() is not None:
        raise RuntimeError("run() cannot be called while an event loop runs in this thread")
    factory = None if name == "asyncio" else import_module(name).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        task = runner.get_loop().create_task(_await(main, args))
        while True:
            try:
                return runner.run(_join(task))
            except RuntimeError:
                if task.done():
                    raise
                _log.error("something has called stop() of the event loop; it goes on", exc_info=True)


async def _await(main: Callable[..., Awaitable[ResultT]], args: tuple[Any, ...]) -> ResultT:
    return await main(*args)


async def _join(task: Awaitable[ResultT]) -> ResultT:
    return await task
