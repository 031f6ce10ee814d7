"""What is still to be sent on one connection: pieces of responses, sent together, without a task.

Facts      On one machine each send to a sleeping peer wakes it, and each is a system call. Several tasks of a handler
           may send pieces of one body. A peer may not read.
Hazard     A piece that overtakes another, or is sent in the middle of it, corrupts the response without anybody
           noticing. A piece that waits for its peer must not hold a task, nor outlive its deadline.
Answer     A piece is appended, and all pieces are offered to the kernel at once when the owner flushes. If the kernel
           does not take all, the output is blocked: the poller calls it when there is room, and the rest is sent there.
           The deadline of a piece runs while the output is blocked by it. The kernel is asked now and then what it has
           not sent yet: whether the peer takes anything shows there long before there is room.
Cost       A piece that need not wait is sent at the end of the turn of the event loop, not at once. A blocked output
           wakes every few seconds.
"""

from __future__ import annotations

import logging
from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, ClosedResourceError
from ..poll import Clock
from ..runtime import Event, ReadyCallback
from .policy import Rule, stall_check_deadline
from .reporting import report
from .state import Reason
from .timeouts import INF, Timeouts
from .transport import Buffer, Transport

# bytes that may be pending: above, the owner flushes, and a sender waits until the output is below
LIMIT: Final = 64 * 1024

# parts after which a handler that sends piece after piece looks at the clock again
FEW_PARTS: Final = 16

# less than any peer has taken
_UNKNOWN: Final = -(1 << 60)

# stands between two parts of one piece, which have one deadline. No part is empty
_JOINT: Final = b""


class OutputOwner(ReadyCallback):
    """What an output asks of its connection. An abstract base class.

    It derives from ReadyCallback for the connection's sake: a compiled class has one base only.
    """

    clock: Clock
    timeouts: Timeouts
    transport: Transport

    def output_waits(self) -> None:
        """Note that the first piece begins to wait, or that it waits without a limit: the timeouts of now hold for
        it."""
        raise NotImplementedError

    def output_deadline(self, length: int, since: float, progress: float) -> tuple[float, Rule]:
        """Return when the peer must have accepted more of a piece of `length` bytes that has been waiting since
        `since`, and by which rule. `progress`: when the peer was last seen to take bytes, or the wait began."""
        raise NotImplementedError

    def output_blocked(self, deadline: float) -> None:
        """Note that the peer must accept more by `deadline`."""
        raise NotImplementedError

    def output_moved(self, deadline: float) -> None:
        """Note that the deadline of this wait is another one now: the peer has taken bytes, or it was set."""
        raise NotImplementedError

    def output_sent(self) -> None:
        """Note that nothing is pending any more, after the output was blocked."""
        raise NotImplementedError

    def output_expired(self, rule: Rule, lateness: float) -> None:
        """End the connection as `rule` says, because the peer did not accept a piece in time."""
        raise NotImplementedError

    def output_lost(self, reason: Reason) -> None:
        """End the connection, because nothing can be sent any more."""
        raise NotImplementedError


class Output(ReadyCallback):
    """The pending pieces of one connection. `size` is their length in bytes."""

    __slots__ = (
        "_latest",
        "_maybe_owner",
        "_pieces",
        "_progress",
        "_room",
        "_seen",
        "_since",
        "_taken",
        "blocked",
        "size",
    )

    def __init__(self, owner: OutputOwner) -> None:
        self._maybe_owner: OutputOwner | None = owner
        self._pieces: list[bytes] = []
        # bytes of the first piece that the kernel has taken already
        self._taken: int = 0
        self.size: int = 0
        # the kernel's buffer is full, and the poller will call `on_ready`
        self.blocked: bool = False
        # when all must be sent, whatever the deadlines of the pieces
        self._latest: float = INF
        # when the first piece began to wait; inf if it has not waited
        self._since: float = INF
        # when the peer was last seen to take bytes, or the wait began; inf until the output waits, and once the kernel
        # has taken more
        self._progress: float = INF
        # bytes that the peer had taken at the last check of this wait
        self._seen: int = _UNKNOWN
        # set when at most LIMIT bytes are pending, or when they are lost; made when needed
        self._room: Event | None = None

    @property
    def _owner(self) -> OutputOwner:
        owner = self._maybe_owner
        assert owner is not None, "the output was closed"
        return owner

    @property
    def parts(self) -> int:
        """Parts of pieces that are pending."""
        return len(self._pieces)

    def append(self, piece: bytes, large: bytes = b"", after: bytes = b"") -> None:
        """Let `piece` be sent after all others, and then, as a part of it, `large` and `after`, which are not copied.
        No effect once closed."""
        if self._maybe_owner is not None:
            self._pieces.append(piece)
            self.size += len(piece)
            if large:
                self._add_part(large)
                if after:
                    self._add_part(after)

    def _add_part(self, part: bytes) -> None:
        self._pieces.append(_JOINT)
        self._pieces.append(part)
        self.size += len(part)

    def flush(self) -> None:
        """Offer the pending pieces to the kernel. No effect while blocked. Does not raise, and tells the owner of
        errors."""
        if self._pieces and not self.blocked:
            self._guarded(False)

    async def wait(self, most: int) -> None:
        """Sleep until at most `most` bytes are pending, or the output is discarded. Flush first."""
        while self.size > most:
            await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Sleep until at most LIMIT bytes are pending, or `wake_senders` is called. That wakes all tasks that sleep
        here, so the caller must check what it waits for, and may have to call this again."""
        if self._room is None:
            self._room = Event()
        await self._room.wait()

    def wake_senders(self) -> None:
        """Wake the tasks that wait."""
        if self._room is not None:
            self._room.set()
            self._room = None

    def send_by(self, deadline: float) -> None:
        """Let `deadline` hold for all that is pending, beside the deadline of each piece."""
        self._latest = deadline
        if self.blocked:
            conn = self._owner.transport.conn
            conn.set_write_deadline(min(conn.write_deadline, deadline))

    def discard(self) -> None:
        """Forget what is pending, and wake the tasks that wait. Idempotent."""
        self._pieces.clear()
        self.size = self._taken = 0
        self._since = self._progress = INF
        if self.blocked:
            self.blocked = False
            self._owner.transport.conn.cancel_writable_call()
        self.wake_senders()

    def close(self) -> None:
        """Discard, and forget the owner, which refers to this object."""
        self.discard()
        self._maybe_owner = None

    def on_ready(self) -> None:
        """Send on: the kernel's buffer may have room, the deadline has passed, or the socket was closed."""
        if self.blocked:
            self._guarded(True)

    def _guarded(self, resumes: bool) -> None:
        try:
            if resumes:
                self._resume()
            else:
                self._send()
        except (BrokenResourceError, ClosedResourceError):
            self._lose(Reason.CLIENT_RESET)
        except Exception as error:
            report(logging.ERROR, "sending has failed inside the server", error=error)
            self._lose(Reason.SERVER_ERROR)

    def _lose(self, reason: Reason) -> None:
        self.discard()
        if self._maybe_owner is not None:
            self._owner.output_lost(reason)

    def _resume(self) -> None:
        conn = self._owner.transport.conn
        try:
            if not conn.resume_writable(self):
                return
        except DeadlineExceeded:
            # room that came in time may have waited for this turn of the loop
            conn.set_write_deadline(INF)
        self.blocked = False
        if self._send() and self._maybe_owner is not None:
            conn.set_write_deadline(INF)
            self._owner.output_sent()

    def _send(self) -> bool:
        """Offer pieces until none is left, or park until there is room. Return True if the kernel has taken all."""
        while self._pieces:
            if self._offer():
                continue
            begins = self._progress == INF
            if begins:
                self._begin_wait()
            else:
                self._note_progress()
            if self._park(begins):
                return False
        return True

    def _begin_wait(self) -> None:
        self._progress = self._owner.clock.now()
        self._seen = _UNKNOWN
        if self._since == INF:
            self._since = self._progress
            self._owner.output_waits()

    def _note_progress(self) -> None:
        """Note if the peer has taken any byte since the last check."""
        taken = self._owner.transport.taken
        if taken > self._seen:
            self._progress = self._owner.clock.now()
        self._seen = taken

    def _park(self, begins: bool) -> bool:
        """Let the poller call `on_ready` when there is room, or for the next check; if the deadline has passed, end the
        connection. Return False if there may be room now. `begins`: this wait has just begun."""
        owner = self._owner
        now = owner.clock.now()
        deadline, rule = self._deadline(now)
        if deadline <= now:
            # one that had passed before could not be met earlier
            owner.output_expired(rule, now - max(deadline, self._since))
            self.discard()
            return True
        conn = owner.transport.conn
        conn.set_write_deadline(stall_check_deadline(now, deadline))
        try:
            self.blocked = conn.call_when_writable(self)
        except DeadlineExceeded:
            # the process did not run for so long: look again
            conn.set_write_deadline(INF)
            return False
        if self.blocked:
            if begins:
                owner.output_blocked(deadline)
            else:
                owner.output_moved(deadline)
        return self.blocked

    def _deadline(self, now: float) -> tuple[float, Rule]:
        """Return when the peer must have taken more, and by which rule. If the timeouts with which the wait began have
        no limit, those of now may have one, which runs from now on."""
        owner = self._owner
        deadline, rule = owner.output_deadline(self._first_size(), self._since, self._progress)
        if deadline == INF:
            owner.output_waits()
            self._since = self._progress = now
            deadline, rule = owner.output_deadline(self._first_size(), now, now)
        return min(deadline, self._latest), rule

    def _offer(self) -> bool:
        """Offer the first piece with all its parts, or the first pieces, as many as fit into LIMIT, at least one.
        Return True if the kernel has taken any byte."""
        transport = self._owner.transport
        first = self._pieces[0]
        if len(self._pieces) > 1 and not self._pieces[1]:
            taken = transport.offer_parts(self._first_parts())
        elif self._taken or len(first) >= LIMIT or len(self._pieces) == 1:
            taken = transport.offer(memoryview(first)[self._taken :] if self._taken else first)
        elif self.size <= LIMIT:
            taken = transport.offer(b"".join(self._pieces))
        else:
            taken = transport.offer(b"".join(self._some()))
        if taken:
            self._drop(taken)
        return taken > 0

    def _first_parts(self) -> list[Buffer]:
        """Return what is left of the first piece."""
        pieces = self._pieces
        parts: list[Buffer] = [memoryview(pieces[0])[self._taken :] if self._taken else pieces[0]]
        for i in range(1, len(pieces), 2):
            if pieces[i]:
                break
            parts.append(pieces[i + 1])
        return parts

    def _first_size(self) -> int:
        """Return the length of the first piece, without the parts of it that have left."""
        return sum([len(part) for part in self._first_parts()]) + self._taken

    def _some(self) -> list[bytes]:
        """Return the first pieces that are not longer than LIMIT together."""
        left = LIMIT
        some: list[bytes] = []
        for piece in self._pieces:
            left -= len(piece)
            if left < 0:
                break
            some.append(piece)
        return some

    def _drop(self, taken: int) -> None:
        """Forget the next `taken` bytes, which the kernel has."""
        self._progress = INF
        self.size -= taken
        taken += self._taken
        whole = 0
        pieces = self._pieces
        while whole < len(pieces) and taken >= len(pieces[whole]):
            taken -= len(pieces[whole])
            whole += 1
            if pieces[whole - 1] and (whole == len(pieces) or pieces[whole]):
                # no part of it is left, and the next piece has a deadline of its own
                self._since = INF
        if whole == len(pieces):
            pieces.clear()
        elif whole:
            del pieces[:whole]
        self._taken = taken
        if self._room is not None and self.size <= LIMIT:
            self.wake_senders()
