"""The poller: one port, one timer facility, and the descriptors between them.

Facts      The nearest deadline bounds the sleep, so one wait serves readiness and time (Go's netpoll since 1.14).
Hazard     A sleeper that does not learn of an earlier deadline oversleeps; one that is told of every deadline never
           sleeps.
Answer     `sleeping_until` is the time at which the sleeper wakes by itself. It is kicked only if a deadline is set
           before that time. If that deadline is removed, it is kicked only where time is virtual and would jump to it;
           in real time it wakes once for nothing, as in Go, which costs less than a kick.
Cost       One comparison when a deadline is set for the first time or moved earlier, none when it is moved later.

The poller calls `wake` for each waiter to be woken, which must only record it: a whole batch of events and due timers
is processed before any waiter runs.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..timers.facility import Timers, TimersStatistics
from ..timers.timer import INF, Timer
from ..value import Value
from .clock import Clock
from .desc import PollDesc
from .port import ERROR, HANGUP, READ, URGENT, WRITE, Port


@dataclass(frozen=True)
class PollerStatistics(Value):
    """A snapshot of a poller: open `descriptors` and `parked` waiters.

    Totals since the start: `polls`; `events`, of which `unknown` belonged to no open descriptor; `expired` deadlines,
    with the `worst_lateness` in seconds; `stale` firings, whose deadline had been moved; `resets`: how often a deadline
    was set, moved or removed.
    """

    port: str
    descriptors: int
    parked: int
    polls: int
    events: int
    unknown: int
    expired: int
    worst_lateness: float
    stale: int
    resets: int
    timers: TimersStatistics


def _no_kick(_: float) -> None:
    """Do nothing: the kick of a poller that sleeps only inside `poll`, where no deadline can be set meanwhile."""


def _refuse(_: float) -> None:
    """Refuse a timer: the kick of a poller that was shut down, whose sleeper never wakes."""
    raise RuntimeError("no timer can be set after the end of the event loop's tasks: nothing would call it")


class Poller:
    """Waits for readiness and deadlines of any number of descriptors.

    `clock` returns absolute seconds, the scale of all deadlines. `wake(waiter)` is called for each waiter that must
    wake. `kick(when)` is called when the sleeper must wake at `when` instead of its present wake time.
    """

    __slots__ = (
        "_closed",
        "_descs",
        "_events",
        "_expired",
        "_strays",
        "_unknown",
        "_worst_lateness",
        "clock",
        "disowned",
        "kick",
        "on_next_poll",
        "polls",
        "port",
        "resets",
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
        kick: Callable[[float], object] = _no_kick,
        queue: str = "heap4",
    ) -> None:
        self.port: Port = port
        self.clock: Clock = clock if isinstance(clock, Clock) else Clock(clock)
        self.wake: Callable[[Any], object] = wake
        self.kick: Callable[[float], object] = kick
        self.timers: Timers = Timers(queue)
        # -inf while the sleeper is awake: it asks for the wake time before it sleeps; inf after `shutdown`
        self.sleeping_until: float = -INF
        self.stale: int = 0
        # how often deadlines of halves that are closed by now were set
        self.resets: int = 0
        # how often it has polled since the start; may be read in other threads
        self.polls: int = 0
        # called once, by the next poll; may be set in other threads
        self.on_next_poll: Callable[[], object] | None = None
        self._descs: dict[int, PollDesc] = {}
        self._closed: bool = False
        # this is a forked child: the event queue and the descriptors belong to its parent
        self.disowned: bool = False
        # True once a descriptor was closed before its registration: a duplicate of it may keep that in the event queue
        self._strays: bool = False
        self._events: int = 0
        self._unknown: int = 0
        self._expired: int = 0
        self._worst_lateness: float = 0.0

    def open(self, fd: int) -> PollDesc:
        """Begin to watch `fd`, which must be non-blocking.

        A stale registration of the same number, whose descriptor was closed without `close`, is evicted first.
        io.UnsupportedOperation if this type of file cannot have deadlines (a regular file); OSError if the descriptor
        is bad, the event queue is full or the poller is closed.
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
        """Stop watching: mark closed, wake both halves, deregister. The caller must close the descriptor after it, not
        before. Idempotent."""
        desc.evict()
        if self._descs.get(desc.fd) is desc:
            del self._descs[desc.fd]
            self._deregister(desc.fd)

    def is_open(self) -> bool:
        """Return True until `shutdown`, `disown` or `abandon` is called."""
        return not self._closed

    def wake_deadline(self, alarm: float = INF) -> float:
        """Return the time at which the sleeper must call `poll` even if the port reports nothing. From now on it is
        kicked if that time changes.

        `alarm` is the wake time that the sleeper has set already. An early one is kept, unless it is over: waking once
        for nothing costs less than setting another.
        """
        wake = self.timers.wake_time()
        if alarm < wake and self.clock.steady and alarm > self.clock.now():
            wake = alarm
        self.sleeping_until = wake
        return wake

    def poll(self, timeout: float = INF) -> None:
        """Wait for at most `timeout` seconds, and no longer than until the nearest deadline; then process the events
        and after them the due deadlines, at one reading of the clock. At or below 0 it never blocks.
        """
        if timeout > 0.0:
            timeout = min(timeout, self.timers.wake_time() - self.clock.now())
        self.sleeping_until = -INF
        self.polls += 1
        if self.on_next_poll is not None:
            self._announce()
        # a look at an empty queue finds nothing, and costs a system call: programs that only sleep poll for each wake
        if self._descs or self._strays or timeout > 0.0:
            for fd, mask in self.port.wait(timeout):
                self._deliver(fd, mask)
        self.timers.check(self.clock.now())

    def set_timer(self, timer: Timer, when: float) -> bool:
        """Arm `timer` for `when`, absolute seconds, or stop it for `inf`; kick the sleeper if needed. True if it was
        pending. RuntimeError after `shutdown`, unless it stops the timer."""
        if when == INF:
            pending = self.timers.stop(timer)
            if pending:
                self._disarmed(timer.key)
            return pending
        pending = self.timers.modify(timer, when)
        if when < self.sleeping_until:
            # refused after `shutdown`
            self.kick(when)
            self.sleeping_until = when
        return pending

    def note_expired(self, lateness: float) -> None:
        """Count a deadline that passed while its timer was armed."""
        self._expired += 1
        if lateness > self._worst_lateness:
            self._worst_lateness = lateness

    def shutdown(self) -> None:
        """Evict all descriptors and close the port. `close` may still be called afterwards. Idempotent."""
        self._closed = True
        # every timer would come before the next wake: it is refused
        self.sleeping_until = INF
        self.kick = _refuse
        for desc in list(self._descs.values()):
            desc.evict()
        self._descs.clear()
        self.port.close()

    def disown(self) -> None:
        """Close the event queue in a forked child without changing it, because the parent uses it. Idempotent."""
        self.disowned = True
        self.abandon()

    def abandon(self) -> None:
        """Close the event queue, and change nothing in it. The waiters do not run any more, and closing a descriptor
        will not wake them. Idempotent."""
        self._closed = True
        self.sleeping_until = -INF
        for desc in self._descs.values():
            desc.read.unpark()
            desc.write.unpark()
        self._descs.clear()
        self.port.close()

    def count_resets(self) -> int:
        """Return how often a deadline was set, moved or removed, as `statistics` does, but without all other counts."""
        resets = self.resets
        for desc in self._descs.values():
            resets += desc.read.seq + desc.write.seq
        return resets

    def statistics(self) -> PollerStatistics:
        """Return a snapshot of the counts."""
        halves = [half for desc in self._descs.values() for half in (desc.read, desc.write)]
        return PollerStatistics(
            port=self.port.name,
            descriptors=len(self._descs),
            parked=sum(half.waiter is not None for half in halves),
            polls=self.polls,
            events=self._events,
            unknown=self._unknown,
            expired=self._expired,
            worst_lateness=self._worst_lateness,
            stale=self.stale,
            resets=self.count_resets(),
            timers=self.timers.statistics(),
        )

    def _announce(self) -> None:
        """Call `on_next_poll`, once."""
        call, self.on_next_poll = self.on_next_poll, None
        if call is not None:
            call()

    def _disarmed(self, key: float) -> None:
        """Kick the sleeper if a virtual clock would jump to `key`, the time of a timer that was stopped."""
        if self.clock.steady or self._closed:
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
        # only reads report it: a write gets the error from the kernel
        read.event_error = mask & ERROR != 0
        if mask & (HANGUP | URGENT):
            read.eof_or_urgent_seen = True
            if mask & HANGUP:
                read.hangup_seen = True
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
            # the kernel drops the registration of a descriptor that was closed before, or is another file now
            if error.errno not in (errno.ENOENT, errno.EBADF, errno.EPERM):
                raise
            self._strays = True
