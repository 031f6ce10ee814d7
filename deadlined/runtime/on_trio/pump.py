"""The pump: what polls in a `trio.run`, one task and one call per turn of trio's loop.

Facts      Trio's loop sleeps until its nearest deadline or the first event, and the descriptor of an event queue is
           readable while events wait in the queue. Virtual clocks know only the deadlines of cancel scopes. A task
           that an event wakes runs in the turn that has found the event; a task that it wakes runs in the next one.
           Trio's instruments are called after each wait, before the tasks of the turn are chosen.
Hazard     A clock of its own, a timerfd or a second thread would not follow `MockClock`. A wake-up for each deadline
           that is set would cost as much as trio's deadlines. Trio removes an instrument that fails.
Answer     One system task waits for the port's descriptor inside one cancel scope whose deadline is the poller's wake
           time. The scope's deadline is moved only when the poller kicks. The pump is also an instrument: if the wait
           has woken the task, or the wake time has come, it polls at once, and what that wakes runs in the same turn.
           The task polls itself if this was not done. Time is `trio.current_time()`. A timerfd replaces the scope's
           deadline only on request and only in real time.
Cost       A wake costs a step of the pump's task beside that of the task that it concerns, whatever the number of
           events; a wake by a deadline moves the scope's deadline instead. Each turn of trio's loop makes one call.

This module is interpreted: around a compiled coroutine trio would put a frame of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Final

import trio
from trio.lowlevel import Task, add_instrument, current_task, enable_ki_protection

from ...poll import Clock, Poller
from ...poll.timerfd import TimerFd
from ...timers.timer import INF
from .instruments import runs_in_asyncio
from .last import while_others_are_left

_log: Final = logging.getLogger("deadlined.runtime")

# a mark in `Task.custom_sleep_data`, which trio sets to None when it schedules the task
_ASLEEP: Final = object()


class Pump(trio.abc.Instrument):
    """The sleep between two polls. `precise` replaces trio's alarm by a timerfd."""

    def __init__(self, poller: Poller, precise: bool) -> None:
        self._poller = poller
        self._scope = trio.CancelScope()
        self._timer = self._open_timer() if precise else None
        # when the present sleep ends by itself
        self._alarm = INF
        self._task: Task | None = None
        # `after_io_wait` has polled for the event that has woken the task
        self._has_polled = False
        # turns of trio's loop so far; 0 in a guest run, where nothing counts them
        self.turns: int = 0
        # what a timer's callback has raised in `after_io_wait`, to be raised in the task
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Sleep and poll until all other tasks of the run have ended: the system task."""
        task = self._task = current_task()
        if not runs_in_asyncio():
            add_instrument(self)
        try:
            await self._pump()
        except BaseException:
            # cancelled, or a timer's callback has failed, which ends the run
            self._failure = None
            assert task.parent_nursery is not None
            task.parent_nursery.cancel_scope.cancel()
            await while_others_are_left(self._pump_on)
            raise
        finally:
            self._task = None
            self._poller.shutdown()
            self._close_timer()

    async def _pump(self) -> None:
        """Sleep and poll until cancelled."""
        while True:
            self._alarm = INF
            self._has_polled = False
            with trio.CancelScope() as self._scope:
                await self._poll_until_a_deadline()
            if self._failure is not None:
                raise self._failure
            # a deadline has cancelled the scope; there may be events as well
            self._poller.poll(0.0)

    async def _pump_on(self) -> None:
        """Do what `_pump` does at the end of a run, which a timer's callback that fails cannot end once more."""
        while True:
            try:
                await self._pump()
            except (Exception, trio.Cancelled):
                raise
            except BaseException as failure:
                self._failure = None
                _log.error("a timer's callback has failed while the run ends", exc_info=failure)

    async def _poll_until_a_deadline(self) -> None:
        task = current_task()
        fd = self._poller.port.fileno()
        while True:
            self._set_alarm()
            task.custom_sleep_data = _ASLEEP
            await trio.lowlevel.wait_readable(fd)
            if not self._has_polled:
                self._poller.poll(0.0)
            self._has_polled = False

    @enable_ki_protection
    def after_io_wait(self, timeout: float) -> None:
        """Poll if the task was woken or the wake time has come. Trio's loop calls it in each turn."""
        self.turns += 1
        task = self._task
        if task is None:
            return
        is_due = self._alarm < INF and self._timer is None and self._poller.clock.now() >= self._alarm
        is_woken = task.custom_sleep_data is None
        if is_due or is_woken:
            self._has_polled = is_woken
            try:
                self._poller.poll(0.0)
            except BaseException as error:
                self._failure = error
                self._scope.cancel()
                return
            if is_due:
                self._set_alarm()

    def _set_alarm(self) -> None:
        """End the present sleep when the poller must be called."""
        if self._timer is not None and self._alarm <= self._poller.clock.now():
            # a timerfd fires once
            self._alarm = INF
        wake = self._poller.wake_deadline(self._alarm)
        if self._alarm != wake:
            self.wake_at(wake)

    @enable_ki_protection
    def wake_at(self, when: float) -> None:
        """End the present sleep at `when`."""
        self._alarm = when
        if self._timer is None:
            self._scope.deadline = when
        else:
            self._timer.arm(when - self._poller.clock.now())

    def disown(self) -> None:
        """Close the descriptors in a forked child, where the parent's run does not continue."""
        self._poller.disown()
        self._close_timer()

    def _open_timer(self) -> TimerFd:
        """Open a timer and register it with the poller's event queue, so that the same wait covers it."""
        timer = TimerFd()
        self._poller.open(timer.fileno())
        return timer

    def _close_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()


def clock_of_run() -> Clock:
    """Return the run's clock. Trio's own is `time.perf_counter()` plus its attribute `offset`, which is verified."""
    clock = trio.lowlevel.current_clock()
    read: Callable[[], float] = clock.current_time
    offset = getattr(clock, "offset", None)
    if type(clock).__name__ != "SystemClock" or not isinstance(offset, float):
        return Clock(read)
    earlier, now, later = perf_counter() + offset, read(), perf_counter() + offset
    return Clock(read, offset if earlier <= now <= later else None)
