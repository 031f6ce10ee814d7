"""One direction of a socket: who uses it now, how it waits, and what its states mean to a user of trio.

Every operation of this package has the same shape, which keeps trio's contract and Go's rules at once:

    side.enter()                             one user at a time, else BusyResourceError
    await side.begin()                       a cancelled operation does nothing; closed beats expired beats ready
    try, and while the kernel says "would block": await side.wait()
    await side.end()                         a checkpoint, unless it slept
    side.leave()                             in a finally
"""

from __future__ import annotations

import trio
from trio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from ..errors import DeadlineExceeded
from ..poll import CLOSED, EXPIRED, READY, Half
from ..runtime import Pump


class Side:
    """The read, write or accept side of one socket."""

    __slots__ = ("_busy", "_half", "_op", "_pump", "_slept", "sent")

    def __init__(self, op: str, half: Half, pump: Pump) -> None:
        self._op = op
        self._half = half
        self._pump = pump
        self._busy = False
        self._slept = False
        # bytes of the current operation that the kernel has taken, for the error
        self.sent = 0

    def enter(self) -> None:
        """BusyResourceError if another task is in here, ClosedResourceError if the socket was closed by this
        program."""
        if self._busy:
            raise trio.BusyResourceError(f"another task is in the middle of a {self._op} on this socket")
        if self._half.closed:
            raise _closed()
        self._busy = True
        self._slept = False
        self.sent = 0

    def leave(self) -> None:
        """Let the next user in."""
        self._busy = False

    async def begin(self) -> None:
        """Raise Cancelled or DeadlineExceeded instead of acting."""
        await checkpoint_if_cancelled()
        state = self._half.reset()
        if state != READY:
            await cancel_shielded_checkpoint()
            self._fail(state)

    async def wait(self) -> None:
        """Sleep until it is worth trying again."""
        self._slept = True
        state = await self._pump.wait(self._half)
        if state != READY:
            self._fail(state)

    async def rest(self) -> None:
        """`wait` as an operation of its own: it also gives way, and hears of a cancellation, where it need not
        sleep."""
        self.enter()
        try:
            half = self._half
            if half.ready or half.expired or half.event_error:
                await checkpoint()
            await self.wait()
        finally:
            self.leave()

    async def end(self) -> None:
        """The operation succeeded."""
        if not self._slept:
            await cancel_shielded_checkpoint()

    def admit(self) -> None:
        """`enter`, `begin` and `leave` for an attempt that never waits, and is no checkpoint."""
        self.enter()
        self._busy = False
        state = self._half.reset()
        if state != READY:
            self._fail(state)

    def _fail(self, state: int) -> None:
        if state == CLOSED:
            raise _closed()
        if state == EXPIRED:
            raise DeadlineExceeded(self._op, self._half.missed, self.sent)
        raise trio.BrokenResourceError("the kernel reports an error on this descriptor")


def require_open(half: Half) -> None:
    """ClosedResourceError if the socket was closed by this program."""
    if half.closed:
        raise _closed()


def _closed() -> trio.ClosedResourceError:
    return trio.ClosedResourceError("this socket was closed here")
