"""Linux's timerfd: a descriptor that becomes readable at a time, for wakes finer than the milliseconds of epoll.

Facts      `epoll_wait` counts in milliseconds and Python rounds up, so a wake by its timeout is up to 1 ms late. A
           timerfd uses the kernel's high-resolution timers and is polled like any other descriptor.
Hazard     A relative time that is rounded down fires early; a time of zero disarms the timer; one that a C long cannot
           hold is an error.
Answer     Nanoseconds are rounded up and never zero, and the time is bounded.
Cost       A system call whenever the wake time changes, made through ctypes: Python has timerfd since 3.13 only.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from typing import Any

from ..timers.timer import INF

_NANO = 1_000_000_000
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_CLOCK_MONOTONIC = 1

# seconds, 63 years: a C long of 32 bits holds no more, and no program runs for so long
_FARTHEST = 2e9


class _Times(ctypes.Structure):
    """C's struct itimerspec: the period, which is not used, and the time."""

    _fields_ = (
        ("period_seconds", ctypes.c_long),
        ("period_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class TimerFd:
    """One timer of the kernel. It need not be read: each firing is an edge."""

    def __init__(self) -> None:
        """Create the timer. OSError on systems other than Linux."""
        if not sys.platform.startswith("linux"):
            raise OSError("there is no timerfd on this system; only Linux has it")
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._checked(self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))

    def fileno(self) -> int:
        """Return the descriptor; -1 once closed."""
        return self._fd

    def arm(self, seconds: float) -> None:
        """Fire after `seconds`, never earlier, but after 63 years; at or below 0 at once; `inf` disarms."""
        times = _Times()
        if seconds < INF:
            nanoseconds = max(math.ceil(min(seconds, _FARTHEST) * _NANO), 1) if seconds > 0.0 else 1
            times.seconds, times.nanoseconds = divmod(nanoseconds, _NANO)
        self._checked(self._libc.timerfd_settime(self._fd, 0, ctypes.byref(times), None))

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd: {os.strerror(number)}")
        return result
