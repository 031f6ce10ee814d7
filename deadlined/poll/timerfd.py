"""A descriptor that becomes readable at a time: Linux's timerfd, for wakes that are finer than a poll's milliseconds.

Facts      `epoll_wait` counts in milliseconds and Python rounds up, so a wake by its timeout is up to one late. A
           timerfd fires by the kernel's high-resolution timers and is polled like any other descriptor.
Hazard     A relative time that is rounded down fires early; a time of zero disarms.
Answer     Nanoseconds are rounded up, and never zero.
Cost       A system call whenever the sleeper's wake time changes, through ctypes: Python's own is new in
           3.13.
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


class _Times(ctypes.Structure):
    """struct itimerspec: the period, which is not used, and the time."""

    _fields_ = (
        ("period_seconds", ctypes.c_long),
        ("period_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class TimerFd:
    """One timer of the kernel. Never read it: an edge comes each time it fires."""

    def __init__(self) -> None:
        """OSError if there is no timerfd here."""
        if not sys.platform.startswith("linux"):
            raise OSError("there is no timerfd on this system; it is Linux's")
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._checked(self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def arm(self, seconds: float) -> None:
        """Fire in so many seconds, never before; at or below 0 at once; `inf` not at all."""
        times = _Times()
        if seconds < INF:
            nanoseconds = max(math.ceil(seconds * _NANO), 1) if seconds > 0.0 else 1
            times.seconds, times.nanoseconds = divmod(nanoseconds, _NANO)
        self._checked(self._libc.timerfd_settime(self._fd, 0, ctypes.byref(times), None))

    def close(self) -> None:
        """Give it back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd: {os.strerror(number)}")
        return result
