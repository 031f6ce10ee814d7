"""Asyncio's host: what `host.py` asks of an event loop, by asyncio's public functions.

Facts      A loop calls a function when a descriptor is readable (`add_reader`) and at a time (`call_later`). uvloop
           caches its clock and counts in milliseconds.
Hazard     By a cached clock a deadline would fire early. Moving an alarm with each deadline would cost as much as
           asyncio's own timeouts. A loop does not report that it is closed.
Answer     Time is `time.monotonic`, and an alarm that comes too early is set again. The alarm is moved only when the
           poller kicks. The host holds an asynchronous generator, and ends when the loop closes its generators. A loop
           that is dropped without closing them drops the host with it.
Cost       Two microseconds per lone wake on uvloop, three on asyncio's loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from ...poll import Clock, Half, PollDesc, Poller, open_port
from ...poll.timerfd import TimerFd
from ..forking import Inherited, end_child
from ..guest import trio_runs
from ..host import Group, Host, Parking, ResultT, Turn, Waiter
from ..options import chosen_queue, wants_precision
from ..tasks import ContainedTasks
from .alarms import Alarms, LoopSleep
from .group import AsyncioGroup
from .lifetime import at_end_of_loop
from .tasks import AsyncioTasks
from .waiting import AsyncioParking, AsyncioTurn, AsyncioWaiter, Checkpoint, wake

_CHECKPOINT: Final = Checkpoint()

# None instead of an error where no loop runs; a name of this module, which compiled code finds faster
_running_loop: Final = asyncio._get_running_loop

# where a loop keeps its host
_ATTRIBUTE: Final = "_deadlined_host"


class AsyncioHost(Host):
    """The host of one event loop of asyncio."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.library = "asyncio"
        self.yields_first = True
        clock = clock_of(loop)
        queue = chosen_queue()
        precise = clock.steady and wants_precision()
        super().__init__(Poller(open_port(), clock, wake, self.kick, queue))
        self.loop: Final[Any] = loop
        # not `_thread`: mypyc would make a keyword of C of it
        self._home_thread = threading.get_ident()
        self._alarms: Final = Alarms(loop, clock)
        # takes the place of the loop's alarm, in the poller's own event queue; None unless DEADLINED_PRECISE wants it
        self._timer: TimerFd | None = TimerFd() if precise else None
        if self._timer is not None:
            self.poller.open(self._timer.fileno())
        # a ThreadPoolExecutor, made when needed
        self._threads: Any = None
        # when the alarm rings, inf if it is not set
        self._alarm_at = math.inf
        self._alarm: Any = None
        # not in the context of the code that opened the first connection, which it would keep
        Context().run(loop.add_reader, self.poller.port.fileno(), self._poll)
        # closes the event queue in a forked child
        self._inherited = Inherited(self.disown, self.poller.is_open)
        self._lifetime = at_end_of_loop(self._end)
        self._set_alarm()

    def kick(self, when: float) -> None:
        """Let the alarm ring at `when`. Called by the poller."""
        self.kicks += 1
        self._ring_at(when)

    def _end(self) -> None:
        """Close the poller because the loop ends; not if a program has only closed the loop's generators."""
        if not self.holds:
            self.shut_down()

    def shut_down(self) -> None:
        """Close the poller. Idempotent."""
        if self.poller.is_open():
            self.loop.remove_reader(self.poller.port.fileno())
            self._cancel_alarm()
            self.poller.shutdown()
            self._close_timer()
            if self._threads is not None:
                self._threads.shutdown(wait=False)

    def close(self, desc: PollDesc) -> None:
        if self.loop.is_closed() and self.poller.is_open():
            # by a program, without its generators; a task that waits there cannot be woken
            self.poller.abandon()
            self._close_timer()
        super().close(desc)

    def disown(self) -> None:
        """Close the descriptors in a forked child, where the parent's loop does not continue."""
        self.poller.disown()
        self._close_timer()

    def cancelled_tasks(self) -> list[str]:
        tasks = [task for task in asyncio.all_tasks(self.loop) if task.cancelling()]
        return sorted(f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})" for task in tasks)

    def runs_here(self) -> bool:
        return _running_loop() is self.loop and self.poller.is_open() and not trio_runs()

    def parking(self, half: Half) -> Parking:
        return AsyncioParking(half, self.loop)

    def turn(self, half: Half) -> Turn:
        return AsyncioTurn(half)

    def checkpoint(self) -> Awaitable[None]:
        return _CHECKPOINT

    def waiter(self) -> Waiter:
        return AsyncioWaiter(self.loop)

    def sleep_until(self, when: float) -> Awaitable[None]:
        # what wakes finer than the loop's own timers is the poller's
        return LoopSleep(self._alarms, when) if self._timer is None else super().sleep_until(when)

    def group(self) -> Group:
        return AsyncioGroup()

    def contained_tasks(self) -> ContainedTasks:
        return AsyncioTasks(self.loop)

    def call_soon_from_anywhere(self, function: Callable[..., object], *args: Any) -> None:
        self.loop.call_soon_threadsafe(function, *args)

    def end_child_on_return(self) -> None:
        # in a child of another thread the loop does not run
        if threading.get_ident() == self._home_thread:
            self.loop.call_soon(end_child)

    def in_thread(self, function: Callable[[], ResultT]) -> Awaitable[ResultT]:
        if self._threads is None:
            # few programs need it
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(thread_name_prefix="deadlined")
        called: Awaitable[ResultT] = self.loop.run_in_executor(self._threads, function)
        return called

    async def getaddrinfo(self, host: bytes | str | None, port: int, kind: int, flags: int) -> list[Any]:
        found: list[Any] = await self.loop.getaddrinfo(host, port, type=kind, flags=flags)
        return found

    def _poll(self) -> None:
        """Process events and due deadlines. The loop calls it when the event queue is readable."""
        if not self.poller.is_open():
            # a forked child may get here before it ends
            return
        try:
            self.poller.poll(0.0)
        finally:
            # also after a KeyboardInterrupt or SystemExit: the program may run the loop again, to clean up
            self._set_alarm()

    def ring(self) -> None:
        """Process events and due deadlines. Called by the alarm."""
        self._alarm = None
        self._alarm_at = math.inf
        self._poll()

    def _set_alarm(self) -> None:
        if self._timer is not None and self._alarm_at <= self.clock.now():
            # a timerfd fires once
            self._alarm_at = math.inf
        when = self.poller.wake_deadline(self._alarm_at)
        if when != self._alarm_at:
            self._ring_at(when)

    def _ring_at(self, when: float) -> None:
        self._alarm_at = when
        if self._timer is not None:
            self._timer.arm(when - self.clock.now())
            return
        self._cancel_alarm()
        if when < math.inf:
            self._alarm = self._alarms.set(when, _ring, self)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _close_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()


def _ring(host: AsyncioHost) -> None:
    host.ring()


def clock_of(loop: AbstractEventLoop) -> Clock:
    """Return the clock of deadlines in `loop`: `time.monotonic`, or the loop's own if it has replaced that."""
    if loop_has_own_clock(loop):
        return Clock(loop.time)
    same = time.get_clock_info("perf_counter").implementation == time.get_clock_info("monotonic").implementation
    return Clock(time.monotonic, 0.0 if same else None)


def loop_has_own_clock(loop: AbstractEventLoop) -> bool:
    """Return True if the loop's class is Python's own with another `time`, for example a virtual one of tests."""
    return isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is not asyncio.BaseEventLoop.time


def current_asyncio_host() -> AsyncioHost:
    """Return the host of the running event loop; the first call makes it. RuntimeError without a running loop."""
    loop = asyncio.get_running_loop()
    host: AsyncioHost | None = getattr(loop, _ATTRIBUTE, None)
    if host is None or not host.poller.is_open():
        host = AsyncioHost(loop)
        setattr(loop, _ATTRIBUTE, host)
    return host


def started_asyncio_host() -> AsyncioHost | None:
    """Return the host of the running event loop if it was made. RuntimeError without a running loop."""
    return started_host_of(asyncio.get_running_loop())


def started_host_of(loop: AbstractEventLoop) -> AsyncioHost | None:
    """Return the host of `loop` if it was made."""
    host: AsyncioHost | None = getattr(loop, _ATTRIBUTE, None)
    return host
