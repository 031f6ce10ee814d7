"""Call a hook before each suspension of a task.

Facts      A task suspends when its coroutine yields a trap to the host's loop; every `await` on the way passes it on.
           By then the task has registered itself with what will wake it.
Hazard     A hook around a single `await` sees its end as a StopIteration, which costs thousands of instructions where
           awaiting costs some hundred. An exception between the trap and the suspension, of the hook or by Ctrl-C, lets
           the task run on while it is still registered: it is woken later while it does not sleep, which ends the run.
Answer     The hook is put around the task's whole coroutine. The driver is protected from Ctrl-C and logs what the hook
           raises; the task beneath it is as interruptible as it was. This module is interpreted: around a compiled
           coroutine trio would put a frame of its own.
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

# trio sets `Task.custom_sleep_data` to None when it schedules the task
_ASLEEP: Final = object()


async def with_suspend_hook(task: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> None:
    """Run the coroutine `task` and call `before_suspend()` before each of its suspensions. The hook must not raise; an
    Exception of it is logged, and the task suspends."""
    try:
        await _drive(interruptible(task), before_suspend)
    finally:
        # Ctrl-C may have come before its first step
        task.close()


@disable_ki_protection
async def interruptible(awaitable: Awaitable[None]) -> None:
    """Await beneath a frame that is protected from Ctrl-C, without being protected."""
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
