"""An event that tasks of either event loop wait for, also for a limited time."""

from __future__ import annotations

import math
from typing import Final

from ..timers import Timer
from .current import current_host
from .host import Waiter

_TIMED_OUT: Final = -1.0
_SET: Final = 1.0


class Event:
    """A flag that is set once. For the tasks and callbacks of one event loop."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        # in the order of their arrival
        self._waiters: dict[Waiter, None] = {}

    def is_set(self) -> bool:
        """Return True once `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Wake all tasks that wait. Idempotent."""
        self._is_set = True
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake(_SET)

    async def wait(self) -> None:
        """Sleep until the event is set. A checkpoint in any case."""
        await self.wait_until(math.inf)

    async def wait_until(self, when: float) -> bool:
        """Sleep until the event is set, or until `when`, absolute seconds. Return whether it is set. A checkpoint."""
        host = current_host()
        if self._is_set or when <= host.clock.now():
            await host.checkpoint()
            return self._is_set
        waiter = host.waiter()
        timer = Timer(self._time_out, waiter)
        try:
            self._waiters[waiter] = None
            if when < math.inf:
                host.set_timer(timer, when)
            await waiter.park(lambda: self._forget(waiter))
        finally:
            # Ctrl-C may have come before the task has parked
            self._forget(waiter)
            timer.arg = None
            host.set_timer(timer, math.inf)
        return self._is_set

    def _time_out(self, waiter: Waiter, seq: int, lateness: float) -> None:
        if waiter in self._waiters:
            self._forget(waiter)
            waiter.wake(_TIMED_OUT)

    def _forget(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
