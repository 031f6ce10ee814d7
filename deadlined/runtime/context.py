"""Context variables of a task that serves one request after another.

Facts      A task of trio has one context, `task.context`, which trio's loop enters for each of the task's steps.
Hazard     What one request sets there the next one sees; behind a proxy that is another user's.
Answer     Between two requests the task gets a copy of what was there in the beginning.
Cost       A copy, which is O(1). It takes effect with the task's next step: there must be one in between.
"""

from __future__ import annotations

from contextvars import Context
from typing import Final

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
