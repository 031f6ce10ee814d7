"""One sleep of one task, for code that keeps its own list of sleeping tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trio.lowlevel import Abort, current_task, enable_ki_protection, wait_task_rescheduled

from .parking import wake


class Waiter:
    """One sleep of the task that makes it. Used once."""

    __slots__ = ("_task", "_value")

    def __init__(self) -> None:
        self._task = current_task()
        self._value = math.inf

    @enable_ki_protection
    async def park(self, on_cancel: Callable[[], object]) -> float:
        """Sleep until `wake(value)`, and return the value. A checkpoint.

        If a cancellation comes before the wake, `on_cancel` is called at once. It must prevent any later call of `wake`
        and must not raise. After the wake the value is returned even if the task was cancelled meanwhile.
        """

        def abort(_: Any) -> Abort:
            on_cancel()
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return self._value

    def wake(self, value: float) -> None:
        """Schedule the task. Call it once, and only while the task is parked."""
        self._value = value
        wake(self._task)
