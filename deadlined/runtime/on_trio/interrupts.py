"""Protection from Ctrl-C of what must not be left halfway.

Facts      Ctrl-C may interrupt a user's task between any two bytecodes, except in functions that trio protects.
Hazard     A queue that was left halfway loses timers; a task that is registered twice ends the run.
Answer     The functions that change queues are protected. Compiled, they have no bytecode and cannot be interrupted.
"""

from __future__ import annotations

import types

from trio.lowlevel import enable_ki_protection

from ...poll import Half, Poller
from ...timers import Timers
from .context import RunInContextCopy, run_to_first_trap, to_the_end
from .group import TrioGroup
from .host import TrioHost
from .parking import TaskParker, TrioParking, TrioTurn, YieldShielded, wake
from .suspension import SuspendHook
from .waiter import TrioWaiter


def protect_from_interrupts() -> None:
    """Protect the functions of the floors below and of this package. Idempotent."""
    for function in (
        TrioParking.__await__,
        TaskParker.__await__,
        YieldShielded.__await__,
        TrioTurn.__await__,
        RunInContextCopy.__await__,
        run_to_first_trap,
        to_the_end,
        SuspendHook.__await__,
        wake,
        TrioWaiter.park,
        TrioGroup.__aenter__,
        TrioGroup.__aexit__,
        TrioHost.kick,
        Half.set_deadline,
        Half.set_timeout,
        Half.unblock,
        Half.close,
        Poller.open,
        Poller.close,
        Timers.modify,
        Timers.stop,
    ):
        if isinstance(function, types.FunctionType):
            enable_ki_protection(function)
