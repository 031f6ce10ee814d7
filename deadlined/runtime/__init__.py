"""The host: the event loop that runs us, trio's or asyncio's, and the pump that polls in it."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("deadlined needs a POSIX system (epoll or kqueue); on Windows, run it inside WSL or a container")

from trio.lowlevel import enable_ki_protection as protected_from_interrupts

from .current import (
    call_soon,
    cancelled_tasks,
    checkpoint,
    current_host,
    current_time,
    event_loop_runs,
    is_loops_cancellation,
    open_contained_tasks,
    open_group,
    statistics,
)
from .event import Event
from .host import Group, Host, Parking, ReadyCallback, RuntimeStatistics, Turn, Waiter
from .loops import LOOPS, require_loop, run
from .on_trio.interruptible import uninterrupted
from .on_trio.interrupts import protect_from_interrupts
from .tasks import ContainedTask, ContainedTasks
from .within import within

__all__ = [
    "LOOPS",
    "ContainedTask",
    "ContainedTasks",
    "Event",
    "Group",
    "Host",
    "Parking",
    "ReadyCallback",
    "RuntimeStatistics",
    "Turn",
    "Waiter",
    "call_soon",
    "cancelled_tasks",
    "checkpoint",
    "current_host",
    "current_time",
    "event_loop_runs",
    "is_loops_cancellation",
    "open_contained_tasks",
    "open_group",
    "protected_from_interrupts",
    "require_loop",
    "run",
    "statistics",
    "uninterrupted",
    "within",
]

protect_from_interrupts()
