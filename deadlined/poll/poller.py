"""The poller: one port, one timer facility, and the descriptors between them.

Facts      The nearest deadline bounds the sleep, so one wait serves readiness and time alike (Go's netpoll since 1.14).
Hazard     A sleeper that does not hear of an earlier deadline oversleeps; one that is told of every deadline never
           sleeps.
Answer     `sleeping_until` is the time by which the sleeper will wake by itself. It is kicked only when a deadline is
           set before that time. Of a deadline that is removed it hears only where time is virtual and would jump to it;
           where time passes by itself it wakes once in vain, as in Go, which costs less than to tell it.
Cost       One comparison where a deadline is set for the first time or moved earlier; none where it is moved later.

The poller decides who is to be woken and calls `wake`, which must only note it down: a whole batch of events and of
due timers is dealt with before any waiter runs.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..timers.facility import Timers, TimersStatistics
from ..timers.timer import INF, Timer
from .clock import Clock
from .desc import PollDesc
from .port import ERROR, HANGUP, READ, URGENT, WRITE, Port


@dataclass(frozen=True)
class PollerStatistics:
    """`descriptors` open now, `parked` waiters now; totals since the start: `polls`, `events` of which `unknown`
    belonged to no open
    descriptor, `expired` deadlines with the `worst_lateness` in seconds, and `stale` firings that a moved deadline
    had overtaken."""

    port: str
    descriptors: int
    parked: int
    polls: int
    events: int
    unknown: int
    expired: int
    worst_lateness: float
    stale: int
    timers: TimersStatistics


def _nobody(_: float) -> None:
    """The kick of a poller that sleeps only inside `poll`, where no deadline can be set meanwhile."""


class Poller:
    """Waits for readiness and deadlines of any number of descriptors.

    `clock` gives absolute seconds, the scale of all deadlines. `wake(waiter)` is called for each waiter that need
    not sleep any more.
    `kick(when)` is called when the sleeper must wake at `when` instead of the time it sleeps for.
    """

    __slots__ = (
        "_closed",
        "_descs",
        "_events",
        "_expired",
        "_polls",
        "_unknown",
        "_worst_lateness",
        "clock",
        "kick",
        "port",
        "sleeping_until",
        "stale",
        "timers",
        "wake",
    )

    def __init__(
        self,
        port: Port,
        clock: Callable[[], float] | Clock,
        wake: Callable[[Any], object],
        kick: Callable[[float], object] = _nobody,
        queue: str = "heap4",
    ) -> None:
        self.port: Port = port
        self.clock: Clock = clock if isinstance(clock, Clock) else Clock(clock)
        self.wake: Callable[[Any], object] = wake
        self.kick: Callable[[float], object] = kick
        self.timers: Timers = Timers(queue)
        # -inf while nobody sleeps: whoever goes to sleep asks for the wake time then
        self.sleeping_until: float = -INF
        self.stale: int = 0
        self._descs: dict[int, PollDesc] = {}
        self._closed: bool = False
        self._polls: int = 0
        self._events: int = 0
        self._unknown: int = 0
        self._expired: int = 0
        self._worst_lateness: float = 0.0

    def open(self, fd: int) -> PollDesc:
        """Begin to watch `fd`, which must be non-blocking.

        A descriptor that was closed behind our back and whose number has come again is evicted first.
        io.UnsupportedOperation if this type of file cannot have deadlines (a regular file); OSError if the descriptor
        is bad or the poller closed.
        """
        if self._closed:
            raise OSError(errno.EBADF, "the poller is closed")
        self._evict(fd)
        try:
            self.port.register(fd)
        except PermissionError as error:
            raise io.UnsupportedOperation("this type of file does not support deadlines") from error
        desc = PollDesc(fd, self)
        self._descs[fd] = desc
        return desc

    def close(self, desc: PollDesc) -> None:
        """Stop watching: mark closed, wake both halves, deregister. The caller closes the descriptor after that.
        Idempotent."""
        desc.evict()
        if self._descs.get(desc.fd) is desc:
            del self._descs[desc.fd]
            self._deregister(desc.fd)

    def wake_deadline(self, alarm: float = INF) -> float:
        """Go to sleep: the time at which the sleeper must call `poll` even if the port stays silent. It is kicked if
        that changes.

        `alarm` is when the sleeper wakes anyway, if it changes nothing. If that is too early it may stay, unless it is
        over already: to wake once in vain costs less than to set it again.
        """
        wake = self.timers.wake_time()
        if alarm < wake and self.clock.steady and alarm > self.clock.now():
            wake = alarm
        self.sleeping_until = wake
        return wake

    def poll(self, timeout: float = INF) -> None:
        """Wait for at most `timeout` seconds, and no longer than until the nearest deadline; then deal with all that
        has come.

        Events first, then the deadlines that are due, at one reading of the clock. With `timeout` 0 it never blocks.
        """
        if timeout > 0.0:
            timeout = min(timeout, self.timers.wake_time() - self.clock.now())
        self.sleeping_until = -INF
        self._polls += 1
        for fd, mask in self.port.wait(timeout):
            self._deliver(fd, mask)
        self.timers.check(self.clock.now())

    def set_timer(self, timer: Timer, when: float) -> bool:
        """`Timers.modify`, or `Timers.stop` for `inf`, and let the sleeper know if it concerns it; was the timer
        pending?"""
        if when == INF:
            pending = self.timers.stop(timer)
            if pending:
                self._disarmed(timer.key)
            return pending
        pending = self.timers.modify(timer, when)
        if when < self.sleeping_until:
            self.sleeping_until = when
            self.kick(when)
        return pending

    def expired(self, lateness: float) -> None:
        """Count a deadline that passed while its timer was armed."""
        self._expired += 1
        if lateness > self._worst_lateness:
            self._worst_lateness = lateness

    def shutdown(self) -> None:
        """Evict everything and close the port. Descriptors can still be closed afterwards. Idempotent."""
        self._closed = True
        self.sleeping_until = -INF
        for desc in list(self._descs.values()):
            desc.evict()
        self._descs.clear()
        self.port.close()

    def disown(self) -> None:
        """In a forked child: let go of the parent's event queue, and change nothing in it. Idempotent."""
        self._closed = True
        self.sleeping_until = -INF
        for desc in self._descs.values():
            # the parent's waiters do not run here, and closing what was inherited must not wake them
            desc.read.unpark()
            desc.write.unpark()
        self._descs.clear()
        self.port.close()

    def statistics(self) -> PollerStatistics:
        """A snapshot of the counts."""
        halves = [half for desc in self._descs.values() for half in (desc.read, desc.write)]
        return PollerStatistics(
            port=self.port.name,
            descriptors=len(self._descs),
            parked=sum(half.waiter is not None for half in halves),
            polls=self._polls,
            events=self._events,
            unknown=self._unknown,
            expired=self._expired,
            worst_lateness=self._worst_lateness,
            stale=self.stale,
            timers=self.timers.statistics(),
        )

    def _disarmed(self, key: float) -> None:
        """What was removed lies at `key`; no virtual clock must jump to it."""
        if self.clock.steady:
            return
        if key <= self.sleeping_until or self.timers.wakes_early:
            wake = self.timers.wake_time()
            if wake > self.sleeping_until:
                self.sleeping_until = wake
                self.kick(wake)

    def _deliver(self, fd: int, mask: int) -> None:
        self._events += 1
        desc = self._descs.get(fd)
        if desc is None:
            self._unknown += 1
            return
        read = desc.read
        # only reads report it: a write will hear it from the kernel
        read.event_error = mask & ERROR != 0
        if mask & (HANGUP | URGENT):
            read.eof_or_urgent_seen = True
        if mask & READ:
            read.unblock(True)
        if mask & WRITE:
            desc.write.unblock(True)

    def _evict(self, fd: int) -> None:
        stale = self._descs.pop(fd, None)
        if stale is not None:
            stale.evict()
            self._deregister(fd)

    def _deregister(self, fd: int) -> None:
        try:
            self.port.deregister(fd)
        except OSError as error:
            # the kernel drops the registration with a descriptor that was closed behind our back
            if error.errno not in (errno.ENOENT, errno.EBADF):
                raise
