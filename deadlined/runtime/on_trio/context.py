"""Context variables of a task that serves one request after another.

Facts      A task of trio has one context, `task.context`, which trio's loop enters for each step of the task.
Hazard     A variable set by one request is visible to the next one in the task, which behind a proxy may be another
           user's. The next request may begin in the same step.
Answer     Each request begins in its own copy of the original context. If it suspends, the copy becomes the task's
           context for the following steps.
Cost       A copy, which is O(1), and a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import Any, Final

from trio.lowlevel import Task, current_task

from ...timers import COMPILED
from .interruptible import interruptible

# a name of this module, which compiled code finds faster than another's
_COMPILED: Final = COMPILED

# what the steps of foreign code yield once it has ended
_ENDED: Final = object()


class TaskContext:
    """The context of the task that makes this object. `renew` sets it to a copy of `origin`."""

    __slots__ = ("_origin", "_task")

    def __init__(self, origin: Context) -> None:
        self._origin: Final = origin
        self._task: Final[Task] = current_task()

    def renew(self) -> None:
        """Let the task run in a new copy of the origin from its next step on. Called by the task itself."""
        self._task.context = self._origin.copy()


class RunInContextCopy:
    """`await RunInContextCopy(origin, function, argument)` runs `function(argument)` in `context`, a copy of `origin`.

    If the function suspends, the copy becomes the context of the task, also after the function has ended.
    """

    __slots__ = ("_argument", "_function", "context")

    def __init__(self, origin: Context, function: Callable[[Any], Awaitable[object]], argument: Any) -> None:
        self.context: Final[Context] = origin.copy()
        self._function: Any = function
        self._argument: Any = argument

    def __await__(self) -> Generator[Any, Any, None]:
        context = self.context
        first = context.run(run_to_first_trap, self._function, self._argument)
        if first is None:
            return
        steps, trap = first
        current_task().context = context
        while trap is not _ENDED:
            try:
                outcome = yield trap
            except BaseException as error:
                trap = steps.throw(error)
            else:
                try:
                    trap = steps.send(outcome)
                finally:
                    # the name would keep an error, and through the error's frames this one: a cycle
                    del outcome


def run_to_first_trap(function: Any, argument: Any) -> tuple[Any, Any] | None:
    """Call and await `function(argument)` until it suspends. Return the suspended iterator, which yields _ENDED at its
    end, and its trap, or None if it has ended."""
    awaitable = function(argument)
    # interpreted, this frame is protected from Ctrl-C, which must not come between a trap and the suspension
    steps = to_the_end(awaitable if _COMPILED else interruptible(awaitable))
    for trap in steps:
        return None if trap is _ENDED else (steps, trap)
    return None


def to_the_end(awaitable: Any) -> Generator[Any, Any, None]:
    """Await, and then yield _ENDED: compiled code catches a StopIteration at the price of a traceback."""
    yield from awaitable.__await__()
    yield _ENDED
