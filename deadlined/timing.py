"""Go's time API for tasks: `sleep`, `Timer`, `Ticker` and `after_func`, on the heap of the connections' deadlines.

Facts      A Go timer is a channel on which one time arrives. Since Go 1.23 the channel holds nothing back: a timer is
           in the heap only while somebody waits at it, and otherwise looked at when somebody comes.
Hazard     Before, a value could be received that was sent before `Stop` or `Reset` had returned, which hardly a program
           got right; and a ticker that nobody stopped lived, and ticked, for ever (golang/go#37196).
Answer     A timer is a field: the time that is due. Whoever comes after it takes it at once; whoever comes before it
           parks, and only then there is an entry in the heap. So no value lies anywhere that `stop` would have to
           drain, and nothing but its users knows a timer that nobody waits at: forgotten is collected.
Cost       Sleeping is a heap entry, no cancel scope, and sleepers share the pump's wake-ups: 10 us per sleep against
           trio's 20 with 1,000 sleeping tasks, 15 against 20 with 10 (interpreted). A task that sleeps all alone pays
           for the wake-up by itself, and then trio's own sleep is the cheaper one: 60 us against 80.

Every start of a timer, by making it or by `reset`, ends at most once: one `wait` gets the time, or one `stop` or
`reset` returns True. A value is received when it is handed to a parked task, which then gets it even if it is cancelled
before it runs. All of this belongs to the thread of one `trio.run` and is not thread-safe.

Where a ticker that never stops was started is told by `statistics`, while debugging is on: `DEADLINED_DEBUG=1`,
`set_debug(True)` or Python's development mode.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import os
import sys
import weakref
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar

from trio.lowlevel import RunVar, cancel_shielded_checkpoint, checkpoint_if_cancelled, enable_ki_protection

from .runtime import Pump, Waiter, checkpoint, current_pump
from .timers import Timer as Entry
from .timers import next_tick

__all__ = ["Ticker", "Timer", "TimingStatistics", "after_func", "set_debug", "sleep", "sleep_until", "statistics"]

INF = math.inf


@enable_ki_protection
async def sleep(seconds: float) -> None:
    """Sleep for `seconds`; zero or less is just a checkpoint, `inf` is until cancelled, NaN is a ValueError.

    Always a checkpoint, never early. RuntimeError outside of `trio.run`.
    """
    pump = current_pump()
    await _sleep(pump, pump.clock.now() + seconds)


@enable_ki_protection
async def sleep_until(when: float) -> None:
    """`sleep` until `when`, absolute seconds on the run's clock (`trio.current_time()`)."""
    await _sleep(current_pump(), when)


async def _sleep(pump: Pump, when: float) -> None:
    if when <= pump.clock.now():
        await checkpoint()
        return
    waiter = Waiter()
    entry = Entry(_wake, waiter)

    def leave() -> None:
        # the stopped entry may lie in the heap for long, and must not keep the task alive
        entry.arg = None
        pump.set_timer(entry, INF)

    pump.set_timer(entry, when)
    await waiter.park(leave)


def _wake(waiter: Waiter, seq: int, lateness: float) -> None:
    waiter.wake(INF)


class _Source(ABC):
    """A time that comes, and the tasks that wait for it, first come, first served."""

    __slots__ = ("__weakref__", "_entry", "_pump", "_waiters", "_when", "place")

    kind: ClassVar[str]
    debug: ClassVar[bool] = sys.flags.dev_mode or os.environ.get("DEADLINED_DEBUG", "0") not in ("", "0")

    def __init__(self) -> None:
        run = _this_run()
        self._pump = run.pump
        self._entry = Entry(_ring)
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        # the time that nobody has received yet; inf: none, it is stopped or was received
        self._when = INF
        # where it was made, if debugging was on then
        self.place = _place() if _Source.debug else ""
        run.started.add(self)

    @property
    def running(self) -> bool:
        """Whether there is something to receive, or to run, now or later."""
        return self._when < INF

    async def _receive(self) -> float:
        """The time, once it has come; inf if the wait was ended without one."""
        self._require_this_run()
        if self._when <= self._pump.clock.now() and not self._waiters:
            await checkpoint_if_cancelled()
            value = self._take()
            await cancel_shielded_checkpoint()
            return value
        waiter = Waiter()

        def leave() -> None:
            del self._waiters[waiter]
            self._file()

        self._waiters[waiter] = None
        self._file()
        return await waiter.park(leave)

    @abstractmethod
    def _take(self) -> float:
        """The time that has come, which is received by this."""

    def ring(self) -> None:
        """The time has come, and somebody waits for it."""
        waiter, _ = self._waiters.popitem(last=False)
        waiter.wake(self._take())
        self._file()

    def _file(self) -> None:
        """Have an entry in the heap exactly while a time is due and somebody waits for it."""
        self._file_at(self._when if self._waiters else INF)

    def _file_at(self, when: float) -> None:
        # a stopped entry may lie in the heap for long, and must not keep its owner alive
        self._entry.arg = self if when < INF else None
        self._pump.set_timer(self._entry, when)

    def _require_this_run(self) -> None:
        if current_pump() is not self._pump:
            raise RuntimeError(f"{self!r} was made in another trio.run()")

    def __repr__(self) -> str:
        made = f" made at {self.place}" if self.place else ""
        return f"<{self.kind} {f'when={self._when!r}' if self.running else 'stopped'}{made}>"


def _ring(source: _Source, seq: int, lateness: float) -> None:
    source.ring()


class Timer(_Source):
    """One time that comes after `seconds`, for one receiver: Go's `time.NewTimer`.

    `seconds` of zero or less: the time has come already. `inf`: it is made stopped, for a later `reset`. NaN is a
    ValueError. RuntimeError outside of `trio.run`.

    Any number of tasks may wait; each start of the timer serves one of them, the one that came first, and the others
    wait on for the next `reset`.
    """

    __slots__ = ()
    kind = "Timer"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._start(self._from_now(seconds))

    @enable_ki_protection
    async def wait(self) -> float:
        """Sleep until the time comes, and return it: the time that was due, even if it is taken later.

        A checkpoint, also if the time has come. Who waits at a stopped timer, or at one whose time was received, waits
        for a `reset`. RuntimeError for a timer of `after_func`, on which no time arrives.
        """
        return await self._receive()

    def stop(self) -> bool:
        """Take the time back; was there one to take back? Whoever waits, waits on.

        After it nothing can be received until a `reset`. True: nobody has received the time, and nobody will, even if
        it had come. False: a task has received it (or has been woken with it), or the timer was stopped before. With
        `after_func` a True means that the function was not called and will not be; a False that it was, or is being
        called right now.
        """
        return self._start(INF)

    def reset(self, seconds: float) -> bool:
        """`stop`, and start anew for `seconds` from now; the answer is that of `stop`. Whoever waits, waits for the
        new time."""
        self._require_this_run()
        return self._start(self._from_now(seconds))

    @enable_ki_protection
    def _start(self, when: float) -> bool:
        pending = self._when < INF
        self._when = when
        self._file()
        return pending

    def _take(self) -> float:
        value, self._when = self._when, INF
        return value

    def _from_now(self, seconds: float) -> float:
        if seconds != seconds:
            raise ValueError("seconds must not be NaN")
        return self._pump.clock.now() + max(seconds, 0.0)


class Ticker(_Source):
    """A time that comes every `period` seconds, the first one period from now: Go's `time.NewTicker`.

        async for when in deadlined.Ticker(1.0):
            ...

    `when` is the time at which the tick was due. One tick waits for a slow consumer; those that come meanwhile are
    dropped, and the phase is kept. Several consumers share the ticks, each of which goes to the one that came first.
    The loop ends when the ticker is stopped (in Go it would hang). A ticker without references is collected; it need
    not be stopped.

    A period that is not positive and finite is a ValueError. RuntimeError outside of `trio.run`.
    """

    __slots__ = ("_period",)
    kind = "Ticker"

    def __init__(self, period: float) -> None:
        super().__init__()
        self._period = 0.0
        self.reset(period)

    def __aiter__(self) -> Ticker:
        return self

    @enable_ki_protection
    async def __anext__(self) -> float:
        """The next tick. A checkpoint, also if it has come already or never will."""
        slept = False
        while self._when < INF:
            when = await self._receive()
            if when < INF:
                return when
            # stopped, and perhaps started anew since
            slept = True
        if not slept:
            await checkpoint()
        raise StopAsyncIteration

    @enable_ki_protection
    def stop(self) -> None:
        """No tick can be received after this, even if it had come; loops over the ticker end, unless it is `reset`
        before they look. Idempotent."""
        self._when = INF
        self._file()
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            waiter.wake(INF)

    @enable_ki_protection
    def reset(self, period: float) -> None:
        """Start anew, stopped or not: the next tick is due one `period` from now. Whoever waits, waits for that."""
        if not 0.0 < period < INF:
            raise ValueError(f"period must be positive and finite, in seconds, not {period!r}")
        self._require_this_run()
        self._period = period
        self._when = self._pump.clock.now() + period
        self._file()

    def _take(self) -> float:
        value = self._when
        self._when = next_tick(value, self._period, self._pump.clock.now())
        return value


class _FunctionTimer(Timer):
    """Calls a function in place of serving a receiver. Its entry keeps it alive until then."""

    __slots__ = ("_args", "_context", "_function")

    def __init__(self, seconds: float, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._context = contextvars.copy_context()
        super().__init__(seconds)

    async def wait(self) -> float:
        raise RuntimeError("no time arrives at a timer of after_func: let its function set a trio.Event")

    def ring(self) -> None:
        self._when = INF
        self._entry.arg = None
        try:
            outcome = self._context.run(self._function, *self._args)
            if inspect.iscoroutine(outcome):
                outcome.close()
                raise _no_async(self._function)
        except Exception as error:
            error.add_note(f"while after_func called {self._function!r}{f' of {self.place}' if self.place else ''}")
            raise

    def _file(self) -> None:
        self._file_at(self._when)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} calls {self._function!r}>"


def after_func(seconds: float, fn: Callable[..., object], *args: Any) -> Timer:
    """Call `fn(*args)` after `seconds`, unless the returned timer is stopped before; `reset` makes it run once more.

    `fn` is called between the steps of all tasks, by the run itself: it must be short, must not block, and may start,
    stop and reset timers. Zero or negative `seconds`: it is called soon, never inside this call. It runs in a copy of
    the caller's context. An Exception in it is logged and does no harm to any other timer; any other BaseException ends
    the run, as it does in all of trio's own callbacks.

    Go starts a goroutine of its own for it. Here that would be a task without a parent, whose crash nobody hears of, so
    an async function is a TypeError: name the nursery that is responsible, `after_func(5, nursery.start_soon, work)`.

    The timer lives until `fn` was called, referenced or not; the run does not wait for it, and what is pending at its
    end is never called.
    """
    if not callable(fn):
        raise TypeError(f"after_func needs a function to call, not {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        raise _no_async(fn)
    return _FunctionTimer(seconds, fn, args)


def _no_async(fn: Callable[..., object]) -> TypeError:
    return TypeError(
        f"after_func calls plain functions, and {fn!r} is async: start it in a nursery that waits for it, "
        "after_func(seconds, nursery.start_soon, fn)"
    )


@dataclass(frozen=True)
class TimingStatistics:
    """What has been started in this run and is neither received, stopped nor collected: `timers` (those of
    `after_func` too), `tickers`, and, of those that were made while debugging was on, how many were made at which
    place: "Ticker app.py:12", the most frequent place first."""

    timers: int
    tickers: int
    places: Mapping[str, int]


def statistics() -> TimingStatistics:
    """A snapshot of this run. RuntimeError outside of `trio.run`."""
    run = _run.get()
    running = [] if run is None else [source for source in run.started if source.running]
    kinds = Counter(source.kind for source in running)
    places = Counter(f"{source.kind} {source.place}" for source in running if source.place)
    return TimingStatistics(kinds["Timer"], kinds["Ticker"], dict(places.most_common()))


def set_debug(on: bool) -> None:
    """Whether timers and tickers that are made from now on remember where. It costs a microsecond or two each."""
    _Source.debug = on


@dataclass
class _Run:
    """One run's pump, and what it started."""

    pump: Pump
    started: weakref.WeakSet[_Source] = field(default_factory=weakref.WeakSet)


_run: RunVar[_Run | None] = RunVar("deadlined_timing", default=None)


def _this_run() -> _Run:
    pump = current_pump()
    run = _run.get()
    if run is None:
        run = _Run(pump)
        _run.set(run)
    return run


def _place() -> str:
    """The line outside of this module that is at work."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
