"""A block of a context manager, for compiled code.

Facts      Compiled code keeps the exception that it handles in the thread's state, and loses it when it suspends in an
           `except`, a `finally` or the end of an `async with`: a cancellation is swallowed then, or the process
           crashes.
Answer     This module is interpreted. No compiled module waits in one of these places (tests/test_compiled.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

EnteredT = TypeVar("EnteredT")


async def within(
    manager: AbstractAsyncContextManager[EnteredT, Any], body: Callable[[EnteredT], Awaitable[object]]
) -> None:
    """Await `body(entered)` in the block `async with manager as entered`."""
    async with manager as entered:
        await body(entered)
