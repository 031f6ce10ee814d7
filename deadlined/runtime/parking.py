"""How a task of trio sleeps until a half of a descriptor has news.

Facts      `wait_task_rescheduled` sleeps until exactly one of two things: somebody reschedules the task, or the abort
           function says that nobody will.
Hazard     Ctrl-C is a third: trio may raise it in whatever Python frame runs, between parking and sleeping, too. A
           waiter that is left behind would be rescheduled while it does not sleep, which ends the whole run.
Answer     Compiled, nothing but trio's own frames can be interrupted, and what comes out of them unparks. Interpreted,
           this function is protected as a whole.
Cost       A closure for each sleep.
"""

from __future__ import annotations

from typing import Any

from trio.lowlevel import Abort, current_task, wait_task_rescheduled

from ..poll import PARKED, Half


async def wait(half: Half) -> int:
    """Sleep until `half` is ready, expired or closed, and say which (the constants of `poll`).

    A checkpoint if it sleeps, none if it need not. Cancellation passes through and leaves the half as it was.
    """
    task = current_task()

    def abort(_: Any) -> Abort:
        half.unpark()
        return Abort.SUCCEEDED

    outcome = half.park(task)
    while outcome == PARKED:
        try:
            await wait_task_rescheduled(abort)
        except BaseException:
            half.unpark()
            raise
        outcome = half.resume(task)
    return outcome
