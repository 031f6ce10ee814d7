"""One direction of a socket: who uses it now, how it waits, and what its states mean to a user of trio.

Every operation of this package has the same shape, which keeps trio's contract and Go's rules at once:

    side.enter()                                    one user at a time, else BusyResourceError
    await side.begin()                              a cancelled operation does nothing; closed beats expired beats ready
    try; where the kernel says "would block"        side.woken(await side.parking), and try again
    if not side.slept: await yield_shielded               the checkpoint of an operation that did not sleep
    side.leave()                                    in a finally

Where bytes are known to be there, a `ScheduledCheckpoint` before the act replaces the two checks around it. A send does
not do this: its peer would wait for the extra turn.

Each await costs an object and a call, so that the pattern is written out where it is used, and a coroutine that only
forwards to another is none.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from ..errors import DeadlineExceeded
from ..poll import CLOSED, EXPIRED, OK, Half
from ..runtime import Parking, yield_shielded

# a name of this module, which compiled code finds faster than another's
_checkpoint_if_cancelled: Final = checkpoint_if_cancelled


class Side:
    """The read, write or accept side of one socket."""

    __slots__ = ("_busy", "_op", "half", "parking", "sent", "slept")

    def __init__(self, op: str, half: Half) -> None:
        self._op: str = op
        self._busy: bool = False
        self.half: Half = half
        self.parking: Parking = Parking(half)
        # the current operation was a checkpoint already
        self.slept: bool = False
        # bytes of the current operation that the kernel has taken, for the error
        self.sent: int = 0

    def enter(self) -> None:
        """BusyResourceError if another task is in here, ClosedResourceError if the socket was closed by this
        program."""
        if self._busy:
            raise trio.BusyResourceError(f"another task is in the middle of a {self._op} on this socket")
        if self.half.closed:
            raise closed_error()
        self._busy = True
        self.slept = False
        self.sent = 0

    def leave(self) -> None:
        """Let the next user in."""
        self._busy = False

    def begin(self) -> Awaitable[None]:
        """To be awaited: raises Cancelled or DeadlineExceeded instead of acting."""
        state = self.half.reset()
        # handed to the caller to await, which saves a coroutine that would only forward
        return _checkpoint_if_cancelled() if state == OK else self._refuse(state)

    def woken(self, state: int) -> None:
        """The operation has slept; DeadlineExceeded and its like unless it is worth trying again."""
        self.slept = True
        if state != OK:
            self._fail(state)

    async def rest(self) -> None:
        """Sleep, as an operation of its own: it also gives way, and hears of a cancellation, where it need not."""
        self.enter()
        try:
            half = self.half
            if half.ready or half.expired or half.event_error:
                await checkpoint()
            self.woken(await self.parking)
        finally:
            self._busy = False

    def admit(self) -> None:
        """`enter`, `begin` and `leave` for an attempt that never waits, and is no checkpoint."""
        self.enter()
        self._busy = False
        state = self.half.reset()
        if state != OK:
            self._fail(state)

    async def _refuse(self, state: int) -> None:
        await _checkpoint_if_cancelled()
        await yield_shielded
        self._fail(state)

    def _fail(self, state: int) -> None:
        if state == CLOSED:
            raise closed_error()
        if state == EXPIRED:
            raise DeadlineExceeded(self._op, self.half.missed, self.sent)
        raise trio.BrokenResourceError("the kernel reports an error on this descriptor")


def require_open(half: Half) -> None:
    """ClosedResourceError if the socket was closed by this program."""
    if half.closed:
        raise closed_error()


def closed_error() -> trio.ClosedResourceError:
    """What a user of a closed socket gets."""
    return trio.ClosedResourceError("this socket was closed here")
