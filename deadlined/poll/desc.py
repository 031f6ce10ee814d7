"""A descriptor's two halves, each with a deadline, a timer, a generation and one waiter: Go's pollDesc.

Facts      A read and a write on one descriptor wait apart and end apart. A deadline is absolute and sticky: once it
           has passed, every operation fails until it is moved (golang.org/pkg/net, Conn.SetDeadline).
Hazard     Readiness, expiry, a moved deadline and a close can all fall between the moment a task is woken and the
           moment it runs. Taking any of them for another loses data, or fails an operation whose deadline was moved
           away.
Answer     Being woken says nothing; a task looks again. Before parking, closed beats expired beats ready. After a
           wake, readiness that has come beats expiry, and if nothing is the matter any more it parks again.
Cost       Moving a deadline later is a store and a bump of the generation, no queue touched; compiled it takes about a
           third of the interpreted time (`python -m loadtest bench reset` measures it).

Go writes everything twice, for r and for w; here it is written once, for a half. Go joins both timers while the
deadlines are equal; here each half keeps its own, because with lazy extension the second timer costs one store, and
joining would cost a comparison on every move.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ..timers.timer import INF, Timer

if TYPE_CHECKING:
    from .poller import Poller

# What a look at a half says. OK is the only good news; PARKED means that the waiter must sleep.
OK: Final = 0
CLOSED: Final = 1
EXPIRED: Final = 2
NOT_POLLABLE: Final = 3
PARKED: Final = 4


class Half(Timer):
    """The read or the write side of a descriptor: the timer of its deadline, and what waits there for it.

    As a timer it is pending exactly while a deadline lies ahead; its `seq` is bumped on every change and at close.
    """

    __slots__ = (
        "closed",
        "drained",
        "eof_or_urgent_seen",
        "event_error",
        "expired",
        "missed",
        "poller",
        "ready",
        "waiter",
    )  # fmt: skip

    def __init__(self, poller: Poller) -> None:
        super().__init__(_expire, self)
        self.poller: Poller = poller
        self.expired: bool = False
        # the deadline that expired, only meaningful while `expired`
        self.missed: float = INF
        self.closed: bool = False
        # an edge that nobody has consumed yet; never set by a deadline or a close
        self.ready: bool = False
        self.event_error: bool = False
        # the kernel has nothing for us until the next edge, so that one need not even ask
        self.drained: bool = False
        # behind what was read there may be something that makes no edge a second time, the peer's end or what follows
        # urgent data: from now on one must always ask
        self.eof_or_urgent_seen: bool = False
        # whoever sleeps here, an opaque token that the poller's `wake` understands
        self.waiter: Any = None

    @property
    def deadline(self) -> float:
        """The deadline as it was last set, also after it has passed; `inf` if there is none."""
        return self.missed if self.expired else self.when

    def set_deadline(self, when: float) -> None:
        """Let every pending and future operation of this half fail at `when`, absolute seconds on the poller's clock.

        `inf` removes the deadline. In the past it expires at once and wakes the waiter: that is how one cancels a
        read. NaN is a ValueError. On a closed half nothing happens. Later than the one before: O(1), one store.
        """
        if self.key <= when < INF and self.when < INF:
            self.seq += 1
            self.when = when
        else:
            self._move_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """`set_deadline(now + seconds)`, with the clock read here. At or below 0 it expires at once; NaN is a
        ValueError."""
        # both written out: interpreted, the calls would take longer than what they do
        clock = self.poller.clock
        when = (perf_counter() + clock.offset if clock.steady else clock.read()) + seconds
        if self.key <= when < INF and self.when < INF:
            self.seq += 1
            self.when = when
        else:
            self._move_deadline(when)

    def check(self) -> int:
        """CLOSED, EXPIRED or NOT_POLLABLE, in this order of precedence, else OK."""
        if self.closed:
            return CLOSED
        if self.expired:
            return EXPIRED
        return NOT_POLLABLE if self.event_error else OK

    def reset(self) -> int:
        """Begin an operation: `check`, and if all is well forget old readiness, because the operation is tried now."""
        state = self.check()
        if state == OK:
            self.ready = False
        return state

    def drain(self) -> None:
        """Note a short read: the kernel's buffer is empty until the next edge. No effect once `eof_or_urgent_seen`."""
        self.drained = not self.eof_or_urgent_seen

    def park(self, waiter: Any) -> int:
        """After an operation would have blocked: PARKED if `waiter` must sleep, else why it need not.

        RuntimeError if another waiter sleeps here: the layer above lets one in at a time.
        """
        state = self.check()
        if state != OK:
            return state
        if self.ready:
            self.ready = False
            return OK
        if self.waiter is not None:
            raise RuntimeError("double wait: this half of the descriptor has a waiter already")
        self.waiter = waiter
        return PARKED

    def resume(self, waiter: Any) -> int:
        """After a wake: OK to try again, the reason to fail, or PARKED again because the reason has gone away."""
        if self.ready and not self.closed:
            self.ready = False
            return OK
        return self.park(waiter)

    def unpark(self) -> None:
        """The waiter was cancelled and sleeps no longer."""
        self.waiter = None

    def unblock(self, io_ready: bool) -> None:
        """Wake the waiter, if there is one. Only readiness is remembered if there is none."""
        if io_ready:
            self.ready = True
            self.drained = False
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.poller.wake(waiter)

    def close(self) -> None:
        """Fail everything from now on, and drop what a stopped timer's entry would keep alive."""
        self.closed = True
        self.poller.set_timer(self, INF)
        self.seq += 1
        self.arg = None
        self.unblock(False)

    def _move_deadline(self, when: float) -> None:
        """Everything but the lazy extension: earlier, first, cleared, past, or on a closed half."""
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
    """The timer fired; `seq` is the generation at which it was taken from its queue."""
    poller = half.poller
    if seq != half.seq:
        poller.stale += 1
        return
    poller.expired(lateness)
    half._expire_at(half.due)


class PollDesc:
    """One open descriptor. Hold it, do not inherit from it; `Poller.open` makes it and `Poller.close` ends it."""

    __slots__ = ("fd", "read", "write")

    def __init__(self, fd: int, poller: Poller) -> None:
        self.fd: int = fd
        self.read: Half = Half(poller)
        self.write: Half = Half(poller)

    def set_deadline(self, when: float) -> None:
        """`Half.set_deadline` for both directions."""
        self.read.set_deadline(when)
        self.write.set_deadline(when)

    def set_timeout(self, seconds: float) -> None:
        """`Half.set_timeout` for both directions, to one time."""
        self.set_deadline(self.read.poller.clock.now() + seconds)

    def evict(self) -> None:
        """Fail both halves and wake their waiters, reader first. The descriptor itself stays open."""
        self.read.close()
        self.write.close()
