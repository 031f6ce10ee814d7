"""The timers of asyncio's loop itself, and a sleep by one.

Facts      A loop's timer calls a function, in a turn that comes no earlier than the timer's time on the loop's clock.
           uvloop caches that clock and counts in milliseconds.
Hazard     By a cached clock a sleep would end early. An alarm that lets the poller run, which ends a sleep of our own
           timer queue, takes two callbacks and a second queue where the loop needs one of each.
Answer     Times are on the host's clock, and a function that is called too early sets the alarm again. A task that
           only sleeps has a timer of the loop, so that it costs what `asyncio.sleep` costs.
Cost       A sleep is not in the timer queue of the poller, and its statistics do not count it.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Final

from ...poll import Clock

# seconds after which an alarm rings at the latest; it is set again if nothing is due then
_FARTHEST: Final = 1e6


class Alarms:
    """The timers of one event loop, on its host's clock. They may ring early."""

    __slots__ = ("_context", "_rounds", "clock", "loop")

    def __init__(self, loop: AbstractEventLoop, clock: Clock) -> None:
        self.loop: Final[Any] = loop
        self.clock: Final = clock
        # callbacks run in it: they must not keep the variables of the code that has set the alarm
        self._context: Final = Context()
        # uvloop counts in whole milliseconds
        self._rounds: Final = not isinstance(loop, asyncio.BaseEventLoop)

    def set(self, when: float, function: Callable[[Any], object], argument: object) -> Any:
        """Have `function(argument)` called at `when`, absolute seconds, or early; `inf` is allowed. Return the loop's
        handle, to cancel it."""
        delay = min(max(when - self.clock.now(), 0.0), _FARTHEST)
        if self._rounds:
            delay = math.ceil(delay * 1000.0) / 1000.0
        return self.loop.call_later(delay, function, argument, context=self._context)


class LoopSleep:
    """`await LoopSleep(alarms, when)` sleeps until `when`, absolute seconds, and never ends early; `inf` sleeps until
    cancelled. A checkpoint."""

    __slots__ = ("_alarms", "_when")

    def __init__(self, alarms: Alarms, when: float) -> None:
        self._alarms = alarms
        self._when = when

    def __await__(self) -> Generator[Any, Any, None]:
        alarms, when = self._alarms, self._when
        while True:
            future = alarms.loop.create_future()
            alarm = alarms.set(when, _wake, future)
            try:
                future._asyncio_future_blocking = True
                yield future
                future.result()
            except BaseException:
                alarm.cancel()
                raise
            if alarms.clock.now() >= when:
                return


def _wake(future: Any) -> None:
    # a task that was cancelled cancels the alarm only when it runs
    if not future.done():
        future.set_result(None)
