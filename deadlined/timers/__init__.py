"""Timer facilities: pure data structures, in which time is an argument.

`Timer` is Go's runtime.timer: a callback wanted at a time. `Timers` holds many of them in one queue and runs what is
due. `COMPILED` says whether this build of the package runs as machine code or as the same files interpreted.
"""

from __future__ import annotations

from . import facility as _facility
from .facility import Timers, TimersStatistics, next_tick
from .scheme import Scheme
from .schemes import SCHEMES, check_queue
from .timer import Timer

COMPILED: bool = not (_facility.__file__ or "").endswith(".py")

__all__ = ["COMPILED", "SCHEMES", "Scheme", "Timer", "Timers", "TimersStatistics", "check_queue", "next_tick"]
