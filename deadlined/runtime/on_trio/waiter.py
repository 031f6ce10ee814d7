"""One sleep of one task of trio."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trio.lowlevel import Abort, current_task, wait_task_rescheduled

from ..host import Waiter
from .parking import wake


class TrioWaiter(Waiter):
    """One sleep of the task of trio that makes it."""

    __slots__ = ("_task", "_value")

    def __init__(self) -> None:
        self._task = current_task()
        self._value = math.inf

    async def park(self, on_cancel: Callable[[], object]) -> float:
        def abort(_: Any) -> Abort:
            on_cancel()
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return self._value

    def wake(self, value: float) -> None:
        self._value = value
        wake(self._task)
