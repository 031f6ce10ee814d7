"""The pump: the one task per `trio.run` that polls.

Facts      Trio's loop sleeps until its nearest deadline or the first event, and the descriptor of an event queue is
           readable while events wait in the queue. Virtual clocks know only the deadlines of cancel scopes.
Hazard     A clock of its own, a timerfd or a second thread would not follow `MockClock`. A wake-up for each deadline
           that is set would cost as much as trio's deadlines.
Answer     One system task waits for the port's descriptor inside one cancel scope whose deadline is the poller's wake
           time. The scope's deadline is moved only when the poller kicks. Time is `trio.current_time()`. A timerfd
           replaces the scope's deadline only on request and only in real time.
Cost       A wake with a single event costs one more turn of trio's loop than trio's own poller; a full batch costs
           less. Deadlines are cheap because they are a stored field, not because of this nesting.

This module is interpreted: around a compiled coroutine trio would put a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import trio
from trio.lowlevel import enable_ki_protection

from ...poll import Clock, Poller
from ...poll.timerfd import TimerFd
from ...timers.timer import INF


class Pump:
    """The sleep between two polls. `precise` replaces trio's alarm by a timerfd."""

    def __init__(self, poller: Poller, precise: bool) -> None:
        self._poller = poller
        self._scope = trio.CancelScope()
        self._timer = self._open_timer() if precise else None
        # when the present sleep ends by itself
        self._alarm = INF

    async def run(self) -> None:
        """Sleep and poll until the run ends: the system task."""
        try:
            while True:
                self._alarm = INF
                with trio.CancelScope() as self._scope:
                    await self._poll_until_a_deadline()
                # a deadline has cancelled the scope; there may be events as well
                self._poller.poll(0.0)
        finally:
            self._poller.shutdown()
            self._close_timer()

    async def _poll_until_a_deadline(self) -> None:
        fd = self._poller.port.fileno()
        while True:
            wake = self._poller.wake_deadline(self._alarm)
            if self._alarm != wake:
                self.wake_at(wake)
            await trio.lowlevel.wait_readable(fd)
            self._poller.poll(0.0)

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
