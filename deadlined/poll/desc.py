"""A descriptor's two halves, each with a deadline, a timer, a generation and one waiter: Go's pollDesc.

Facts      A read and a write on one descriptor wait and end independently. A deadline is absolute and sticky: once it
           has passed, every operation fails until it is moved (golang.org/pkg/net, Conn.SetDeadline).
Hazard     Readiness, expiry, a moved deadline and a close can all happen between the moment a task is woken and the
           moment it runs. Confusing them loses data, or fails an operation whose deadline was moved away.
Answer     A wake carries no reason; the task checks the half again. Before parking, closed beats expired beats ready.
           After a wake, readiness beats expiry; if neither holds any more, the task parks again.
Cost       Moving a deadline later is a store and an increment of the generation, without touching the queue. Compiled
           it takes about a third of the interpreted time (`python -m loadtest bench reset` measures it).

Go writes everything twice, for r and for w; here it is written once, for a half. Go joins both timers while the
deadlines are equal; here each half keeps its own, because lazy extension makes the second timer a store, and joining
would add a comparison to every move.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ..timers.timer import INF, Timer

if TYPE_CHECKING:
    from .poller import Poller

# the states of a half. OK: the operation may be tried. PARKED: the waiter must sleep. The others are errors
OK: Final = 0
CLOSED: Final = 1
EXPIRED: Final = 2
NOT_POLLABLE: Final = 3
PARKED: Final = 4

# mypy takes this name as true, and `TYPE_CHECKING and not MYPY` is true only for other type checkers. Behind it stand
# fields of a base class that are declared again, which mypyc would make the garbage collector visit twice
MYPY = False


class Half(Timer):
    """The read or the write side of a descriptor: the timer of its deadline, its readiness and its waiter.

    The timer is pending exactly while a deadline lies ahead. `seq`, its generation, grows with every change and at the
    close.
    """

    __slots__ = (
        "closed",
        "drained",
        "eof_or_urgent_seen",
        "event_error",
        "expired",
        "hangup_seen",
        "missed",
        "poller",
        "ready",
        "waiter",
    )  # fmt: skip

    def __init__(self, poller: Poller) -> None:
        super().__init__(_expire, self)
        if TYPE_CHECKING and not MYPY:
            self.arg: Any
            self.seq: int
            self.when: float
        self.poller: Poller = poller
        self.expired: bool = False
        # the deadline that expired, only meaningful while `expired`
        self.missed: float = INF
        self.closed: bool = False
        # an edge that no operation has consumed yet; never set by a deadline or a close
        self.ready: bool = False
        self.event_error: bool = False
        # the kernel's buffer is empty until the next edge: no need to try
        self.drained: bool = False
        # after the bytes that were read there may be more without a further edge, the peer's end or what follows urgent
        # data: from now on a short read does not show that the buffer is empty
        self.eof_or_urgent_seen: bool = False
        # the peer has ended its side, or the connection is broken; bytes may still be waiting
        self.hangup_seen: bool = False
        # what sleeps here, an opaque token for the poller's `wake`
        self.waiter: Any = None

    @property
    def deadline(self) -> float:
        """The deadline as it was last set, even after it has passed; `inf` if there is none."""
        return self.missed if self.expired else self.when

    def set_deadline(self, when: float) -> None:
        """Make pending and future operations of this half fail at `when`, absolute seconds on the poller's clock.

        `inf` removes the deadline. At or before now it expires at once and wakes the waiter, which cancels a pending
        operation. If the deadline before it has passed too, and a busy loop or a coarse queue has not noticed yet, it
        expires as soon as that is noticed. NaN is a ValueError. On a closed half it does nothing. Moving a deadline
        later is O(1), one store.
        """
        if self.key <= self.when <= when < INF:
            self.seq += 1
            self.when = when
        else:
            self._move_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now. At or below 0 it expires at once; NaN is a ValueError."""
        # `Clock.now` and `set_deadline`, written out: interpreted, the calls would take longer than their bodies
        clock = self.poller.clock
        when = (perf_counter() + clock.offset if clock.steady else clock.read()) + seconds
        if self.key <= when < INF and self.when < INF and seconds > 0.0:
            self.seq += 1
            self.when = when
        else:
            self._move_deadline(when)

    def check(self) -> int:
        """Return CLOSED, EXPIRED or NOT_POLLABLE, in this order of precedence, else OK."""
        if self.closed:
            return CLOSED
        if self.expired:
            return EXPIRED
        return NOT_POLLABLE if self.event_error else OK

    def reset(self) -> int:
        """Begin an operation: `check`, and if OK forget old readiness, because the operation will be tried now."""
        state = self.check()
        if state == OK:
            self.ready = False
        return state

    def drain(self) -> None:
        """Record a short read: the kernel's buffer is empty until the next edge. No effect if `eof_or_urgent_seen`."""
        self.drained = not self.eof_or_urgent_seen

    def found_empty(self) -> None:
        """Record that the kernel was asked and has neither bytes nor an end: its buffer is empty until the next edge,
        whatever was seen before, and readiness from before is over."""
        self.drained = True
        self.ready = False

    def park(self, waiter: Any) -> int:
        """Park `waiter` after an operation that would block. PARKED if it must sleep, else the state that makes the
        sleep needless.

        RuntimeError if another waiter sleeps here: the layer above admits one at a time.
        """
        state = self.check()
        return state if state != OK else self.park_past_deadline(waiter)

    def park_past_deadline(self, waiter: Any) -> int:
        """Do what `park` does, even if the deadline has passed. A waiter that is parked when it passes is woken."""
        if self.closed:
            return CLOSED
        if self.ready:
            self.ready = False
            return OK
        if self.waiter is not None:
            raise RuntimeError("double wait: this half of the descriptor has a waiter already")
        self.waiter = waiter
        return PARKED

    def resume(self, waiter: Any) -> int:
        """Return the state after a wake: OK to try again, an error, or PARKED if the reason of the wake is gone."""
        if self.ready and not self.closed:
            self.ready = False
            return OK
        return self.park(waiter)

    def unpark(self) -> None:
        """Forget the waiter, which was cancelled."""
        self.waiter = None

    def unblock(self, io_ready: bool) -> None:
        """Wake the waiter, if there is one. Readiness is remembered for the next operation; other reasons are not."""
        if io_ready:
            self.ready = True
            self.drained = False
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.poller.wake(waiter)

    def close(self) -> None:
        """Make every operation fail from now on, and wake the waiter. The timer's entry, which may stay in the queue,
        keeps nothing alive."""
        if not self.closed:
            self.poller.resets += self.seq
        self.closed = True
        self.poller.set_timer(self, INF)
        self.seq += 1
        self.arg = None
        self.unblock(False)

    def _move_deadline(self, when: float) -> None:
        """Set a deadline that is no lazy extension: the first, an earlier or past one, none, or on a closed half."""
        if when != when:
            raise ValueError("a deadline must not be NaN; use inf for none")
        if self.closed:
            return
        poller = self.poller
        self.seq += 1
        self.expired = False
        if when <= poller.clock.now():
            poller.set_timer(self, INF)
            self._expire_at(when)
        else:
            poller.set_timer(self, when)

    def _expire_at(self, deadline: float) -> None:
        self.expired = True
        self.missed = deadline
        self.unblock(False)


def _expire(half: Half, seq: int, lateness: float) -> None:
    """Expire the deadline. `seq` is the generation of the half when its timer was taken from the queue; an older one
    means that the deadline was moved since."""
    poller = half.poller
    if seq != half.seq:
        poller.stale += 1
        return
    poller.note_expired(lateness)
    half._expire_at(half.due)


class PollDesc:
    """One open descriptor. Made by `Poller.open` and ended by `Poller.close`; not to be subclassed."""

    __slots__ = ("fd", "read", "write")

    def __init__(self, fd: int, poller: Poller) -> None:
        self.fd: int = fd
        self.read: Half = Half(poller)
        self.write: Half = Half(poller)

    def set_deadline(self, when: float) -> None:
        """Set the deadline of both halves; see `Half.set_deadline`."""
        self.read.set_deadline(when)
        self.write.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """Set the deadline of both halves to the same time; see `Half.set_timeout`."""
        when = self.read.poller.clock.now() + seconds
        if seconds > 0.0:
            self.set_deadline(when)
        else:
            self.read._move_deadline(when)
            self.write._move_deadline(when)

    def evict(self) -> None:
        """Close both halves and wake their waiters, the reader first. The descriptor itself stays open."""
        self.read.close()
        self.write.close()
