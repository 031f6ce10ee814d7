"""Awaiting foreign code from compiled code, in a context of its own.

Facts      A task of asyncio has one context for its whole life.
Hazard     A variable set by one request would be visible to the next one in the task.
Answer     This object drives the coroutine by hand, every step in one copy of a context.
Cost       A copy, which is O(1), and two calls per step. A coroutine that does not suspend is run by `for`, which makes
           no StopIteration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import Any


class Foreign:
    """`await Foreign(origin, function, argument)` awaits `function(argument)` in a copy of the context `origin`."""

    __slots__ = ("_argument", "_function", "context", "returned_at_once")

    def __init__(self, origin: Context, function: Callable[[Any], Awaitable[object]], argument: Any) -> None:
        self.context: Context = origin.copy()
        self._function: Any = function
        self._argument: Any = argument
        # True once the function has returned, if it has never suspended
        self.returned_at_once: bool = False

    def __await__(self) -> Generator[Any, Any, None]:
        context: Any = self.context
        first = context.run(_run_to_first_trap, self._function, self._argument)
        if first is None:
            self.returned_at_once = True
            return
        steps, trap = first
        run = context.run
        try:
            while True:
                try:
                    outcome = yield trap
                except BaseException as error:
                    trap = run(steps.throw, error)
                else:
                    try:
                        trap = run(steps.send, outcome)
                    finally:
                        # the name would keep an error, and through the error's frames this one: a cycle
                        del outcome
        except StopIteration:
            return


def _run_to_first_trap(function: Any, argument: Any) -> tuple[Any, Any] | None:
    """Call and await `function(argument)` until it suspends. Return the suspended iterator and its trap, or None if it
    has ended."""
    steps = function(argument).__await__()
    # ends without raising StopIteration
    for trap in steps:
        return steps, trap
    return None
