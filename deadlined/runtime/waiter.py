"""One sleep of one task, for whoever keeps its own list of sleepers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trio.lowlevel import Abort, current_task, enable_ki_protection, wait_task_rescheduled

from .parking import wake


class Waiter:
    """One task's sleep until somebody wakes it: made by that task, used once. The host's only token for a sleeper."""

    __slots__ = ("_task", "_value")

    def __init__(self) -> None:
        self._task = current_task()
        self._value = math.inf

    @enable_ki_protection
    async def park(self, leave: Callable[[], object]) -> float:
        """Sleep until `wake(value)`, and return the value. A checkpoint.

        If a cancellation comes first, `leave()` sees to it at once that nobody will call `wake` any more; it must not
        raise. Once woken, a task gets its value whatever happens.
        """

        def abort(_: Any) -> Abort:
            leave()
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return self._value

    def wake(self, value: float) -> None:
        """Let the task run, soon. Once, and only while it is parked."""
        self._value = value
        wake(self._task)
