"""One bucket: one heap, one lock, one thread. Go's `timerproc`, as it was up to 1.9, and 64 times in 1.10."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from ..timers import Timer, Timers, next_tick
from .handle import TimerHandle, collect
from .process import here

INF = math.inf

_log = logging.getLogger("deadlined.threads")


class State(StrEnum):
    """What a bucket's thread is doing. Go's words for the second and the third: rescheduling and sleeping."""

    NOT_STARTED = "not started"
    PARKED = "parked"
    SLEEPING = "sleeping"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True)
class BucketStatistics:
    """One bucket: what its thread does, `stored` timers of which `zombies` are stopped, how often the thread woke,
    how many calls it began (`fired`) of which `failed` raised, and how late the latest began, in seconds."""

    state: State
    stored: int
    zombies: int
    wakeups: int
    fired: int
    failed: int
    worst_lateness: float


class Bucket:
    """Some timers, and the thread that calls their functions. Whoever calls a method holds `lock`, unless it says not.

    `arm`, `disarm`, `due`, `take` and `wake_time` are the whole logic: time is an argument there, no thread is needed.
    """

    def __init__(self, queue: str) -> None:
        self.closed = False
        # the bucket that took this one's timers; written once, together with `closed`
        self.heir: Bucket | None = None
        self._queue = queue
        self.begin()

    def begin(self) -> None:
        """Empty, and no thread: when made, and again in a forked child."""
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self._earlier = threading.Condition(self.lock)
        self._timers = Timers(self._queue)
        # Collected and not yet claimed, each with the generation that it was collected in. Timers and not handles: a
        # stopped one refers to nothing of the user's, so it may be dropped under the lock.
        self._due: deque[tuple[Timer, int]] = deque()
        self._state = State.NOT_STARTED
        # the thread sleeps no longer than this, -inf while it is awake
        self._sleeps_until = -INF
        self._wakeups = 0
        self._fired = 0
        self._failed = 0
        self._worst_lateness = 0.0

    # The logic.

    def arm(self, handle: TimerHandle, when: float, period: float = 0.0) -> bool:
        """Let `handle` be due at `when`; was it pending?"""
        if handle._process != here.forks:
            # its timer lies in the heap of the process that forked this one
            handle._timer = Timer(collect)
            handle._armed = False
            handle._process = here.forks
        pending = handle._armed
        timer = handle._timer
        timer.seq += 1
        timer.arg = handle
        self._timers.modify(timer, when, period)
        handle._period = period
        handle._armed = True
        return pending

    def disarm(self, handle: TimerHandle) -> bool:
        """Let `handle` be due no more; was it pending?"""
        if self.closed or not handle._armed:
            return False
        handle._armed = False
        handle._timer.seq += 1
        handle._timer.arg = None
        self._timers.stop(handle._timer)
        return True

    def due(self, now: float) -> TimerHandle | None:
        """Claim the next handle that is due: from here on its call counts as made. The caller makes it.

        What is due at one time is collected at once, in order; what is armed while it is being called comes after it.
        """
        while True:
            if not self._due:
                self._timers.check(now)
                if not self._due:
                    return None
            timer, seq = self._due.popleft()
            if timer.seq == seq:
                return self._claim(timer, now)

    def collect(self, timer: Timer, seq: int) -> None:
        """`timer` is due, in the generation `seq`; `due` will claim it."""
        self._due.append((timer, seq))

    def take(self, other: Bucket) -> None:
        """Take over what is pending and what is due in `other`, and close it. The handles find their way by `heir`."""
        self._timers.take(other._timers)
        self._due.extend(other._due)
        other._due.clear()
        other.heir = self
        other.closed = True

    def wake_time(self) -> float:
        """The earliest time at which `due` may return something, `inf` if nothing is armed."""
        return -INF if self._due else self._timers.wake_time()

    def _claim(self, timer: Timer, now: float) -> TimerHandle:
        handle: TimerHandle = timer.arg
        if not handle._period:
            handle._armed = False
            timer.arg = None
        elif timer.when <= now:
            # the tick after this one passed while this one waited for the calls before it: missed as well
            self._timers.modify(timer, next_tick(timer.when, handle._period, now), handle._period)
        self._fired += 1
        self._worst_lateness = max(self._worst_lateness, now - timer.due)
        return handle

    # The thread.

    def start(self, handle: TimerHandle, delay: float, period: float) -> bool:
        """Arm `handle` for `delay` from now, and see that the thread knows; was it pending?"""
        self._start_thread()
        when = time.monotonic() + delay
        pending = self.arm(handle, when, period)
        self._wake(when)
        return pending

    def succeed(self, other: Bucket) -> None:
        """Take over what `other`, whose lock is held too, has pending, and let its thread end."""
        self._start_thread()
        if not other.closed:
            self.take(other)
            other._earlier.notify()
            self._wake(self.wake_time())

    def close(self) -> None:
        """Drop what is pending and let the thread end; without the lock."""
        with self.lock:
            # kept until the lock is free: their arguments may have finalisers
            _dropped = self._timers, self._due
            if not self.closed:
                self.closed = True
                self._timers = Timers(self._queue)
                self._due = deque()
                self._earlier.notify()

    def run(self) -> None:
        """The thread's life; without the lock."""
        try:
            while (handle := self._next_call()) is not None:
                try:
                    handle._fn(*handle._args)
                except BaseException:
                    _log.exception("timer callback %r raised; the other timers go on", handle._fn)
                    with self.lock:
                        self._failed += 1
                # a thread that sleeps must not keep the last arguments alive
                del handle
        finally:
            with self.lock:
                if not self.closed and self.thread is threading.current_thread():
                    # killed from outside: the next start replaces it
                    self.thread = None

    def _next_call(self) -> TimerHandle | None:
        """Sleep until something is due; None tells the thread to end. Without the lock."""
        with self.lock:
            # in a forked child this may be a thread of the parent's, which is nobody's any more
            while not self.closed and self.thread is threading.current_thread():
                now = time.monotonic()
                handle = self.due(now)
                if handle is not None:
                    self._state = State.RUNNING
                    return handle
                self._sleep(self.wake_time(), now)
            return None

    def _sleep(self, until: float, now: float) -> None:
        """Give up the lock until `until`, or until an earlier timer or the end comes."""
        self._state = State.SLEEPING if until < INF else State.PARKED
        self._sleeps_until = until
        self._earlier.wait(min(until - now, threading.TIMEOUT_MAX) if until < INF else None)
        self._sleeps_until = -INF
        self._wakeups += 1

    def _wake(self, when: float) -> None:
        if when < self._sleeps_until:
            self._sleeps_until = when
            self._earlier.notify()

    def _start_thread(self) -> None:
        if self.closed:
            raise RuntimeError("the TimerThread is closed")
        if self.thread is None:
            if here.exiting:
                raise RuntimeError("the interpreter is exiting: no timers can be started any more")
            # a daemon, for a pending timer must not keep the program from its end; `at_exit` ends it in good order
            thread = threading.Thread(target=self.run, name="deadlined timers", daemon=True)
            thread.start()
            self.thread = thread
            self._state = State.RUNNING

    def statistics(self) -> BucketStatistics:
        """Without the lock."""
        with self.lock:
            state = State.CLOSED if self.closed else self._state if self.thread is not None else State.NOT_STARTED
            stored = len(self._timers) + len(self._due)
            zombies, worst = self._timers.zombies, self._worst_lateness
            return BucketStatistics(state, stored, zombies, self._wakeups, self._fired, self._failed, worst)
