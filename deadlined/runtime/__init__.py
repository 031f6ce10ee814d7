"""The host: the pump that polls in a run of trio, and how its tasks sleep and wake."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("deadlined needs a POSIX system (epoll or kqueue); on Windows, run it inside WSL or a container")

from trio.lowlevel import checkpoint

from .context import TaskContext
from .parking import Bed, Parking, Turn, give_way
from .pump import Pump, RuntimeStatistics, call_soon, current_pump, statistics
from .steps import looking
from .waiter import Waiter

__all__ = [
    "Bed",
    "Parking",
    "Pump",
    "RuntimeStatistics",
    "TaskContext",
    "Turn",
    "Waiter",
    "call_soon",
    "checkpoint",
    "current_pump",
    "give_way",
    "looking",
    "statistics",
]
