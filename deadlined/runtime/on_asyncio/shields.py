"""Cancelling a task of asyncio that anyio shields.

Facts      asyncio knows nothing of anyio's shields: `Task.cancel` breaks through them.
           `anyio.to_thread` shields the wait for its thread; the plain functions of FastAPI and Starlette run there.
Hazard     A task that is cancelled in that wait cleans up while its thread goes on: it rolls back a database session,
           and the thread commits the rest of its changes in the next transaction. Nor does anyio's limit count the
           thread any more.
Answer     A task in a shield is cancelled when it has left it: it is checked again whenever what it waits for has
           ended. So it is on trio. Another task may lift the shield meanwhile, so it is also checked from time to
           time. The scopes are found by private names of anyio; if it has renamed them, the task is cancelled at once.
           A shield in a child task, by a TaskGroup of asyncio's for example, does not hold: a task cannot be asked for
           its children, to which asyncio passes the cancellation on.
Cost       Two look-ups per cancellation. A timer while a task that is to be cancelled is in a shield.
"""

from __future__ import annotations

import math
import sys
from asyncio import Task
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

# seconds after which a task whose shield another one has lifted is cancelled at the latest
_CHECK_EVERY: Final = 0.25

# tasks that are to be cancelled when they have left their shields, and the functions that do it
_pending: WeakKeyDictionary[Task[Any], Callable[[Task[Any]], object]] = WeakKeyDictionary()

# when tasks were cancelled last
_cancelled_at: WeakKeyDictionary[Task[Any], float] = WeakKeyDictionary()


def cancel(task: Task[Any]) -> None:
    """Cancel `task`, as soon as no cancel scope of anyio shields it. Until then further calls have no effect."""
    when_unshielded(task, _cancel_now)


def when_unshielded(task: Task[Any], function: Callable[[Task[Any]], object]) -> None:
    """Call `function(task)`, which cancels it, as soon as no cancel scope of anyio shields `task`, or it has ended.
    Until then further calls have no effect."""
    if not is_shielded(task):
        # a check that is still due must not cancel it again, which would interrupt what it does to clean up
        _pending.pop(task, None)
        function(task)
    elif task not in _pending:
        _pending[task] = function
        _check_after_step(task)
        _check_later(task)


def cancelled_at(task: Task[Any]) -> float:
    """Return when `cancel` has cancelled `task` last, by its loop's clock: now while a shield holds that up, -inf if
    never."""
    return task.get_loop().time() if task in _pending else _cancelled_at.get(task, -math.inf)


def is_shielded(task: Task[Any]) -> bool:
    """Return True if the cancel scope of anyio in which `task` is, or one around it, is shielded."""
    if task.done():
        # it may not have left its scopes: an async generator that it has not closed is still in them
        return False
    backend = sys.modules.get("anyio._backends._asyncio")
    state: Any = getattr(backend, "_task_states", {}).get(task)
    scope: Any = getattr(state, "cancel_scope", None)
    while scope is not None:
        if getattr(scope, "shield", False):
            return True
        scope = getattr(scope, "_parent_scope", None)
    return False


def call_after_step(task: Task[Any], function: Callable[[], object]) -> None:
    """Call `function` after the next step of `task`, in the same turn of the loop. `task` must not be done."""
    waits_for: Any = getattr(task, "_fut_waiter", None)
    if waits_for is None:
        task.get_loop().call_soon(function)
    else:
        # callbacks run in the order in which they were added: the task's own, added before, has taken its step then
        waits_for.add_done_callback(lambda _: function())


def _check_after_step(task: Task[Any]) -> None:
    """Check `task` after each of its steps while it is pending."""
    call_after_step(task, partial(_on_step, task))


def _on_step(task: Task[Any]) -> None:
    if _cancel_if_unshielded(task):
        _check_after_step(task)


def _check_later(task: Task[Any]) -> None:
    """Check `task` every _CHECK_EVERY seconds while it is pending."""
    task.get_loop().call_later(_CHECK_EVERY, _on_timer, task)


def _on_timer(task: Task[Any]) -> None:
    if _cancel_if_unshielded(task):
        _check_later(task)


def _cancel_if_unshielded(task: Task[Any]) -> bool:
    """Cancel `task` if it is pending and no scope shields it any more. Return True if it is pending still."""
    function = _pending.get(task)
    if function is not None and not is_shielded(task):
        del _pending[task]
        function(task)
    return task in _pending


def _cancel_now(task: Task[Any]) -> None:
    _cancelled_at[task] = task.get_loop().time()
    task.cancel()
