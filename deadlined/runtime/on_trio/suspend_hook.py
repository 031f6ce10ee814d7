"""Call a hook before each suspension of a task.

Facts      A task suspends when its coroutine yields a trap to the host's loop; every `await` on the way passes it on.
           By then the task has registered itself with what will wake it.
Hazard     A hook around each single `await` would end it by a StopIteration: thousands of instructions where an await
           takes some hundred. If the hook or Ctrl-C raises between the trap and the suspension, the task runs on while
           it is still registered: it is woken later while it does not sleep, which ends the run. The hook may itself
           wake the task. Trio, which gets the trap afterwards, would take its abort function although the task is
           scheduled, and a cancellation would schedule it a second time, which ends the run as well.
Answer     The hook is put around the task's whole coroutine. The driver is protected from Ctrl-C and logs what the hook
           raises; the task beneath it is as interruptible as it was. If the hook has woken the task, trio gets a trap
           that cannot be aborted. This module is interpreted: around a compiled coroutine trio would put a frame of its
           own.
Cost       One call and one frame per suspension.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final

from trio.lowlevel import current_task, disable_ki_protection, enable_ki_protection

from .parking import UNABORTABLE

_log = logging.getLogger("deadlined.runtime")

# a mark in `Task.custom_sleep_data`, which trio sets to None when it schedules the task
_ASLEEP: Final = object()


async def with_suspend_hook(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> None:
    """Run the coroutine `task` and call `before_suspend()` before each of its suspensions. The hook must not raise; an
    Exception that it raises is logged, and the task suspends all the same."""
    try:
        await _drive(interruptible(task), before_suspend)
    finally:
        # Ctrl-C may have come before its first step
        task.close()


@disable_ki_protection
async def interruptible(awaitable: Awaitable[None]) -> None:
    """Await without protection from Ctrl-C, although the caller is protected."""
    await awaitable


@enable_ki_protection
@coroutine
def _drive(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> Generator[Any, Any, None]:
    this = current_task()
    try:
        trap = task.send(None)
        while True:
            if this.custom_sleep_data is None:
                this.custom_sleep_data = _ASLEEP
            try:
                before_suspend()
            except Exception:
                _log.exception("the hook of a task that suspends has failed")
            if this.custom_sleep_data is None:
                # the hook has woken the task: the trap's own abort function would schedule it again
                trap = UNABORTABLE
            try:
                outcome = yield trap
            except BaseException as error:
                trap = task.throw(error)
            else:
                try:
                    trap = task.send(outcome)
                finally:
                    # the name would keep an error, and through the error's frames this one: a cycle
                    del outcome
    except StopIteration:
        return
