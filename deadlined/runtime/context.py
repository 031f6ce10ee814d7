"""Context variables of a task that serves one request after another.

Facts      A task of trio has one context, `task.context`, which trio's loop enters for each of the task's steps.
Hazard     What one request sets there the next one sees; behind a proxy that is another user's. And the next may come
           in the same step.
Answer     Each request begins in a copy of what was there in the beginning, entered by itself. If it sleeps, the copy
           becomes the task's, which enters it for the steps that follow.
Cost       A copy, which is O(1), and a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import Any, Final

from trio.lowlevel import Task, current_task


class TaskContext:
    """The context of the task that makes this, to be renewed by it. What it begins with is in `origin`."""

    __slots__ = ("_origin", "_task")

    def __init__(self, origin: Context) -> None:
        self._origin: Final = origin
        self._task: Final[Task] = current_task()

    @property
    def runs_now(self) -> bool:
        """True if this is asked by the task itself."""
        return current_task() is self._task

    def renew(self) -> None:
        """From its next step on, after it has slept or given way, the task runs in a copy of the origin."""
        self._task.context = self._origin.copy()


class RunInContextCopy:
    """`await RunInContextCopy(origin, function, argument)` runs `function(argument)` in a copy of the context `origin`.

    If the function suspends, the copy becomes the context of the task and stays it.
    """

    __slots__ = ("_argument", "_function", "_origin")

    def __init__(self, origin: Context, function: Callable[[Any], Awaitable[object]], argument: Any) -> None:
        self._origin: Context = origin
        self._function: Any = function
        self._argument: Any = argument

    def __await__(self) -> Generator[Any, Any, None]:
        context = self._origin.copy()
        begun = context.run(_begin, self._function, self._argument)
        if begun is None:
            return
        steps, trap = begun
        current_task().context = context
        try:
            while True:
                try:
                    outcome = yield trap
                except BaseException as error:
                    trap = steps.throw(error)
                else:
                    trap = steps.send(outcome)
                    # an error, with all its frames, would live for as long as the task sleeps
                    del outcome
        except StopIteration:
            return


def _begin(function: Any, argument: Any) -> tuple[Any, Any] | None:
    steps = function(argument).__await__()
    # a loop hears of the end without an exception
    for trap in steps:
        return steps, trap
    return None
