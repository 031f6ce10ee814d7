"""What an event loop gives to the code above it: the protocol that trio's and asyncio's hosts implement.

Facts      A deadline belongs to a descriptor and its timer to our own queue, so an event loop only has to watch one
           descriptor, set one alarm, and let tasks sleep.
Hazard     Two copies of a server, one per event loop, drift apart (hypercorn's differ in 20 to 40 % of their lines).
Answer     Everything above this package is one source. It reaches the loop through the classes of this module and of
           `tasks.py`, and imports neither trio nor asyncio.
Cost       Each call goes through an abstract class.

The two loops differ in one rule. Trio can hold a cancellation back, so an operation that need not sleep is done first
and lets other tasks run after it. Asyncio cannot: a cancellation that comes in that pause would discard what the
operation has received. So there the pause comes first (`yields_first`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..poll import Clock, Half, PollDesc, Poller, PollerStatistics
from ..timers import Timer
from ..value import Value
from .tasks import ContainedTasks

ResultT = TypeVar("ResultT")


class ReadyCallback:
    """A waiter that is called instead of a task that is woken. An abstract base class."""

    __slots__ = ()

    def on_ready(self) -> None:
        """Record that the half may be ready, has expired or was closed. Called by the pump, at most once per park. Must
        not block or raise."""
        raise NotImplementedError


class Parking:
    """Where the tasks that wait for a half of a descriptor sleep, one at a time. An abstract base class.

    `await parking` sleeps until the half is ready, expired or closed, and returns the state (a constant of `poll`). It
    is a checkpoint only if it sleeps. A cancellation is raised and leaves the half unchanged.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, int]:
        raise NotImplementedError


class Turn:
    """A checkpoint before an operation on a half: other tasks run, and a cancellation that is pending or comes
    meanwhile is raised. For one task at a time. An abstract base class.

    `await turn` returns the result of the half's `reset()` after it.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, int]:
        raise NotImplementedError


class Waiter:
    """One sleep of the task that makes it, for code that keeps its own list of sleeping tasks. Used once. An abstract
    base class."""

    __slots__ = ()

    def park(self, on_cancel: Callable[[], object]) -> Awaitable[float]:
        """Return an awaitable that sleeps until `wake(value)`, and returns the value. A checkpoint.

        If a cancellation comes before the wake, `on_cancel` is called at once. It must prevent any later call of `wake`
        and must not raise. If a cancellation comes after the wake and before the task runs, trio returns the value, and
        the next checkpoint raises; asyncio raises, and the value is lost.
        """
        raise NotImplementedError

    def wake(self, value: float) -> None:
        """Schedule the task. Call it once, and only while the task is parked."""
        raise NotImplementedError


class Group:
    """Tasks that end together: trio's nursery, asyncio's TaskGroup. `async with open_group() as group`. An abstract
    base class.

    The block ends when all tasks have ended. An exception of a task cancels the others and the block, and the block
    raises an ExceptionGroup.
    """

    __slots__ = ()

    async def __aenter__(self) -> Group:
        raise NotImplementedError

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool | None:
        raise NotImplementedError

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run `function(*args)` in a task of the group."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel all tasks of the group. Only in one of them or in the block, which must then wait for their end and
        nothing else."""
        raise NotImplementedError

    def shield(self) -> None:
        """Keep cancellations from outside the block away from it and from the tasks of the group, from now on.

        Only trio needs this: there a cancelled scope cancels every wait below it. On asyncio a cancellation is raised
        once, in the task of the block. It still is, as Ctrl-C still is on trio.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RuntimeStatistics(Value):
    """The counts of a host: `kicks` of the sleeping pump by an earlier deadline, or in virtual time by a removed one,
    since the pump was started; and the counts of its poller."""

    kicks: int
    poller: PollerStatistics


class Host:
    """An event loop and the poller that runs in it. Get it with `current_host()`. An abstract base class."""

    # the name of the loop's library: "trio" or "asyncio"
    library: str
    # an operation begins with its checkpoint, because the loop cannot hold a cancellation back until it has ended
    yields_first: bool

    def __init__(self, poller: Poller) -> None:
        self.poller: Final = poller
        self.clock: Final[Clock] = poller.clock
        self.kicks = 0
        # how many tasks of the loop need the poller until they end
        self.holds = 0
        # objects that modules above keep for each event loop; a module chooses its key
        self.locals: Final[dict[str, Any]] = {}

    def runs_here(self) -> bool:
        """Return True if the caller runs in this host's event loop, and the host has not ended: if it is the
        `current_host()`."""
        raise NotImplementedError

    @property
    def is_inherited(self) -> bool:
        """True in a forked child, where what was opened here belongs to the parent, and may only be closed."""
        return self.poller.disowned

    def open(self, fd: int) -> PollDesc:
        """Watch a non-blocking descriptor until `close`; see `Poller.open` for the errors."""
        return self.poller.open(fd)

    def close(self, desc: PollDesc) -> None:
        """Stop watching `desc`, and wake its waiters with the state CLOSED. Call it before the descriptor is closed.

        May be called after the event loop has ended.
        """
        self.poller.close(desc)

    def set_timer(self, timer: Timer, when: float) -> bool:
        """Arm `timer` for `when`, absolute seconds, or stop it for `inf`. Its callback runs in the pump. True if it was
        pending. After the end of the host a timer can only be stopped: RuntimeError for any other `when`."""
        return self.poller.set_timer(timer, when)

    def statistics(self) -> RuntimeStatistics:
        """Return a snapshot of the counts."""
        return RuntimeStatistics(self.kicks, self.poller.statistics())

    def parking(self, half: Half) -> Parking:
        """Make the place where tasks wait for `half`."""
        raise NotImplementedError

    def turn(self, half: Half) -> Turn:
        """Make the checkpoint before operations on `half`."""
        raise NotImplementedError

    def checkpoint(self) -> Awaitable[None]:
        """Return an awaitable that lets other tasks run and raises a pending cancellation."""
        raise NotImplementedError

    def checkpoint_if_cancelled(self) -> Awaitable[None]:
        """Return an awaitable that raises a pending cancellation, and else does nothing. Only if not `yields_first`."""
        raise NotImplementedError

    def finish(self) -> Awaitable[None]:
        """Return an awaitable that lets other tasks run and raises nothing. Only if not `yields_first`."""
        raise NotImplementedError

    def waiter(self) -> Waiter:
        """Make one sleep of the calling task."""
        raise NotImplementedError

    def sleep_until(self, when: float) -> Awaitable[None]:
        """Return an awaitable that sleeps until `when`, absolute seconds, a time to come, and never ends early; `inf`
        sleeps until cancelled. A checkpoint."""
        return _sleep(self, when)

    def group(self) -> Group:
        """Make a group of tasks."""
        raise NotImplementedError

    def contained_tasks(self) -> ContainedTasks:
        """Make an owner of contained tasks."""
        raise NotImplementedError

    def call_soon_from_anywhere(self, function: Callable[..., object], *args: Any) -> None:
        """Call `function(*args)` in the event loop soon. For other threads and signal handlers."""
        raise NotImplementedError

    def cancelled_tasks(self) -> list[str]:
        """Return the names of the tasks that were cancelled and have not ended. The end of an asyncio loop waits for
        them; on trio, whose run ends after them, there are none. May be called in any thread."""
        return []

    def end_child_on_return(self) -> None:
        """End this process, a forked child, if it returns into the event loop of its parent, before it waits for events
        there. Call it in the child, in any thread."""
        raise NotImplementedError

    def in_thread(self, function: Callable[[], ResultT]) -> Awaitable[ResultT]:
        """Return an awaitable that calls `function()` in a thread, and returns or raises what the function does.

        A cancellation abandons the call: if it has begun it goes on, else it never begins, and its result is lost. The
        host has threads of its own for these calls, so that calls that hang hold up neither look-ups of names nor the
        program's own threads.
        """
        raise NotImplementedError

    async def getaddrinfo(self, host: bytes | str | None, port: int, kind: int, flags: int) -> list[Any]:
        """Do what `socket.getaddrinfo` does for sockets of type `kind`, without blocking. A cancellation abandons the
        look-up."""
        raise NotImplementedError


async def _sleep(host: Host, when: float) -> None:
    waiter = host.waiter()
    timer = Timer(_wake, waiter)

    def stop() -> None:
        # the stopped timer may stay in the heap for long and must not keep the task alive
        timer.arg = None
        host.set_timer(timer, math.inf)

    host.set_timer(timer, when)
    await waiter.park(stop)


def _wake(waiter: Waiter, seq: int, lateness: float) -> None:
    waiter.wake(math.inf)
