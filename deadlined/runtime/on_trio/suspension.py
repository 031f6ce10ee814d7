"""Drive a task, and call a hook before each of its suspensions.

Facts      A task suspends when its coroutine yields a trap to the host's loop; every `await` on the way passes it on.
           By then the task has registered itself with what will wake it.
Hazard     A hook around each single `await` would end it by a StopIteration: thousands of instructions where an await
           takes some hundred. If the hook or Ctrl-C raises between the trap and the suspension, the task runs on while
           it is still registered: it is woken later while it does not sleep, which ends the run. The hook may itself
           wake the task. Trio, which gets the trap afterwards, would take its abort function although the task is
           scheduled, and a cancellation would schedule it a second time, which ends the run as well.
Answer     The hook is put around the task's whole coroutine. It is protected from Ctrl-C, as is this driver, and what
           it raises is logged; the task beneath is as interruptible as it was. If the hook has woken the task, trio
           gets a trap that cannot be aborted.
Cost       Two calls per suspension.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from trio.lowlevel import current_task

from ...timers import COMPILED
from .interruptible import call_hook, interruptible
from .parking import UNABORTABLE

# names of this module, which compiled code finds faster than another's
_COMPILED: Final = COMPILED
_UNABORTABLE: Final = UNABORTABLE
_call_hook: Final = call_hook

# a mark in `Task.custom_sleep_data`, which trio sets to None when it schedules the task
_ASLEEP: Final = object()


class SuspendHook:
    """`await SuspendHook(coroutine, before_suspend)` runs the coroutine and calls `before_suspend()` before each of its
    suspensions. The hook must not raise; an Exception that it raises is logged, and the task suspends all the same.

    `runs` is True while the coroutine or the hook runs, and False while it is suspended, before and after.
    """

    __slots__ = ("_before_suspend", "_coroutine", "runs")

    def __init__(self, coroutine: Coroutine[Any, Any, None], before_suspend: Callable[[], object]) -> None:
        self._coroutine: Any = coroutine
        self._before_suspend: Any = before_suspend
        self.runs: bool = False

    def close(self) -> None:
        """Close the coroutine, if it was not awaited, and forget it."""
        self._coroutine.close()
        self._coroutine = self._before_suspend = None

    def __await__(self) -> Generator[Any, Any, None]:
        this: Any = current_task()
        # interpreted, this frame is protected from Ctrl-C
        steps = self._coroutine if _COMPILED else interruptible(self._coroutine)
        self.runs = True
        try:
            trap = steps.send(None)
            while True:
                if this.custom_sleep_data is None:
                    this.custom_sleep_data = _ASLEEP
                _call_hook(self._before_suspend)
                if this.custom_sleep_data is None:
                    # the hook has woken the task: the trap's own abort function would schedule it again
                    trap = _UNABORTABLE
                self.runs = False
                try:
                    outcome = yield trap
                except BaseException as error:
                    self.runs = True
                    trap = steps.throw(error)
                else:
                    self.runs = True
                    try:
                        trap = steps.send(outcome)
                    finally:
                        # the name would keep an error, and through the error's frames this one: a cycle
                        del outcome
        except StopIteration:
            return
        finally:
            self.runs = False
