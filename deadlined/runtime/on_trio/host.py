"""Trio's host: what `host.py` asks of an event loop, by trio's low level."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from trio.lowlevel import (
    RunVar,
    add_instrument,
    checkpoint,
    checkpoint_if_cancelled,
    current_trio_token,
    in_trio_run,
    spawn_system_task,
)

from ...poll import Half, Poller, open_port
from ..forking import Inherited
from ..guest import trio_runs
from ..host import Group, Host, Parking, ResultT, Turn, Waiter
from ..options import chosen_queue, wants_precision
from ..tasks import ContainedTasks
from .group import TrioGroup
from .instruments import EndBeforeWait
from .parking import TrioParking, TrioTurn, wake, yield_shielded
from .pump import Pump, clock_of_run
from .tasks import TrioTasks
from .waiter import TrioWaiter

_checkpoint: Final = checkpoint
_checkpoint_if_cancelled: Final = checkpoint_if_cancelled
_yield_shielded: Final = yield_shielded


class TrioHost(Host):
    """The host of one `trio.run`."""

    def __init__(self) -> None:
        self.library = "trio"
        self.yields_first = False
        clock = clock_of_run()
        queue = chosen_queue()
        precise = clock.steady and wants_precision()
        super().__init__(Poller(open_port(), clock, wake, self.kick, queue))
        self.pump: Final = Pump(self.poller, precise)
        self._token = current_trio_token()
        # as many as trio's own
        self._threads: Final = trio.CapacityLimiter(40)
        # closes the event queue in a forked child
        self._inherited = Inherited(self.pump.disown, self.poller.is_open)

    def kick(self, when: float) -> None:
        """Let the pump wake at `when`. Called by the poller."""
        self.kicks += 1
        self.pump.wake_at(when)

    def runs_here(self) -> bool:
        return trio_runs() and _current.get() is self and self.poller.is_open()

    def parking(self, half: Half) -> Parking:
        return TrioParking(half)

    def turn(self, half: Half) -> Turn:
        return TrioTurn(half)

    def checkpoint(self) -> Awaitable[None]:
        return _checkpoint()

    def checkpoint_if_cancelled(self) -> Awaitable[None]:
        return _checkpoint_if_cancelled()

    def finish(self) -> Awaitable[None]:
        return _yield_shielded

    def waiter(self) -> Waiter:
        return TrioWaiter()

    def group(self) -> Group:
        return TrioGroup()

    def contained_tasks(self) -> ContainedTasks:
        return TrioTasks(self.pump)

    def call_soon_from_anywhere(self, function: Callable[..., object], *args: Any) -> None:
        self._token.run_sync_soon(function, *args)

    def end_child_on_return(self) -> None:
        if in_trio_run():
            add_instrument(EndBeforeWait())

    def in_thread(self, function: Callable[[], ResultT]) -> Awaitable[ResultT]:
        return trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._threads)

    async def getaddrinfo(self, host: bytes | str | None, port: int, kind: int, flags: int) -> list[Any]:
        return await trio.socket.getaddrinfo(host, port, type=kind, flags=flags)


_current: Final[RunVar[TrioHost | None]] = RunVar("deadlined_host", default=None)


def current_trio_host() -> TrioHost:
    """Return the host of the running `trio.run`; the first call starts its pump.

    RuntimeError outside of a run, and if the first call comes after the end of the run's tasks, in an async generator.
    """
    host = started_trio_host()
    if host is None:
        host = TrioHost()
        try:
            spawn_system_task(host.pump.run, name="deadlined pump")
        except RuntimeError:
            host.poller.shutdown()
            raise
        _current.set(host)
    return host


def started_trio_host() -> TrioHost | None:
    """Return the host of the running `trio.run` if its pump was started. RuntimeError outside of a run."""
    try:
        return _current.get()
    except RuntimeError:
        raise RuntimeError(
            "this works inside trio.run() or asyncio.run() only; from other threads by trio.from_thread or "
            "loop.call_soon_threadsafe"
        ) from None
