"""The pump: the one task per `trio.run` that polls.

Facts      Trio's loop sleeps until its nearest deadline or the first event, and the descriptor of an event queue is
           readable while events wait in the queue. Virtual clocks know only the deadlines of cancel scopes.
Hazard     A clock of its own, a timerfd or a second thread would not follow `MockClock`. A wake-up for each deadline
           that is set would cost as much as trio's deadlines.
Answer     One system task waits for the port's descriptor inside one cancel scope whose deadline is the poller's wake
           time. The scope's deadline is moved only when the poller kicks. Time is `trio.current_time()`. A timerfd
           replaces the scope's deadline only on request and only in real time.
Cost       A wake with a single event costs one more turn of trio's loop than trio's own poller; a full batch costs
           less. Deadlines gain from the stored field, not from this nesting.

A waiting task sleeps in a `Parking`; cancelling it is a field store. Everything runs in the thread of the run.
"""

from __future__ import annotations

import os
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import trio
from trio.lowlevel import RunVar, enable_ki_protection

from ..poll import Clock, Half, PollDesc, Poller, PollerStatistics, open_port
from ..poll.timerfd import TimerFd
from ..timers import Timer, Timers, check_queue
from ..timers.timer import INF
from .context import RunInContextCopy, run_to_first_trap
from .parking import Parking, ScheduledCheckpoint, TaskParker, YieldShielded, wake


@dataclass(frozen=True)
class RuntimeStatistics:
    """The counts of a run's pump: `kicks` of the sleeping pump by an earlier deadline, or in virtual time by a removed
    one, since the pump was started; and the counts of its poller."""

    kicks: int
    poller: PollerStatistics


def chosen_queue() -> str:
    """Return the name of the timer queue: DEADLINED_QUEUE if set and not empty, else "heap4". ValueError if unknown."""
    try:
        return check_queue(os.environ.get("DEADLINED_QUEUE") or "heap4")
    except ValueError as error:
        raise ValueError(f"DEADLINED_QUEUE: {error}") from None


def wants_precision() -> bool:
    """Whether DEADLINED_PRECISE asks for wakes finer than a millisecond. ValueError if it is neither 1 nor 0."""
    value = os.environ.get("DEADLINED_PRECISE", "")
    if value not in ("", "0", "1"):
        raise ValueError(f"DEADLINED_PRECISE is 1 or 0, not {value!r}")
    return value == "1"


class Pump:
    """The poller of one `trio.run`, and the task that drives it. Get it with `current_pump()`."""

    def __init__(self) -> None:
        clock = _current_clock()
        queue = chosen_queue()
        precise = clock.steady and wants_precision()
        self._poller = Poller(open_port(), clock, wake, self._kick, queue)
        self._scope = trio.CancelScope()
        self._timer = self._open_timer() if precise else None
        # when the present sleep ends by itself
        self._alarm = INF
        self._kicks = 0
        self.clock = clock
        _alive.add(self)

    @property
    def poller(self) -> Poller:
        """The poller, for code that sets timers with every request; other code uses the pump's methods."""
        return self._poller

    def open(self, fd: int) -> PollDesc:
        """Watch a non-blocking descriptor until `close`; see `Poller.open` for the errors."""
        return self._poller.open(fd)

    def close(self, desc: PollDesc) -> None:
        """Stop watching `desc`, and wake its waiters with the state CLOSED. Call it before the descriptor is closed.

        May be called after the run has ended.
        """
        self._poller.close(desc)

    def set_timer(self, timer: Timer, when: float) -> bool:
        """Arm `timer` for `when`, absolute seconds, or stop it for `inf`. Its callback runs in the pump. True if it was
        pending."""
        return self._poller.set_timer(timer, when)

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
            if self._timer is not None:
                self._timer.close()

    async def _poll_until_a_deadline(self) -> None:
        fd = self._poller.port.fileno()
        while True:
            wake = self._poller.wake_deadline(self._alarm)
            if self._alarm != wake:
                self._wake_at(wake)
            await trio.lowlevel.wait_readable(fd)
            self._poller.poll(0.0)

    @enable_ki_protection
    def _kick(self, when: float) -> None:
        self._kicks += 1
        self._wake_at(when)

    def _wake_at(self, when: float) -> None:
        self._alarm = when
        if self._timer is None:
            self._scope.deadline = when
        else:
            self._timer.arm(when - self.clock.now())

    def _open_timer(self) -> TimerFd:
        """Open a timer and register it with the poller's event queue, so that the same wait covers it."""
        timer = TimerFd()
        self._poller.open(timer.fileno())
        return timer

    def statistics(self) -> RuntimeStatistics:
        """A snapshot of the counts."""
        return RuntimeStatistics(self._kicks, self._poller.statistics())

    def disown(self) -> None:
        """Close the descriptors in a forked child, where the parent's run does not continue."""
        self._poller.disown()
        if self._timer is not None:
            self._timer.close()


_current: RunVar[Pump | None] = RunVar("deadlined_pump", default=None)
_alive: weakref.WeakSet[Pump] = weakref.WeakSet()


def _current_clock() -> Clock:
    """Return the run's clock. Trio's own is `time.perf_counter()` plus its attribute `offset`, which is verified."""
    clock = trio.lowlevel.current_clock()
    read: Callable[[], float] = clock.current_time
    offset = getattr(clock, "offset", None)
    if type(clock).__name__ != "SystemClock" or not isinstance(offset, float):
        return Clock(read)
    earlier, now, later = perf_counter() + offset, read(), perf_counter() + offset
    return Clock(read, offset if earlier <= now <= later else None)


def current_pump() -> Pump:
    """Return the pump of the running `trio.run`; the first call starts it.

    RuntimeError outside of a run, and after the run's main task has ended.
    """
    try:
        pump = _current.get()
    except RuntimeError:
        raise RuntimeError("this works inside trio.run() only, in a task or through trio.from_thread") from None
    if pump is None:
        pump = Pump()
        try:
            trio.lowlevel.spawn_system_task(pump.run, name="deadlined pump")
        except RuntimeError:
            pump._poller.shutdown()
            raise
        _current.set(pump)
    return pump


def statistics() -> RuntimeStatistics | None:
    """Return the counts of this run's pump; None if it was not started yet."""
    pump = _current.get()
    return None if pump is None else pump.statistics()


def call_soon() -> Callable[..., None]:
    """Return a function `call(function, *args)` for signal handlers and other threads: this run will call
    `function(*args)` soon."""
    return trio.lowlevel.current_trio_token().run_sync_soon


def _disown_all() -> None:
    for pump in list(_alive):
        pump.disown()


# Ctrl-C may interrupt a user's task between any two bytecodes. Functions that change queues must not be left halfway.
# (Compiled, they have no bytecode and cannot be interrupted.)
for _entry in (
    Parking.__await__,
    TaskParker.__await__,
    YieldShielded.__await__,
    ScheduledCheckpoint.__await__,
    RunInContextCopy.__await__,
    run_to_first_trap,
    wake,
    Half.set_deadline,
    Half.set_timeout,
    Half.unblock,
    Half.close,
    Poller.open,
    Poller.close,
    Timers.modify,
    Timers.stop,
):
    if isinstance(_entry, types.FunctionType):
        enable_ki_protection(_entry)

# An event queue is shared across fork: if a child deregisters a descriptor, its parent gets no more events of it.
os.register_at_fork(after_in_child=_disown_all)
