"""Go's time API for tasks: `sleep`, `Timer`, `Ticker` and `after_func`, on the heap of the connections' deadlines.

Facts      A Go timer is a channel on which one time arrives. Since Go 1.23 the channel buffers nothing: a timer is in
           the heap only while a goroutine waits for it, and is otherwise checked when one receives from it.
Hazard     Before Go 1.23, a program could receive a value that was sent before `Stop` or `Reset` returned, and few
           programs handled that. A ticker that was not stopped lived and ticked for ever (golang/go#37196).
Answer     A timer is a field, the time that is due. A task that waits after that time gets it at once. A task that
           waits before it parks, and only then the heap has an entry. So there is no stored value for `stop` to drain,
           and a timer without references and waiters is collected.
Cost       On trio a sleep is a heap entry, not a cancel scope, and sleepers share the pump's wake-ups: 10 us per sleep
           against trio's 20 with 1,000 sleeping tasks, 15 against 20 with 10 (interpreted). On asyncio a `sleep` is a
           timer of the event loop, and costs what the loop's own sleep costs.

A timer starts when it is made, and with each `reset`. Each start ends at most once: one `wait` gets the time, or one
`stop` or `reset` returns True. A time counts as received when it is handed to a parked task. On trio the task gets it
even if it is cancelled before it runs; on asyncio such a cancellation discards the time. Timers and tickers belong to
one event loop and are not thread-safe.

With debugging on (`DEADLINED_DEBUG=1`, `set_debug(True)` or Python's development mode), `statistics` says where the
running timers and tickers were made.
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
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

from .runtime import Host, Waiter, checkpoint, current_host
from .runtime import protected_from_interrupts as enable_ki_protection
from .timers import Timer as Entry
from .timers import next_tick

__all__ = ["Ticker", "Timer", "TimingStatistics", "after_func", "set_debug", "sleep", "sleep_until", "statistics"]

INF = math.inf


@enable_ki_protection
async def sleep(seconds: float) -> None:
    """Sleep for `seconds`. Zero or less is only a checkpoint, `inf` sleeps until cancelled, NaN is a ValueError.

    Always a checkpoint; never ends early. RuntimeError outside of an event loop.
    """
    host = current_host()
    await _sleep(host, host.clock.now() + seconds, seconds)


@enable_ki_protection
async def sleep_until(when: float) -> None:
    """Sleep until `when`, absolute seconds on the loop's clock (`deadlined.current_time()`); otherwise as `sleep`."""
    host = current_host()
    await _sleep(host, when, when - host.clock.now())


def _sleep(host: Host, when: float, seconds: float) -> Awaitable[None]:
    """Return an awaitable that sleeps until `when`, `seconds` from now."""
    if seconds > 0.0:
        return host.sleep_until(when)
    if math.isnan(seconds):
        raise ValueError("the time to sleep must not be NaN")
    return checkpoint()


class _Source(ABC):
    """A time, and the tasks that wait for it in the order of their arrival."""

    __slots__ = ("__weakref__", "_entry", "_host", "_waiters", "_when", "place")

    kind: ClassVar[str]
    debug: ClassVar[bool] = sys.flags.dev_mode or os.environ.get("DEADLINED_DEBUG", "0") not in ("", "0")

    def __init__(self) -> None:
        host = current_host()
        self._host = host
        self._entry = Entry(type(self).fire)
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        # the time to receive; inf once it was received, and while the timer is stopped
        self._when = INF
        # the line that made it, if debugging was on
        self.place: str = _place() if _Source.debug else ""
        _started(host).add(self)

    @property
    def running(self) -> bool:
        """True if there is a time to receive or a function to call, now or later."""
        return self._when < INF

    async def _receive(self) -> float:
        """Wait for the time and return it. inf if a stop has ended the wait, or if the time was stopped, or received by
        another task, just before."""
        self._require_this_loop()
        if self._is_due:
            # before the time is received: a cancellation in this pause must not lose it
            await checkpoint()
            if self._is_due:
                return self._consume()
            if not self.running:
                return INF
        waiter = self._host.waiter()

        def remove() -> None:
            del self._waiters[waiter]
            self._file()

        self._waiters[waiter] = None
        self._file()
        return await waiter.park(remove)

    @property
    def _is_due(self) -> bool:
        return self._when <= self._host.clock.now() and not self._waiters

    @abstractmethod
    def _consume(self) -> float:
        """Return the time that is due, which counts as received."""

    def fire(self, seq: int, lateness: float) -> None:
        """Hand the time, which has come, to the first waiter. The timer queue calls it."""
        waiter, _ = self._waiters.popitem(last=False)
        waiter.wake(self._consume())
        if self._waiters:
            self._file()
        else:
            # nothing is in the heap; the entry may be kept, and must not keep its owner alive
            self._entry.arg = None

    def _file(self) -> None:
        """Keep an entry in the heap exactly while a time is to come and a task waits for it."""
        when = self._when if self._waiters else INF
        # a stopped entry may stay in the heap for long and must not keep its owner alive
        self._entry.arg = self if when < INF else None
        self._host.set_timer(self._entry, when)

    def _require_this_loop(self) -> None:
        if not self._host.runs_here():
            raise RuntimeError(
                f"{self!r} was made in another event loop, or before the end (`shutdown_asyncgens()`) of this one"
            )

    def __repr__(self) -> str:
        made = f" made at {self.place}" if self.place else ""
        return f"<{self.kind} {f'when={self._when!r}' if self.running else 'stopped'}{made}>"


class Timer(_Source):
    """A time that comes after `seconds`, for one receiver: Go's `time.NewTimer`.

    With `seconds` of zero or less the time has come already; `inf` makes a stopped timer, for a later `reset`. NaN is a
    ValueError. RuntimeError outside of an event loop.

    Any number of tasks may wait. Each start of the timer serves the one that came first; the others wait for the next
    `reset`.
    """

    __slots__ = ()
    kind = "Timer"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._start(self._from_now(seconds))

    @enable_ki_protection
    async def wait(self) -> float:
        """Sleep until the time comes, and return the time that was due, even if it is received later.

        Always a checkpoint. On a stopped timer, or one whose time was received, it waits for a `reset`. RuntimeError
        for a timer of `after_func`, which has no time to receive.
        """
        # what was due may have gone to another task, or been stopped, in the pause before it is received
        while (when := await self._receive()) == INF:
            pass
        return when

    def stop(self) -> bool:
        """Stop the timer: nothing can be received until a `reset`. Waiting tasks wait on.

        True if this prevents the time from being received, even if it had come already. False if a task has received it
        (or was woken with it), or if the timer was stopped before. With `after_func`, True means that the function was
        not called and will not be; False that it was called or is being called now.
        """
        return self._start(INF)

    def reset(self, seconds: float) -> bool:
        """Stop the timer and start it again for `seconds` from now. Returns what `stop` would. Waiting tasks wait for
        the new time."""
        self._require_this_loop()
        return self._start(self._from_now(seconds))

    @enable_ki_protection
    def _start(self, when: float) -> bool:
        pending = self._when < INF
        self._when = when
        self._file()
        return pending

    def _consume(self) -> float:
        value, self._when = self._when, INF
        return value

    def _from_now(self, seconds: float) -> float:
        if seconds != seconds:
            raise ValueError("seconds must not be NaN")
        return self._host.clock.now() + max(seconds, 0.0)


class Ticker(_Source):
    """A time that comes every `period` seconds, first one period from now: Go's `time.NewTicker`.

        async for when in deadlined.Ticker(1.0):
            ...

    `when` is the time at which the tick was due. One tick is kept for a slow consumer; further ones are dropped, and
    the phase is kept. Each tick goes to one consumer, the one that came first. The loop ends when the ticker is
    stopped (in Go it would hang). A ticker without references is collected; it need not be stopped.

    A period that is not positive and finite is a ValueError. RuntimeError outside of an event loop.
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
        """Wait for the next tick and return the time at which it was due. Always a checkpoint."""
        slept = False
        while self._when < INF:
            when = await self._receive()
            if when < INF:
                return when
            # stopped, and perhaps started again since
            slept = True
        if not slept:
            await checkpoint()
        raise StopAsyncIteration

    @enable_ki_protection
    def stop(self) -> None:
        """Stop the ticker: no tick can be received any more, even if it had come. Loops over the ticker end, unless it
        is `reset` before their tasks run. Idempotent."""
        self._when = INF
        self._file()
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            waiter.wake(INF)

    @enable_ki_protection
    def reset(self, period: float) -> None:
        """Start the ticker again, stopped or not: the next tick is due one `period` from now. Waiting tasks wait for
        it."""
        if not 0.0 < period < INF:
            raise ValueError(f"period must be positive and finite, in seconds, not {period!r}")
        self._require_this_loop()
        self._period = period
        self._when = self._host.clock.now() + period
        self._file()

    def _consume(self) -> float:
        value = self._when
        self._when = next_tick(value, self._period, self._host.clock.now())
        return value


class _FunctionTimer(Timer):
    """A timer that calls a function instead of serving a receiver. Its heap entry keeps it alive until then."""

    __slots__ = ("_args", "_context", "_function")

    def __init__(self, seconds: float, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._context = contextvars.copy_context()
        super().__init__(seconds)

    async def wait(self) -> float:
        raise RuntimeError("a timer of after_func has no time to receive: let its function set an event")

    def fire(self, seq: int, lateness: float) -> None:
        self._when = INF
        self._entry.arg = None
        try:
            outcome = self._context.run(self._function, *self._args)
            # `inspect.iscoroutine` does not know those of compiled functions
            if isinstance(outcome, Coroutine):
                outcome.close()
                raise _no_async(self._function)
        except Exception as error:
            error.add_note(f"while after_func called {self._function!r}{f' of {self.place}' if self.place else ''}")
            raise

    def _file(self) -> None:
        # it needs no waiter
        self._entry.arg = self if self._when < INF else None
        self._host.set_timer(self._entry, self._when)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} calls {self._function!r}>"


def after_func(seconds: float, fn: Callable[..., object], *args: Any) -> Timer:
    """Call `fn(*args)` after `seconds`, unless the returned timer is stopped before. After a `reset` it is called
    again.

    The event loop calls `fn` between the steps of tasks, in a copy of the caller's context. It must be short and must
    not block; it may start, stop and reset timers. With zero or negative `seconds` it is called soon, never inside this
    call. An Exception in it is logged and does not affect other timers; any other BaseException ends the event loop, as
    in all of its callbacks.

    Go runs the function in a new goroutine. Here that would be a task without a parent, whose failure would go
    unnoticed, so an async function is a TypeError. Name the tasks that it shall belong to:
    `after_func(5, nursery.start_soon, work)` in trio, `after_func(5, lambda: group.create_task(work()))` in asyncio.

    The timer lives until `fn` was called, even without references. The event loop does not wait for it: a function that
    is still pending at the end of the loop is not called.
    """
    if not callable(fn):
        raise TypeError(f"after_func needs a function to call, not {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        raise _no_async(fn)
    return _FunctionTimer(seconds, fn, args)


def _no_async(fn: Callable[..., object]) -> TypeError:
    return TypeError(
        f"after_func calls plain functions, and {fn!r} is async: start it in tasks that are waited for, "
        "after_func(seconds, nursery.start_soon, fn) or after_func(seconds, lambda: group.create_task(fn()))"
    )


@dataclass(frozen=True)
class TimingStatistics:
    """The `timers` (also those of `after_func`) and `tickers` of an event loop that were started and not received,
    stopped or collected. `places` counts those made while debugging was on by the line that made them ("Ticker
    app.py:12"), the most frequent first."""

    timers: int
    tickers: int
    places: Mapping[str, int]


def statistics() -> TimingStatistics:
    """Return a snapshot of this event loop. RuntimeError outside of one."""
    running = [source for source in _started(current_host()) if source.running]
    kinds = Counter(source.kind for source in running)
    places = Counter(f"{source.kind} {source.place}" for source in running if source.place)
    return TimingStatistics(kinds["Timer"], kinds["Ticker"], dict(places.most_common()))


def set_debug(on: bool) -> None:
    """Make new timers and tickers remember the line that makes them, or not. It costs 1 to 2 microseconds each."""
    _Source.debug = on


def _started(host: Host) -> weakref.WeakSet[_Source]:
    """Return the timers and tickers that were made in the event loop of `host`."""
    found: weakref.WeakSet[_Source] | None = host.locals.get("timing")
    if found is None:
        found = host.locals["timing"] = weakref.WeakSet()
    return found


def _place() -> str:
    """Return the innermost line that runs outside of this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
