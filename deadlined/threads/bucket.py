"""One bucket: one heap, one lock, one thread. Go's `timerproc`, as it was up to 1.9, and 64 times in 1.10."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from ..timers import Timer, Timers, next_tick
from .handle import Ticket, TimerHandle, collect, home, take_item
from .process import here
from .sleep import INF, ThreadSleep

_log = logging.getLogger("deadlined.threads")


class State(StrEnum):
    """What a bucket's thread is doing. Go calls PARKED rescheduling, and SLEEPING sleeping."""

    NOT_STARTED = "not started"
    PARKED = "parked"
    SLEEPING = "sleeping"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True)
class BucketStatistics:
    """One bucket: what its thread does; `stored` timers, of which `zombies` are stopped; how often the thread woke;
    the calls it began (`fired`), of which `failed` raised; and the `worst_lateness` of a call, in seconds."""

    state: State
    stored: int
    zombies: int
    wakeups: int
    fired: int
    failed: int
    worst_lateness: float


class Bucket:
    """Some timers, and the thread that calls their functions. Hold `lock` to call a method that does not say otherwise.

    `arm`, `claim_due`, `take` and `wake_time` are the logic: time is an argument, and no thread is needed.
    """

    def __init__(self, queue: str) -> None:
        self.closed: bool = False
        # the bucket that took this one's timers; written once, together with `closed`
        self.heir: Bucket | None = None
        self._queue = queue
        self.begin()

    def begin(self) -> None:
        """Start empty and without a thread: when made, and again in a forked child."""
        self.lock: threading.Lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.sleep: ThreadSleep = ThreadSleep(self.lock)
        # stopped, and still in the heap
        self._stopped: deque[tuple[TimerHandle, Ticket]] = deque()
        self._timers = Timers(self._queue)
        # Collected and not yet claimed, each with the generation that it was collected in. Timers, not handles: a
        # stopped timer refers to no object of the user, so it may be dropped under the lock.
        self._due: deque[tuple[Timer, int]] = deque()
        self._fired = 0
        self._failed = 0
        self._worst_lateness = 0.0

    # The logic.

    def arm(self, handle: TimerHandle, when: float, period: float = 0.0) -> bool:
        """Let `handle` be due at `when`; return whether it was pending."""
        if handle._process != here.forks:
            # its timer lies in the heap of the parent process
            handle._timer = Timer(collect)
            handle._ticket = []
            handle._process = here.forks
        timer = handle._timer
        timer.seq += 1
        timer.arg = handle
        self._timers.modify(timer, when, period)
        handle._period = period
        # the new ticket first: a stop that finds the old one taken then looks again
        before, handle._ticket = handle._ticket, [None]
        return take_item(before)

    def claim_due(self, now: float) -> TimerHandle | None:
        """Claim the next handle that is due; its call counts as made, and the caller makes it. None if none is due.

        Handles that are due at one time are collected at once, in order; one that is armed during their calls comes
        after them.
        """
        while True:
            if not self._due:
                self._timers.check(now)
                if not self._due:
                    return None
            timer, seq = self._due.popleft()
            handle: TimerHandle | None = timer.arg
            if timer.seq == seq and handle is not None and self._claim(handle, timer, now):
                return handle

    def collect(self, timer: Timer, seq: int) -> None:
        """Note that `timer` is due in the generation `seq`, for `claim_due`."""
        self._due.append((timer, seq))

    def take(self, other: Bucket) -> None:
        """Take over the pending and the due timers of `other`, and close it. Their handles follow `heir`."""
        self._timers.take(other._timers)
        # one by one: a stop may append another one meanwhile
        while other._stopped:
            self._stopped.append(other._stopped.popleft())
        self._due.extend(other._due)
        other._due.clear()
        other.heir = self
        other.closed = True

    def wake_time(self) -> float:
        """Return the earliest time at which `claim_due` may return a handle, `inf` if nothing is armed."""
        return -INF if self._due else self._timers.wake_time()

    def _claim(self, handle: TimerHandle, timer: Timer, now: float) -> bool:
        """Take the call of `handle`; False if it was stopped."""
        if not handle._period:
            if not take_item(handle._ticket):
                return False
            timer.arg = None
        elif not handle._ticket:
            # if the stop met a `take`, this bucket may not have been told of it
            self._stopped.append((handle, handle._ticket))
            self.sleep.wake()
            return False
        elif timer.when <= now:
            # the tick after this one passed as well, during the calls before it: skip it
            self._timers.modify(timer, next_tick(timer.when, handle._period, now), handle._period)
        self._fired += 1
        self._worst_lateness = max(self._worst_lateness, now - timer.due)
        return True

    # Stops, which never wait for the lock.

    def remove(self, handle: TimerHandle, ticket: Ticket) -> None:
        """Turn the timer of a stopped handle into a zombie: now if the lock is free, else soon, by the thread.

        Without the lock. A finaliser may call this in the thread that holds the lock.
        """
        self._stopped.append((handle, ticket))
        removed = None
        # A signal handler may raise after any call, and the lock would stay held: the step of a loop is no call.
        for held in map(self.lock.acquire, (False,)):
            try:
                removed = self._remove_stopped() if held else None
            finally:
                if held:
                    self.lock.release()
        if removed is None:
            self.sleep.wake()
        else:
            _forward(self, removed)

    def _remove_stopped(self) -> list[tuple[TimerHandle, Ticket]]:
        """Return what was removed; the caller must drop it without the lock, for it refers to users' objects."""
        removed = []
        while self._stopped:
            handle, ticket = entry = self._stopped.popleft()
            removed.append(entry)
            # otherwise it was armed anew since, or moved to another bucket
            if handle._ticket is ticket and home(handle) is self:
                handle._timer.seq += 1
                handle._timer.arg = None
                # otherwise a `close` has dropped it since
                if handle._timer.owner is self._timers:
                    self._timers.stop(handle._timer)
        return removed

    # The thread.

    def start(self, handle: TimerHandle, delay: float, period: float) -> bool:
        """Arm `handle` for `delay` seconds from now, waking the thread if need be; return whether it was pending."""
        self._start_thread()
        when = time.monotonic() + delay
        pending = self.arm(handle, when, period)
        self.sleep.wake_by(when)
        return pending

    def succeed(self, other: Bucket) -> None:
        """Take over the timers of `other`, whose lock must be held too, and let its thread end."""
        self._start_thread()
        if not other.closed:
            self.take(other)
            other.sleep.wake()
            # for an earlier timer, or for one that is stopped
            self.sleep.wake()

    def close(self) -> None:
        """Let the thread end, and drop the pending timers: now if the lock is free, else when the thread ends.

        Without the lock. A finaliser may call this in the thread that holds the lock.
        """
        self.closed = True
        self.sleep.wake()
        # as in `remove`
        for held in map(self.lock.acquire, (False,)):
            try:
                # dropped without the lock: their arguments may have finalisers
                _dropped = self._drop_timers() if held else ()
            finally:
                if held:
                    self.lock.release()

    def _drop_timers(self) -> tuple[object, ...]:
        dropped = self._timers, self._due, self._stopped
        self._timers = Timers(self._queue)
        self._due = deque()
        self._stopped = deque()
        return dropped

    def run(self) -> None:
        """Call what is due until closed; the thread's function. Without the lock."""
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
                _dropped = self._drop_timers() if self.closed and self.heir is None else ()
                if not self.closed and self.thread is threading.current_thread():
                    # ended by an exception from outside: the next start replaces it
                    self.thread = None

    def _next_call(self) -> TimerHandle | None:
        """Sleep until a handle is due, and claim it; None tells the thread to end. Without the lock."""
        while True:
            if self._stopped:
                self._remove_stopped_soon()
            with self.lock:
                # in a forked child this may be a thread of the parent's, which belongs to no bucket
                if self.closed or self.thread is not threading.current_thread():
                    return None
                now = time.monotonic()
                handle = self.claim_due(now)
                if handle is not None:
                    return handle
                until = self.sleep.until = self.wake_time()
            self.sleep.sleep(until - now)

    def _remove_stopped_soon(self) -> None:
        with self.lock:
            removed = self._remove_stopped()
        _forward(self, removed)

    def _start_thread(self) -> None:
        if self.closed:
            raise RuntimeError("the TimerThread is closed")
        if self.thread is None:
            if here.exiting:
                raise RuntimeError("the interpreter is exiting: no timers can be started any more")
            # a daemon: a pending timer must not keep the program from its end; `at_exit` ends it in good order
            thread = threading.Thread(target=self.run, name="deadlined timers", daemon=True)
            thread.start()
            self.thread = thread

    # What it shows.

    def _state(self) -> State:
        if self.closed:
            return State.CLOSED
        if self.thread is None:
            return State.NOT_STARTED
        if self.sleep.until == -INF:
            return State.RUNNING
        return State.SLEEPING if self.sleep.until < INF else State.PARKED

    def statistics(self) -> BucketStatistics:
        """Return a snapshot of the counts. Without the lock."""
        with self.lock:
            return BucketStatistics(
                state=self._state(),
                # a periodic timer that is due is filed for its next tick already
                stored=len(self._timers) + sum(timer.key == INF for timer, _ in self._due),
                zombies=self._timers.zombies,
                wakeups=self.sleep.wakeups,
                fired=self._fired,
                failed=self._failed,
                worst_lateness=self._worst_lateness,
            )


def _forward(bucket: Bucket, removed: list[tuple[TimerHandle, Ticket]]) -> None:
    """Remove those that another bucket has taken there. Without the lock."""
    for handle, ticket in removed:
        heir = home(handle)
        if heir is not bucket:
            heir.remove(handle, ticket)
