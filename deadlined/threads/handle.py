"""What `after_func` and `every` return: one call that was asked for, or a row of them, to be stopped or reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..timers import Timer
from .process import here

if TYPE_CHECKING:
    from .bucket import Bucket


class TimerHandle:
    """A call that was asked for. `TimerThread.after_func` and `every` make it; any thread may stop or reset it.

    The underscored fields are private to the room; the lock of the bucket that it is armed in guards them.
    """

    __slots__ = ("__weakref__", "_args", "_armed", "_bucket", "_fn", "_period", "_process", "_timer")

    def __init__(self, bucket: Bucket, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._bucket = bucket
        self._fn = fn
        self._args = args
        self._period = 0.0
        # True until it is stopped or its only call is claimed; and the process in which that was written
        self._armed = False
        self._process = here.forks
        # Refers back only while armed: an idle handle is freed with its last reference, and a zombie keeps no argument.
        self._timer = Timer(collect)

    @property
    def pending(self) -> bool:
        """True while a call is still to be begun."""
        return self._armed and self._process == here.forks and not home(self).closed

    def stop(self) -> bool:
        """True: the function was not called and will not be (of `every`: not again). False: it was or is being called,
        was stopped before, its TimerThread was closed, or the timer belongs to the process that forked this one.

        Does not wait for a call that is running.
        """
        # idle needs no lock, so that finalisers of what has fired may stop it
        while self._armed and self._process == here.forks:
            bucket = self._bucket
            with bucket.lock:
                if bucket.heir is None:
                    return bucket.disarm(self)
                self._bucket = bucket.heir
        return False

    def reset(self, seconds: float) -> bool:
        """Ask for the call `seconds` from now instead, or once more; return whether it was pending.

        False means that the function was or is being called, or the timer was stopped: what is asked for now comes in
        addition. Of `every`, `seconds` is the new period. RuntimeError once the TimerThread is closed.
        """
        period = valid_period(seconds) if self._period else 0.0
        delay = valid_delay(seconds)
        while True:
            bucket = self._bucket
            with bucket.lock:
                if bucket.heir is None:
                    return bucket.start(self, delay, period)
                self._bucket = bucket.heir

    def __repr__(self) -> str:
        return f"<TimerHandle {'pending' if self.pending else 'idle'} {self._fn!r}>"


def collect(handle: TimerHandle, seq: int, lateness: float) -> None:
    """The callback of every timer: note that it is due, for `Timers.check` runs under the lock."""
    home(handle).collect(handle._timer, seq)


def home(handle: TimerHandle) -> Bucket:
    """The bucket that a handle belongs to now."""
    bucket = handle._bucket
    while bucket.heir is not None:
        bucket = bucket.heir
    return bucket


def valid_delay(seconds: float) -> float:
    """The past is now; NaN is a ValueError."""
    if seconds != seconds:
        raise ValueError("seconds must not be NaN")
    return max(seconds, 0.0)


def valid_period(seconds: float) -> float:
    """More than 0 seconds, or a ValueError."""
    if not seconds > 0.0:
        raise ValueError(f"period must be > 0 seconds, not {seconds!r}")
    return seconds
