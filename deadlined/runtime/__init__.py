"""The host: the pump that polls in a run of trio, and how tasks sleep and wake."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("deadlined needs a POSIX system (epoll or kqueue); on Windows, run it inside WSL or a container")

from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from .context import RunInContextCopy, TaskContext
from .guard import AbandonedGenerators, Generators, TaskGuard
from .parking import Parking, ReadyCallback, ScheduledCheckpoint, TaskParker, yield_shielded
from .pump import Pump, RuntimeStatistics, call_soon, current_pump, statistics
from .suspend_hook import with_suspend_hook
from .waiter import Waiter

__all__ = [
    "AbandonedGenerators",
    "Generators",
    "Parking",
    "Pump",
    "ReadyCallback",
    "RunInContextCopy",
    "RuntimeStatistics",
    "ScheduledCheckpoint",
    "TaskContext",
    "TaskGuard",
    "TaskParker",
    "Waiter",
    "call_soon",
    "checkpoint",
    "checkpoint_if_cancelled",
    "current_pump",
    "statistics",
    "with_suspend_hook",
    "yield_shielded",
]
