"""The host: the pump that polls in a run of trio, and how its tasks sleep and wake."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("deadlined needs a POSIX system (epoll or kqueue); on Windows, run it inside WSL or a container")

from trio.lowlevel import checkpoint

from .context import InCopy, TaskContext
from .parking import Bed, Parking, Sleeper, Turn, give_way
from .pump import Pump, RuntimeStatistics, call_soon, current_pump, statistics
from .steps import looking
from .waiter import Waiter

__all__ = [
    "Bed",
    "InCopy",
    "Parking",
    "Pump",
    "RuntimeStatistics",
    "Sleeper",
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
