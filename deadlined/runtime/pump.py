"""The pump: the one task per `trio.run` that polls. How the others sleep and wake is in the modules beside it.

Facts      Trio's own loop sleeps until its nearest deadline or the first event, and an event queue's descriptor is
           itself readable while events wait in it. Virtual clocks know of deadlines only through cancel scopes.
Hazard     A clock of its own, or a timerfd or a second thread in place of trio's, would be deaf to `MockClock`; a
           wake-up per deadline set would cost what deadlines in trio cost.
Answer     One system task waits for the port's descriptor inside one cancel scope whose deadline is the poller's wake
           time. It is moved only when the poller kicks. Time is `trio.current_time()`. A timerfd takes the place of the
           scope's deadline only where it is asked for and time is real.
Cost       A wake that carries a single event costs one more turn of trio's loop than trio's own poller; a full batch
           costs less. What deadlines gain comes from the stored field, not from this nesting.

A task that waits does so in a `Parking`; cancelling it is a field store. Everything runs in the thread of
the run.
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
    """`kicks` of the sleeping pump by an earlier deadline, or by a removed one where time is virtual, since the run's
    first use; and its poller's counts."""

    kicks: int
    poller: PollerStatistics


def chosen_queue() -> str:
    """The timer queue of every run: DEADLINED_QUEUE if it is set and not empty. ValueError if there is none such."""
    try:
        return check_queue(os.environ.get("DEADLINED_QUEUE") or "heap4")
    except ValueError as error:
        raise ValueError(f"DEADLINED_QUEUE: {error}") from None


def wants_precision() -> bool:
    """Whether DEADLINED_PRECISE asks for wakes that are finer than a millisecond. ValueError if it says neither."""
    wish = os.environ.get("DEADLINED_PRECISE", "")
    if wish not in ("", "0", "1"):
        raise ValueError(f"DEADLINED_PRECISE is 1 or 0, not {wish!r}")
    return wish == "1"


class Pump:
    """The poller of one `trio.run`, and the task that drives it. `current_pump()` makes it and finds it again."""

    def __init__(self) -> None:
        clock = _current_clock()
        queue = chosen_queue()
        precise = clock.steady and wants_precision()
        self._poller = Poller(open_port(), clock, wake, self._kick, queue)
        self._scope = trio.CancelScope()
        self._timer = self._open_timer() if precise else None
        # when the sleep ends by itself
        self._alarm = INF
        self._kicks = 0
        self.clock = clock
        _alive.add(self)

    @property
    def poller(self) -> Poller:
        """For whoever sets timers with every request; everybody else has the pump's own methods."""
        return self._poller

    def open(self, fd: int) -> PollDesc:
        """Watch a non-blocking descriptor until `close`; see `Poller.open` for the errors."""
        return self._poller.open(fd)

    def close(self, desc: PollDesc) -> None:
        """Fail and wake whoever waits on `desc` and stop watching it; to be called before its descriptor is closed.

        Works also after the run has ended.
        """
        self._poller.close(desc)

    def set_timer(self, timer: Timer, when: float) -> bool:
        """Let `timer` fire at `when` (its callback runs in the pump), `inf` stops it; was it pending?"""
        return self._poller.set_timer(timer, when)

    async def run(self) -> None:
        """The system task: sleep, poll, until the run ends."""
        try:
            while True:
                self._alarm = INF
                with trio.CancelScope() as self._scope:
                    await self._poll_until_a_deadline()
                # a deadline came and cancelled the scope; there may be events, too
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
        """The timer lies in the poller's own event queue, so that one wait hears of it, too."""
        timer = TimerFd()
        self._poller.open(timer.fileno())
        return timer

    def statistics(self) -> RuntimeStatistics:
        """A snapshot of the counts."""
        return RuntimeStatistics(self._kicks, self._poller.statistics())

    def disown(self) -> None:
        """In a forked child, where the parent's run does not go on."""
        self._poller.disown()
        if self._timer is not None:
            self._timer.close()


_current: RunVar[Pump | None] = RunVar("deadlined_pump", default=None)
_alive: weakref.WeakSet[Pump] = weakref.WeakSet()


def _current_clock() -> Clock:
    """The run's clock. Trio's own is `time.perf_counter()` plus a constant that it shows; believed only if it is so."""
    clock = trio.lowlevel.current_clock()
    read: Callable[[], float] = clock.current_time
    offset = getattr(clock, "offset", None)
    if type(clock).__name__ != "SystemClock" or not isinstance(offset, float):
        return Clock(read)
    earlier, now, later = perf_counter() + offset, read(), perf_counter() + offset
    return Clock(read, offset if earlier <= now <= later else None)


def current_pump() -> Pump:
    """The pump of the running `trio.run`, started by the first call.

    RuntimeError outside of a run, and once the run's main task has ended.
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
    """The counts of this run's pump; None if nothing has used it yet."""
    pump = _current.get()
    return None if pump is None else pump.statistics()


def call_soon() -> Callable[..., None]:
    """`call(function, *args)` for this run, to be used from signal handlers and other threads: the run calls it
    soon."""
    return trio.lowlevel.current_trio_token().run_sync_soon


def _disown_all() -> None:
    for pump in list(_alive):
        pump.disown()


# Ctrl-C may fall between any two bytecodes of a user's task; what moves entries about must finish what it began.
# (Compiled, these have no bytecode and are not interrupted anyway.)
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

# An event queue is shared across fork: a child that deregisters a descriptor makes its parent deaf.
os.register_at_fork(after_in_child=_disown_all)
