"""TimerHandle: one call that was asked for, or a series of them, to be stopped or reset.

Facts      A finaliser runs wherever Python collects garbage: also in a thread that holds a bucket's lock, in the middle
           of a change.
Hazard     A `stop` in it that waits for this lock waits for ever; one that enters finds the heap half changed. With two
           buckets, two such threads wait for each other.
Answer     A pending handle has a ticket, a list of one item. The item is removed by a stop, by a reset or by the claim
           of the call, and removing it is atomic: it decides which of them wins, with no lock. Only the timer's entry
           in the heap needs the lock, and if that is not free, the bucket's thread removes the entry.
Cost       A list for each time that a handle is armed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..timers import Timer
from .process import here

if TYPE_CHECKING:
    from .bucket import Bucket

# one item while the call is to be made, empty afterwards
Ticket = list[None]


class TimerHandle:
    """A call that was asked for. `TimerThread.after_func` and `every` make it; any thread may stop or reset it.

    The underscored fields are private to the package; the lock of the bucket guards them, but for the ticket's item.
    """

    __slots__ = ("__weakref__", "_args", "_bucket", "_fn", "_period", "_process", "_ticket", "_timer")

    def __init__(self, bucket: Bucket, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._bucket = bucket
        self._fn = fn
        self._args = args
        self._period = 0.0
        # replaced whenever it is armed; and the process in which that was done
        self._ticket: Ticket = []
        self._process = here.forks
        # refers back only while armed: an idle handle is freed with its last reference, and a zombie keeps no argument
        self._timer = Timer(collect)

    @property
    def pending(self) -> bool:
        """True while a call is still to be begun."""
        return bool(self._ticket) and self._process == here.forks and not is_closed(self)

    def stop(self) -> bool:
        """Cancel the call. True: the function was not called and will not be (of `every`: not again). False: it was or
        is being called, was stopped before, its TimerThread was closed, or the timer belongs to the parent process.

        Does not wait for a call that is running, nor for a lock: finalisers and signal handlers may call it.
        """
        while True:
            ticket = self._ticket
            if self._process != here.forks or is_closed(self):
                return False
            bucket = home(self)
            if take_item(ticket):
                bucket.remove(self, ticket)
                return True
            if ticket is self._ticket:
                return False

    def reset(self, seconds: float) -> bool:
        """Ask for the call `seconds` from now instead, or once more; return whether it was pending.

        False means that the function was or is being called, or the timer was stopped: this call comes in addition. Of
        `every`, `seconds` is the new period. RuntimeError once the TimerThread is closed. Not for finalisers.
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
    """Note that a timer is due: the callback of every timer, called under the lock."""
    home(handle).collect(handle._timer, seq)


def take_item(ticket: Ticket) -> bool:
    """Take the item of a ticket, atomically. False if it was taken before."""
    try:
        ticket.pop()
    except IndexError:
        return False
    return True


def home(handle: TimerHandle) -> Bucket:
    """Return the bucket that a handle belongs to now."""
    bucket = handle._bucket
    while bucket.heir is not None:
        bucket = bucket.heir
    return bucket


def is_closed(handle: TimerHandle) -> bool:
    """Return True if no bucket has the timers of a handle any more."""
    bucket = home(handle)
    while bucket.closed:
        # one that is taken over at this moment gets its heir first
        if bucket.heir is None:
            return True
        bucket = home(handle)
    return False


def valid_delay(seconds: float) -> float:
    """Return `seconds`, at least 0. ValueError for NaN."""
    if seconds != seconds:
        raise ValueError("seconds must not be NaN")
    return max(seconds, 0.0)


def valid_period(seconds: float) -> float:
    """Return `seconds`. ValueError unless it is greater than 0."""
    if not seconds > 0.0:
        raise ValueError(f"period must be > 0 seconds, not {seconds!r}")
    return seconds
