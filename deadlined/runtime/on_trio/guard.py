"""Checks on what a handler leaves behind in the task that ran it, so that the task can run another handler.

Facts      In trio a cancel scope or nursery that is entered and not left stays on the stack of its task. A task that is
           started in the nursery of another task is cancelled with it, and its failure ends that task. Code leaves a
           scope open by mistake: it abandons an async generator inside `async with open_nursery()`. And it finds the
           nursery around its task, `current_task().parent_nursery`, whose scope it may give a deadline or a shield.
Hazard     The next request in that task would run inside the scopes that the last one left, and be cancelled and timed
           out with them. At the end trio would end the whole run, because its scopes are left in a wrong order, or wait
           for a shield.
Answer     `TaskGuard` notes the scopes and the nursery with which a task begins, and compares before the task is used
           again. It reads private attributes of trio. If trio has renamed them, no task is used again.
           `AbandonedGenerators` lets the task close abandoned generators itself, where their scopes were entered.
Cost       Six attributes of trio are read per request.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any, Final

from trio.lowlevel import Task, current_task

from ...timers.timer import INF

Generators = list[AsyncGenerator[Any, Any]]


class TaskGuard:
    """The innermost scope and the nursery that a task began with. The task makes it before it runs foreign code."""

    __slots__ = ("_nurseries", "_scope", "_siblings", "_status", "_task")

    def __init__(self) -> None:
        task = current_task()
        self._task: Final[Any] = task
        # private to trio: the innermost scope's state, the task's open nurseries, the tasks in the nursery around it,
        # and the scope of that nursery with what may change in it; None if trio has renamed an attribute
        self._status: Final[Any] = getattr(task, "_cancel_status", None)
        self._nurseries: Final[Any] = getattr(task, "_child_nurseries", None)
        self._siblings: Final[Any] = getattr(task.parent_nursery, "_children", None)
        scope: Any = getattr(task.parent_nursery, "cancel_scope", None)
        known = all(hasattr(scope, name) for name in ("_cancel_called", "_deadline", "_shield"))
        self._scope: Final[Any] = scope if known else None

    @property
    def intact(self) -> bool:
        """True if the task may be used again: its innermost scope is the one it began with, it has no open nursery, it
        is alone in the nursery around it, and the scope of that has neither a deadline nor a shield."""
        status, scope = self._status, self._scope
        if status is None or self._nurseries is None or self._siblings is None or scope is None:
            return False
        alone = not len(self._nurseries) and len(self._siblings) == 1
        return self._task._cancel_status is status and alone and scope._deadline == INF and not scope._shield

    @property
    def cancelled(self) -> bool:
        """True if the nursery around the task was cancelled: what the task runs next would be cancelled, too."""
        return self._scope is not None and bool(self._scope._cancel_called)

    def abandon(self) -> None:
        """Cancel what runs in the nurseries that were left open in the task, and lift a shield around it. The task must
        end after this."""
        for nursery in self._task.child_nurseries:
            nursery.cancel_scope.cancel()
        if self._scope is not None:
            self._scope.shield = False


class AbandonedGenerators:
    """The finalizer of async generators between `install` and `remove`. It receives each generator that becomes garbage
    before it has finished.

    A generator that becomes garbage in a step of a task that has called `collect` is appended to that task's list. So
    the task can close the generator where its scopes were entered. All others are given to the host (trio), which
    closes them in a task of its own.
    """

    def __init__(self) -> None:
        # the tasks that have called `collect`
        self._lists: dict[Task, Generators] = {}
        # the finalizer that was installed before
        self._host: Any = None

    def install(self) -> None:
        """Replace the host's finalizer, for all async generators that are first iterated from now on."""
        self._host = sys.get_asyncgen_hooks().finalizer
        sys.set_asyncgen_hooks(finalizer=self._finalize)

    def remove(self) -> None:
        """Put the host's finalizer back, unless another one was installed meanwhile, which may still call this one."""
        if sys.get_asyncgen_hooks().finalizer == self._finalize:
            sys.set_asyncgen_hooks(finalizer=self._host)

    def collect(self) -> Generators:
        """Begin to collect for the current task. Return its list, to which generators will be appended."""
        return self._lists.setdefault(current_task(), [])

    def forget(self, generators: Generators) -> None:
        """Stop collecting for the current task, and give the `generators` that are left in its list to the host."""
        self._lists.pop(current_task(), None)
        self.hand_over(generators)

    def hand_over(self, generators: Generators) -> None:
        """Give all `generators` to the host, and empty the list."""
        for generator in generators:
            self._give_to_host(generator)
        generators.clear()

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        try:
            found = self._lists.get(current_task())
        except RuntimeError:
            # no task runs now: the generator became garbage in the event loop itself
            found = None
        if found is None:
            self._give_to_host(generator)
        else:
            found.append(generator)

    def _give_to_host(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._host is not None:
            self._host(generator)
