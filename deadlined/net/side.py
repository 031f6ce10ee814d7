"""One direction of a socket: the task that uses it, how an operation waits, and the errors it raises.

Every operation of this package has the same shape, which keeps both the event loop's contract and Go's rules:

    side.enter()                                    one task at a time, else BusyResourceError
    await side.begin()                              a cancelled operation does nothing; closed beats expired beats ready
    try; if the kernel says "would block"           side.woken(await side.parking), and try again
    if not side.slept: await side.finish()          the checkpoint of an operation that did not sleep
    side.leave()                                    in a finally

Where bytes are known to be waiting, a `turn` before the call replaces the two checkpoints around it. A send does not do
this: its peer would wait for the extra turn. On an event loop that `yields_first`, `begin` is such a turn; but not that
of a send after a receive, which has let other tasks run already.

Each await costs an object and a call. So the pattern is written out where it is used, and a function that would only
await another one returns that one's awaitable.
"""

from __future__ import annotations

import socket as stdlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from ..errors import DeadlineExceeded
from ..poll import CLOSED, EXPIRED, OK, Half
from ..runtime import Host, Parking, ReadyCallback, Turn
from ..timers import Timer
from ..timers.timer import INF
from .errors import BrokenResourceError, BusyResourceError, closed_error
from .sockets import address_text, is_readable


class Side:
    """The read, write or accept side of one socket."""

    __slots__ = ("_busy", "_host", "_op", "_parking", "_turn", "half", "has_yielded", "sent", "slept")

    def __init__(self, op: str, half: Half, host: Host) -> None:
        self._op: str = op
        self._host: Host = host
        # made when needed: many sides never sleep, and none of an idle connection of a server
        self._parking: Parking | None = None
        self._turn: Turn | None = None
        self._busy: bool = False
        self.half: Half = half
        # an operation of the other side has let other tasks run since the last one of this side
        self.has_yielded: bool = False
        # the current operation has been a checkpoint already
        self.slept: bool = False
        # bytes of the current operation that the kernel has taken, for the error
        self.sent: int = 0

    @property
    def parking(self) -> Parking:
        """Where an operation sleeps until the half is ready, expired or closed. Give what its `await` returns to
        `woken`."""
        if self._parking is None:
            self._parking = self._host.parking(self.half)
        return self._parking

    def enter(self) -> None:
        """Reserve the side for the calling task. BusyResourceError if another task uses it, ClosedResourceError if this
        program has closed the socket."""
        if self._busy:
            raise BusyResourceError(f"another task is in the middle of this socket's {self._op}")
        if self.half.closed:
            raise closed_error()
        self._busy = True
        self.slept = False
        self.sent = 0

    def leave(self) -> None:
        """Release the side for the next task."""
        self._busy = False

    def begin(self) -> Awaitable[None]:
        """Return an awaitable that raises if the operation must not start: Cancelled, DeadlineExceeded or another error
        of the side. Else it lets other tasks run only if the host `yields_first` and the side has not `has_yielded`."""
        if self._host.yields_first:
            if not self.has_yielded:
                return self._begin_after_turn()
            self.has_yielded = False
            self.woken(self.half.reset())
            return _NO_WAIT
        state = self.half.reset()
        return self._host.checkpoint_if_cancelled() if state == OK else self._refuse(state)

    def turn(self) -> Turn:
        """Return an awaitable that is a checkpoint before the operation, and returns the state of the half after it.
        Give the state to `woken`."""
        if self._turn is None:
            self._turn = self._host.turn(self.half)
        return self._turn

    def finish(self) -> Awaitable[None]:
        """Return an awaitable that lets other tasks run, and raises nothing. Only if the operation has not `slept`."""
        return self._host.finish()

    def woken(self, state: int) -> None:
        """Record that the operation has slept. Raises DeadlineExceeded or another error unless `state` is OK."""
        self.slept = True
        if state != OK:
            self._fail(state)

    async def wait(self) -> None:
        """Sleep until the side is ready, as an operation of its own. Always a checkpoint."""
        self.enter()
        try:
            half = self.half
            if half.ready or half.expired or half.event_error:
                await self._host.checkpoint()
            self.woken(await self.parking)
        finally:
            self._busy = False

    def admit(self) -> None:
        """Do what `enter`, `begin` and `leave` do, for an attempt that never waits and is no checkpoint."""
        self.enter()
        self._busy = False
        state = self.half.reset()
        if state != OK:
            self._fail(state)

    def call_past_deadline(self, callback: ReadyCallback) -> bool:
        """Let `callback` be called once: when the half is ready, when it is closed, or when its deadline passes, unless
        that has passed already. False, and no call, if the half is ready now. True, and no call, once the half is
        closed, and if a task or another callback waits here."""
        if self._busy or self.half.waiter is not None:
            return True
        return self.half.park_past_deadline(callback) != OK

    def cancel_call(self) -> None:
        """Forget the callback that waits here. No effect if there is none, or if a task waits."""
        if isinstance(self.half.waiter, ReadyCallback):
            self.half.unpark()

    async def pause(self, until: float) -> None:
        """Sleep until `until`, absolute seconds; readiness does not end it. DeadlineExceeded or ClosedResourceError if
        the deadline comes first, or a close."""
        timer = Timer(_unblock, self.half)
        self._host.set_timer(timer, until)
        try:
            while self._host.clock.now() < until:
                self.woken(await self.parking)
        finally:
            timer.arg = None
            self._host.set_timer(timer, INF)

    async def _begin_after_turn(self) -> None:
        self.woken(await self.turn())

    async def _refuse(self, state: int) -> None:
        await self._host.checkpoint_if_cancelled()
        await self._host.finish()
        self._fail(state)

    def _fail(self, state: int) -> None:
        if state == CLOSED:
            raise closed_error()
        if state == EXPIRED:
            raise DeadlineExceeded(self._op, self.half.missed, self.sent)
        raise BrokenResourceError("the kernel reports an error on this descriptor")


class _NoWait:
    """An awaitable that does nothing."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


_NO_WAIT: Final = _NoWait()


def _unblock(half: Half, seq: int, lateness: float) -> None:
    half.unblock(True)


def require_open(half: Half) -> None:
    """Raise ClosedResourceError if this program has closed the socket."""
    if half.closed:
        raise closed_error()


def ask_if_drained(half: Half, socket: stdlib.socket) -> bool:
    """Do what `Conn.ask_if_drained` does, for `half`, the read side of `socket`."""
    if not (half.drained or half.closed or is_readable(socket)):
        half.found_empty()
    return half.drained


def deadline_of_closed(when: float) -> None:
    """Stand for the methods that set a deadline, once the socket is closed: raise ClosedResourceError."""
    raise closed_error()


def shown(socket: stdlib.socket, read: Half, write: Half, ended: bool) -> str:
    """Return the `repr` of a Conn. `ended`: it has sent the end of its side. Asks the kernel for the peer, unless it is
    closed: its descriptor may be another socket's by now."""
    if read.closed:
        return "<Conn closed>"
    state = "eof sent" if ended else "open"
    peer = shown_name(socket.getpeername)
    return f"<Conn {state} peer={peer} read_deadline={read.deadline} write_deadline={write.deadline}>"


def shown_name(ask: Callable[[], object]) -> object:
    """Return the address that `ask` gives, a socket's `getpeername` or `getsockname`, as a `repr` shows it. None if the
    kernel does not know it."""
    try:
        name = ask()
    except OSError:
        # the peer has left
        return None
    return address_text(name) if isinstance(name, tuple) and isinstance(name[0], str) else repr(name)
