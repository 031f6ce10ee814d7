"""TimerThread, the public class: it consists of buckets, and the starting thread decides which one a timer goes to."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVarTuple

from .bucket import Bucket, BucketStatistics
from .handle import TimerHandle, valid_delay, valid_period
from .process import all_buckets, registry

Args = TypeVarTuple("Args")


@dataclass(frozen=True)
class TimerThreadStatistics:
    """The sums over all buckets, the largest `worst_lateness`, and the statistics of each bucket."""

    stored: int
    wakeups: int
    fired: int
    failed: int
    worst_lateness: float
    buckets: tuple[BucketStatistics, ...]


class TimerThread:
    """Timers whose functions are called by a thread of their own, started on first use.

    `buckets` of timers, each with its own lock and, once in use, its own thread; a timer goes to the bucket of the
    thread that starts it. One is enough unless many threads start timers all the time or functions block. `queue`
    names the timer scheme, as for `deadlined.timers.Timers`. The clock is `time.monotonic`.

    Functions should be short: each delays those after it. An exception in one, even SystemExit, is logged and loses no
    other call. Functions may start, stop, reset and close timers and TimerThreads.

    Close it when done; one that is dropped unclosed keeps its threads, and its timers fire. When the interpreter exits
    (after all threads that are not daemons have ended), pending timers are dropped and running calls are waited for;
    starting a timer from then on is a RuntimeError. On Python 3.12 and later, a TimerThread without a running thread
    refuses to start timers from the first exit handler on. A forked child inherits no pending timer, because its
    function would be called twice: there the TimerThread is empty and starts its thread on first use.
    """

    def __init__(self, buckets: int = 1, *, queue: str = "heap4") -> None:
        if buckets < 1:
            raise ValueError(f"buckets must be >= 1, not {buckets!r}")
        self._buckets = [Bucket(queue) for _ in range(buckets)]
        with registry:
            all_buckets.update(self._buckets)

    def after_func(self, seconds: float, fn: Callable[[*Args], object], *args: *Args) -> TimerHandle:
        """Call `fn(*args)` in the bucket's thread, `seconds` from now or a little later, never earlier.

        0 or less calls at once, `inf` never (the timer is still pending); NaN is a ValueError. TypeError if `fn` is no
        function, RuntimeError if this TimerThread is closed or no thread can be started; then nothing was armed.
        """
        return self._start(valid_delay(seconds), 0.0, fn, args)

    def every(self, period: float, fn: Callable[[*Args], object], *args: *Args) -> TimerHandle:
        """Call `fn(*args)` every `period` seconds, first one period from now. Missed calls are skipped and the phase
        is kept. ValueError if `period` is not greater than 0. Otherwise as `after_func`."""
        return self._start(period, valid_period(period), fn, args)

    def take(self, other: TimerThread) -> None:
        """Move every pending timer of `other` here, and close `other` without waiting for a call that it runs.

        All handles of `other` stay valid, those of fired and stopped timers too (Go does this for a destroyed P).
        RuntimeError if this TimerThread is closed, ValueError if it is `other`.
        """
        if other is self:
            raise ValueError("a TimerThread cannot take its own timers")
        heir = self._bucket()
        with registry:
            for bucket in other._buckets:
                with heir.lock, bucket.lock:
                    heir.succeed(bucket)

    def close(self, wait: bool = True) -> None:
        """Drop every pending timer, end the threads, and wait for the functions that are running.

        Does not wait when called from one of its own functions, nor with `wait=False`, which a finaliser must use.
        Idempotent: a second call waits as well. Two functions that close each other's TimerThread must not wait.
        """
        for bucket in self._buckets:
            bucket.close()
        threads = [bucket.thread for bucket in self._buckets if bucket.thread is not None]
        if wait and threading.current_thread() not in threads:
            for thread in threads:
                thread.join()

    def statistics(self) -> TimerThreadStatistics:
        """Return a snapshot of the counts, taken one bucket after the other."""
        buckets = tuple(bucket.statistics() for bucket in self._buckets)
        return TimerThreadStatistics(
            sum(bucket.stored for bucket in buckets),
            sum(bucket.wakeups for bucket in buckets),
            sum(bucket.fired for bucket in buckets),
            sum(bucket.failed for bucket in buckets),
            max(bucket.worst_lateness for bucket in buckets),
            buckets,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self, delay: float, period: float, fn: Callable[..., object], args: tuple[Any, ...]) -> TimerHandle:
        if not callable(fn):
            # found here, and not by the log when the timer fires: every(60, report()) has called it
            raise TypeError(f"a timer needs a function to call, not {fn!r}")
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
            raise TypeError(f"a timer calls plain functions, and {fn!r} is async: only an event loop can run it")
        bucket = self._bucket()
        handle = TimerHandle(bucket, fn, args)
        with bucket.lock:
            bucket.start(handle, delay, period)
        return handle

    def _bucket(self) -> Bucket:
        """Return the bucket of the calling thread, chosen by its native id: `get_ident` is an address on Linux, always
        a multiple of 64."""
        if len(self._buckets) == 1:
            return self._buckets[0]
        return self._buckets[threading.get_native_id() % len(self._buckets)]
