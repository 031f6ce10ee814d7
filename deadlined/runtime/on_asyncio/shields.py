"""Cancelling a task of asyncio that anyio shields.

Facts      A shield of anyio's is its own: a task of asyncio does not know of it, and `Task.cancel` breaks through it.
           `anyio.to_thread` shields the wait for its thread; the plain functions of FastAPI and Starlette run there.
Hazard     A task that is cancelled in that wait cleans up while its thread goes on: it rolls back a database session,
           and the thread commits the rest of its changes in the next transaction. Nor does anyio's limit count the
           thread any more.
Answer     A task in a shield is cancelled when it has left it: it is looked at again whenever what it waits for has
           ended. So it is on trio. The scopes are found by private names of anyio; if it has renamed them, the task is
           cancelled at once.
Cost       Two look-ups per cancellation.
"""

from __future__ import annotations

import sys
from asyncio import Task
from typing import Any
from weakref import WeakSet

# tasks that are to be cancelled when they have left their shields
_pending: WeakSet[Task[Any]] = WeakSet()


def cancel(task: Task[Any]) -> None:
    """Cancel `task`, as soon as no cancel scope of anyio shields it. Until then further calls have no effect."""
    if not is_shielded(task):
        task.cancel()
    elif task not in _pending:
        _pending.add(task)
        _look_later(task)


def is_shielded(task: Task[Any]) -> bool:
    """Return True if `task` is in a cancel scope of anyio that is shielded, or around which one is."""
    backend = sys.modules.get("anyio._backends._asyncio")
    state: Any = getattr(backend, "_task_states", {}).get(task)
    scope: Any = getattr(state, "cancel_scope", None)
    while scope is not None:
        if getattr(scope, "shield", False):
            return True
        scope = getattr(scope, "_parent_scope", None)
    return False


def _look_later(task: Task[Any]) -> None:
    """Look at `task` again after its next step."""
    waits_for: Any = getattr(task, "_fut_waiter", None)
    if waits_for is None:
        task.get_loop().call_soon(_look, task)
    else:
        # callbacks run in the order in which they were added, and the first one takes the task's step
        waits_for.add_done_callback(lambda _: _look(task))


def _look(task: Task[Any]) -> None:
    if is_shielded(task) and not task.done():
        _look_later(task)
    else:
        _pending.discard(task)
        task.cancel()
