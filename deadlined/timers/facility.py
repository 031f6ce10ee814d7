"""The timer facility: lazy extension, zombies, periods and firing, once, above every timer scheme.

Facts      START, STOP and moving run with every packet; firing is rare. The check "is anything due?" runs at
           every turn of a poller (Varghese and Lauck 1987; Go's runtime/time.go since 1.14).
Hazard     Callbacks start, move and stop other timers, raise, and re-arm themselves for a time that has already
           come: a facility that loops until nothing is due never returns to its poller, and one that keeps stopped
           timers grows with every request (golang/go#6239, context.WithTimeout churn).
Answer     Later is a store. Earlier files the entry anew. Stop leaves a zombie, which a later start revives. An entry
           is taken out or filed anew before its callback runs, so nothing that a callback does can lose a
           timer. What is armed during a check for a time that has come runs in the next check (libuv's two steps).
           Zombies are swept once they exceed a quarter of what is stored.
Cost       A sweep is O(n), at most once per n/4 stops: O(1) each. After every addition and every check,
           stored entries are below 4/3 of the live timers plus a constant; stops alone add none.

Time is an argument. The facility reads no clock and does no I/O; it is not thread-safe.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Final

from ..value import Value
from .scheme import Scheme
from .schemes import SCHEMES, check_queue
from .timer import INF, Timer

# zombies that are always tolerated: sweeping a handful costs more than keeping it, and most are revived by the next
# request of the same connection
SLACK: Final = 16

_log: Final = logging.getLogger("deadlined.timers")


@dataclass(frozen=True)
class TimersStatistics(Value):
    """`stored` entries of which `zombies` are stopped; totals of `fired` callbacks, of entries `refiled` because
    their timer had been moved later, and of `failed` callbacks, since the start."""

    queue: str
    stored: int
    zombies: int
    fired: int
    refiled: int
    failed: int


def next_tick(when: float, period: float, now: float) -> float:
    """Return the first tick of a periodic timer after `now`: missed ticks are skipped, the phase is kept (Go's rule).

    Always later than `now`, also where the period is too small or the lateness too large for a float to keep the phase.
    """
    missed = (now - when) / period
    if missed < 1e15:
        tick = when + period * (1 + math.floor(missed))
        if tick > now:
            return tick
    return max(now + period, math.nextafter(now, INF))


class Timers:
    """All timers of one owner, in one queue.

    Times are absolute seconds on whatever clock the owner passes to `check`; only their order matters. `queue` names
    the timer scheme, a key of `SCHEMES`. It may find a timer due late, by less than `granularity` seconds plus
    `coarseness` times the delay that its entry was filed with; both are 0 for all but the wheels.

    An exception in a callback is logged and counted, and loses no other timer. A `BaseException` that is not an
    `Exception` (KeyboardInterrupt) passes through `check`; the timers that were not reached stay due.
    """

    __slots__ = (
        "_aside",
        "_checking",
        "_failed",
        "_fired",
        "_order",
        "_queue",
        "_refiled",
        "_round",
        "coarseness",
        "granularity",
        "name",
        "wakes_early",
        "zombies",
    )

    def __init__(self, queue: str = "heap4") -> None:
        self.name: str = check_queue(queue)
        self.zombies: int = 0
        self._queue: Scheme = SCHEMES[queue]()
        self.granularity: float = self._queue.granularity
        self.coarseness: float = self._queue.coarseness
        # whether `wake_time` may lie before the key of every stored timer
        self.wakes_early: bool = self._queue.wakes_early
        self._order: int = 0
        self._round: int = 0
        self._checking: bool = False
        # due timers that the running check must leave to the next one
        self._aside: list[Timer] = []
        self._fired: int = 0
        self._refiled: int = 0
        self._failed: int = 0

    def __len__(self) -> int:
        """Return the number of stored entries, zombies included."""
        return len(self._queue)

    def modify(self, timer: Timer, when: float, period: float = 0.0) -> bool:
        """Arm `timer` for `when`, or move it there; return whether it was pending.

        `when` at or before the next check's `now` fires at that check, never inside this call; `inf` stops the timer;
        NaN is a ValueError. `period` in seconds: 0 fires once, greater repeats, negative or NaN is a ValueError.
        O(1) if the timer is stored and not moved before its key, else the queue's START.
        """
        if not period >= 0.0:
            raise ValueError(f"period must be >= 0 seconds, not {period!r}")
        pending = timer.when < INF
        if timer.owner is not self and (pending or timer.key < INF):
            raise ValueError(f"{timer!r} is stored in another Timers; take() moves them all")
        if timer.key <= when < INF:
            if not pending:
                self.zombies -= 1
            timer.when = when
        elif when < INF:
            self._start(timer, when)
        else:
            if when != when:
                raise ValueError("when must not be NaN")
            return self.stop(timer)
        timer.period = period
        timer.armed_in = self._round
        return pending

    def stop(self, timer: Timer) -> bool:
        """Disarm `timer`; return whether it was pending. O(1): its entry stays behind as a zombie.

        False means that it has fired, was stopped, or never started. After a stop the callback is not called.
        """
        if timer.when == INF:
            return False
        if timer.owner is not self:
            raise ValueError(f"{timer!r} is stored in another Timers; stop it there")
        timer.when = INF
        if timer.key < INF:
            self.zombies += 1
        return True

    def wake_time(self) -> float:
        """Return the earliest time at which `check` may have work, `inf` if nothing is armed.

        Zombies at the head are dropped first. A timer that was moved later may make it earlier than any due time.
        """
        queue = self._queue
        wake = queue.wake_time()
        while wake < INF and queue.first().when == INF:
            # a crowd goes at once: one by one is slow in a queue without order
            if self._crowded():
                self.zombies -= queue.sweep()
            else:
                self._drop_first()
            wake = queue.wake_time()
        return wake

    def check(self, now: float) -> float:
        """Run what is due at `now`, in the order of the times, and return the next wake time.

        Whatever a callback arms is left to the next check, so the returned time may be at or before `now`. Not
        re-entrant: RuntimeError from inside a callback. NaN is a ValueError.
        """
        if now != now:
            raise ValueError("now must not be NaN")
        if self._checking:
            raise RuntimeError("Timers.check() called from inside a timer's callback")
        queue = self._queue
        timer = queue.due(now)
        if timer is None and not self._crowded():
            return self.wake_time()
        self._checking = True
        self._round += 1
        try:
            while timer is not None:
                self._advance(timer, now)
                timer = queue.due(now)
        finally:
            self._checking = False
            self._restore_aside()
        # after the due timers ran: many of them were zombies' neighbours and are gone now (Go measured this order)
        if self._crowded():
            self.zombies -= self._queue.sweep()
        return self.wake_time()

    def take(self, other: Timers) -> None:
        """Move every pending timer of `other` here, and leave `other` empty (a bucket that closes, Go's destroyed P).

        Times and periods are kept. Equal times fire in the order in which their entries were filed in `other`, where
        one that was extended lazily has kept its place. ValueError if `other` is this facility.
        """
        if other is self:
            raise ValueError("a facility cannot take its own timers")
        if self._crowded():
            self.zombies -= self._queue.sweep()
        moved = other._surrender()
        moved.sort(key=_time_and_order)
        for timer in moved:
            timer.owner = self
            self._file(timer, timer.when)
            timer.armed_in = self._round

    def statistics(self) -> TimersStatistics:
        """Return a snapshot of the counts."""
        return TimersStatistics(self.name, len(self), self.zombies, self._fired, self._refiled, self._failed)

    def _start(self, timer: Timer, when: float) -> None:
        """File an entry that is missing, or lies later than `when`."""
        if timer.zombie:
            self.zombies -= 1
        elif self._crowded():
            self.zombies -= self._queue.sweep()
        timer.owner = self
        timer.when = when
        self._file(timer, when)

    def _file(self, timer: Timer, key: float) -> None:
        self._order += 1
        timer.order = self._order
        self._queue.file(timer, key)

    def _advance(self, timer: Timer, now: float) -> None:
        """Fire, file anew, drop or set aside the timer that `due` has found: the first of the queue."""
        when = timer.when
        if when == INF:
            self._drop_first()
        elif when > timer.key:
            self._refiled += 1
            self._file(timer, when)
        elif timer.armed_in == self._round:
            self._aside.append(self._queue.remove_first())
        else:
            self._fire(timer, now)

    def _fire(self, timer: Timer, now: float) -> None:
        due = timer.when
        tick = next_tick(due, timer.period, now) if timer.period > 0.0 else INF
        timer.due = due
        timer.when = tick
        if tick < INF:
            self._file(timer, tick)
        else:
            self._queue.remove_first()
        self._fired += 1
        # -inf minus -inf would be NaN
        lateness = now - due if now > due else 0.0
        try:
            timer.callback(timer.arg, timer.seq, lateness)
        except Exception:
            self._failed += 1
            _log.exception("timer callback %r raised; the other timers go on", timer.callback)

    def _drop_first(self) -> None:
        self._queue.remove_first()
        self.zombies -= 1

    def _crowded(self) -> bool:
        return 4 * (self.zombies - SLACK) > len(self._queue)

    def _restore_aside(self) -> None:
        """File what was set aside at its old rank, unless a callback stopped it or has filed it anew."""
        aside = self._aside
        self._aside = []
        for timer in aside:
            if timer.key == INF and timer.when < INF:
                self._queue.file(timer, timer.when)

    def _surrender(self) -> list[Timer]:
        """Take out everything; return the pending timers, unfiled."""
        # what was set aside may have been filed anew meanwhile, here or in another Timers
        stored = self._queue.clear() + [timer for timer in self._aside if timer.key == INF and timer.owner is self]
        self._aside = []
        self.zombies = 0
        return [timer for timer in stored if timer.when < INF]


def _time_and_order(timer: Timer) -> tuple[float, int]:
    return timer.when, timer.order
