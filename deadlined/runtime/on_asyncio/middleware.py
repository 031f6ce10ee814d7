"""Cancelling a task of asyncio that waits for the one in which Starlette runs the rest of the application.

Facts      Starlette's `BaseHTTPMiddleware`, so also `@app.middleware("http")`, runs what is behind it in a task of a
           task group of anyio, and waits for its response. If one of the two tasks is cancelled, the group cancels the
           other one in every step of the loop until it has ended.
Hazard     The clean-up of the application, or of the middleware, is cancelled in its first wait. A database driver
           cannot cancel its query then: it closes the connection, the pool makes another one, and the query runs on
           and keeps its locks.
Answer     The innermost of these tasks is cancelled first, once, and the next one when that has ended, while its group
           holds back; each has a second, after which the next one is cancelled all the same. The tasks are found by
           their name and by private names of anyio. If these are other ones, or anyio is older than 4.7, whose groups
           would swallow the cancellation, the outermost is cancelled at once.
Cost       A few look-ups per cancellation.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import Task, TimerHandle
from collections.abc import Callable
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Final
from weakref import WeakSet

from . import shields

# seconds for the clean-up of each task; a second cancellation would interrupt it
_GRACE: Final = 1.0

# what anyio calls the tasks in which the middleware runs what is behind it
_BEHIND: Final = "starlette.middleware.base.BaseHTTPMiddleware.__call__.<locals>.call_next.<locals>.coro"

# tasks that are to be cancelled when what runs inside them has ended
_waiting: WeakSet[Task[Any]] = WeakSet()


def cancel(task: Task[Any]) -> None:
    """Cancel `task` when what Starlette's middlewares run inside it has been cancelled and has ended, at most a second
    later. No task is cancelled while anyio shields it. Until `task` is cancelled further calls have no effect."""
    if task in _waiting:
        return
    inside = _behind(task)
    if inside:
        _FromInside(task, inside[0]).begin()
    elif shields.is_shielded(task):
        # in the step in which it leaves the shield it may start something inside
        shields.when_unshielded(task, cancel)
    else:
        shields.cancel(task)


def cancelled_at(task: Task[Any]) -> float:
    """Return when `cancel` has cancelled `task` last, by its loop's clock: now while something holds that up, -inf if
    never."""
    return task.get_loop().time() if task in _waiting else shields.cancelled_at(task)


class _FromInside:
    """Cancels `inner`, from inside, too, and then `outer`."""

    def __init__(self, outer: Task[Any], inner: Task[Any]) -> None:
        self._outer = outer
        self._inner = inner
        self._group = _group_of(inner)
        # runs from the cancellation of `inner`, which a shield may put off, or what runs inside it
        self._timer: TimerHandle | None = None
        self._ended = False

    def begin(self) -> None:
        """Cancel `inner` once it has taken its first step."""
        _waiting.add(self._outer)
        coroutine: Any = self._inner.get_coro()
        if getcoroutinestate(coroutine) == CORO_CREATED:
            # it would never run, of which Python warns
            shields.call_after_step(self._inner, self.begin)
            return
        cancel(self._inner)
        self._after_step()

    def _after_step(self) -> None:
        """Called after each step of `inner`, in the same turn of the loop. If that was the last one, cancel `outer`
        before it learns of it: it would take it for the end of an application that has given no response."""
        if self._ended:
            return
        if self._inner.done():
            self._end(cancel)
            _cancel_gently(self._group)
            return
        if self._timer is None and self._inner not in _waiting and not shields.is_shielded(self._inner):
            self._timer = self._inner.get_loop().call_later(_GRACE, self._end, shields.cancel)
        shields.call_after_step(self._inner, self._after_step)

    def _end(self, cancel_by: Callable[[Task[Any]], None]) -> None:
        """Have `outer` cancelled now."""
        self._ended = True
        _waiting.discard(self._outer)
        if self._timer is not None:
            self._timer.cancel()
        cancel_by(self._outer)


def _cancel_gently(group: Any) -> None:
    """Cancel the scope of a task group, in which a task has just ended, before anyio does. What waits in the group was
    cancelled in this turn of the loop, so anyio leaves it alone in this one. It would cancel it again in each of the
    next turns: that is put off for a second, and done once."""
    if group is None:
        return
    group.cancel()
    next_round: Any = getattr(group, "_cancel_handle", None)
    if next_round is not None:
        # it keeps its place, because anyio begins a new round where there is none
        next_round.cancel()
        asyncio.get_running_loop().call_later(_GRACE, _cancel_again, group)


def _cancel_again(group: Any) -> None:
    """Cancel what waits in the group, if it is still there a second after its cancellation, which a shield may have
    held up."""
    if not getattr(group, "_active", False):
        return
    loop = asyncio.get_running_loop()
    when = cancelled_at(group._host_task) + _GRACE
    if loop.time() < when:
        loop.call_at(when, _cancel_again, group)
    else:
        shields.cancel(group._host_task)


def _behind(task: Task[Any]) -> list[Task[Any]]:
    """Return the tasks in the task groups of `task`, and in groups inside those, that run what is behind a
    middleware."""
    scope = _scope_of(task)
    outermost: Any = None
    while getattr(scope, "_host_task", None) is task:
        outermost, scope = scope, getattr(scope, "_parent_scope", None)
    return [other for other in _tasks_in(outermost) if _is_behind(other) and other is not task and not other.done()]


def _group_of(task: Task[Any]) -> Any:
    """Return the cancel scope of the task group that has started `task`."""
    scope = _scope_of(task)
    while getattr(scope, "_host_task", None) is task:
        scope = getattr(scope, "_parent_scope", None)
    return scope


def _scope_of(task: Task[Any]) -> Any:
    """Return the cancel scope of anyio in which `task` is. None if it is in none, and if anyio has renamed that or is
    older than 4.7."""
    backend = sys.modules.get("anyio._backends._asyncio")
    if not hasattr(backend, "is_anyio_cancellation"):
        return None
    state: Any = getattr(backend, "_task_states", {}).get(task)
    return getattr(state, "cancel_scope", None)


def _tasks_in(scope: Any) -> list[Task[Any]]:
    """Return the tasks in a cancel scope of anyio, and in the scopes inside it."""
    tasks = list(getattr(scope, "_tasks", ()))
    for inner in getattr(scope, "_child_scopes", ()):
        tasks += _tasks_in(inner)
    return tasks


def _is_behind(task: Task[Any]) -> bool:
    return task.get_name() == _BEHIND
