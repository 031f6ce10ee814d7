"""What a handler may leave behind in the task that ran it.

Facts      A cancel scope or a nursery that is entered and not left stays on the stack of its task (trio), and a task
           that was started in the nursery of another one lives and fails with it. Code does this by mistake: an async
           generator that is abandoned between `async with open_nursery()` and its end is enough.
Hazard     A task that is used again runs the next request inside what the last one left: cancelled with it, timed out
           with it, and at the end trio ends the whole run because its stack is corrupt.
Answer     Before a task is used again it is compared with what it began with. If that cannot be known, because the host
           has no such attributes any more, the answer is no.
Cost       Three attributes of trio per request.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any, Final

from trio.lowlevel import Task, current_task

Generators = list[AsyncGenerator[Any, Any]]


class TaskGuard:
    """Made by a task before it runs foreign code: knows the scope stack and the nurseries that the task began with."""

    __slots__ = ("_nurseries", "_siblings", "_status", "_task")

    def __init__(self) -> None:
        task = current_task()
        self._task: Final[Any] = task
        # the innermost scope of a task, its open nurseries, and the tasks beside it: names of trio that are not public,
        # so that they may go
        self._status: Final[Any] = getattr(task, "_cancel_status", None)
        self._nurseries: Final[Any] = getattr(task, "_child_nurseries", None)
        self._siblings: Final[Any] = getattr(task.parent_nursery, "_children", None)

    @property
    def intact(self) -> bool:
        """True if the task is as it was in the beginning, and alone in its nursery: it may be used again."""
        status = self._status
        if status is None or self._nurseries is None or self._siblings is None:
            return False
        return self._task._cancel_status is status and not len(self._nurseries) and len(self._siblings) == 1

    def abandon(self) -> None:
        """Cancel what runs in nurseries that were left open. The task must end after this."""
        for nursery in self._task.child_nurseries:
            nursery.cancel_scope.cancel()


class AbandonedGenerators:
    """Sorts the async generators that are garbage before they are finished, between `install` and `remove`.

    One that becomes garbage in a step of a task that has called `collect` is appended to that task's list, so that the
    task can close it where its scopes were entered. All others go to the host, which closes them in a task of its own.
    """

    def __init__(self) -> None:
        self._lists: dict[Task, Generators] = {}
        self._host: Any = None

    def install(self) -> None:
        """Take the host's place as finalizer of async generators that are first iterated from now on."""
        self._host = sys.get_asyncgen_hooks().finalizer
        sys.set_asyncgen_hooks(finalizer=self._finalize)

    def remove(self) -> None:
        """Give the place back, unless somebody else has taken it meanwhile and will call us."""
        if sys.get_asyncgen_hooks().finalizer == self._finalize:
            sys.set_asyncgen_hooks(finalizer=self._host)

    def collect(self) -> Generators:
        """The list of the current task."""
        return self._lists.setdefault(current_task(), [])

    def forget(self, generators: Generators) -> None:
        """Give what is left of the current task's list to the host, and collect no more in this task."""
        self._lists.pop(current_task(), None)
        self.hand_over(generators)

    def hand_over(self, generators: Generators) -> None:
        """Give `generators` to the host, and empty the list."""
        for generator in generators:
            self._give_to_host(generator)
        generators.clear()

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        try:
            found = self._lists.get(current_task())
        except RuntimeError:
            # garbage collection outside of any task
            found = None
        if found is None:
            self._give_to_host(generator)
        else:
            found.append(generator)

    def _give_to_host(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._host is not None:
            self._host(generator)
