"""The receiving half of an exchange: the body, its deadline, and the watch for the peer's leaving.

A receive ends by the deadline of the body. Errors of the socket reach the handler as `Disconnected`; so does a receive
after the connection has gone on without the handler, unless the body was complete.
"""

from __future__ import annotations

from typing import Final

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, BusyResourceError, ClosedResourceError
from ..runtime import Event, checkpoint
from .ending import EndingExchange
from .errors import OVER, BadRequest, Disconnected
from .policy import LINGER, RULES, Rule, body_deadline
from .state import (
    DEAD,
    DETACHED,
    DONE,
    EXPECT_100,
    LIVE,
    OPEN,
    SENT,
    Phase,
    Reason,
    is_reusable,
)
from .timeouts import INF
from .transport import RECEIVE_SIZE

# bytes of an unread body that are discarded so that the connection can be used again; as many as Go discards
DISCARD: Final = 256 * 1024

# bytes of a receive for a body of which LONG have come already. Each piece that an application gets passes through its
# middleware, and may cost more there than its bytes
LONG: Final = 64 * 1024
LONG_RECEIVE: Final = 256 * 1024


class ReceivingExchange(EndingExchange):
    """An exchange that receives. An abstract base class; `exchange.py` derives from it."""

    __slots__ = ()

    async def receive(self) -> bytes:
        """Receive the next piece of the body, b"" after its end.

        Raise Disconnected if the peer has left, has sent an invalid body, or did not send the piece in time; also if
        the connection has gone on without the handler before the body was complete.
        """
        piece = self.try_receive()
        return await self._next_piece() if piece is None else piece

    def try_receive(self) -> bytes | None:
        """Do what `receive` does, if that needs no wait. Return None if it does."""
        if self._link == DEAD or (self._link == DETACHED and (self._body != DONE or self._discarded)):
            self.note_told()
            raise Disconnected(OVER)
        return b"" if self._body == DONE else self._buffered_piece()

    async def wait_disconnected(self) -> None:
        """Wait until the peer has left, the response is complete, or the connection is upgraded or has gone on without
        the handler. After a cancellation the peer is watched as it was before. Raise BusyResourceError while another
        task receives or waits for the same, never Disconnected."""
        if self._link != LIVE or self.writer.complete:
            self.note_told()
            return
        self._require_no_reader()
        host = self._host
        other = self.in_other_task
        self._watching = True
        self.count_others(other)
        try:
            while self._link == LIVE and not self.writer.complete:
                if host.reader.buffered > host.limits.max_head:
                    await self._wait_without_reading()
                    return
                host.reader.feed(await self._receive(INF, None))
        except Disconnected:
            return
        finally:
            self._watching = False
            self.count_others(-other)
            if self._link == LIVE and not self.writer.complete:
                host.watch_peer()

    async def _wait_without_reading(self) -> None:
        """Do what `wait_disconnected` does for a peer that has pipelined more than is buffered: read no more. The
        kernel reports whether the peer has left; without `cancel_on_disconnect` only a later call notices that."""
        host = self._host
        conn = host.transport.conn
        if conn.peer_has_left:
            self._raise_lost(Reason.CLIENT_RESET if conn.was_reset else Reason.CLIENT_CLOSED, None)
        self._watching = False
        host.watch_peer()
        await self._wait_answered()

    async def discard_body(self) -> bool:
        """Read and discard the rest of the body after the response; give up after DISCARD bytes and one receive. Return
        True if the connection can be used again. Does first what `end_reads` does."""
        await self.end_reads()
        self._waits_end = False
        if self._host.draining:
            self.end_body_soon()
        if self._body == EXPECT_100:
            # the client may send the body or leave it out, so the next bytes may be the body or the next request
            return False
        budget = self._host.reader.received + DISCARD
        try:
            while self._body != DONE and self._host.reader.received <= budget:
                if await self._next_piece():
                    self._discarded = True
        except Disconnected:
            return False
        return is_reusable(self._body, self._response, self._link)

    def end_body_soon(self) -> None:
        """Let the rest of the body, which the handler has left, come for LINGER seconds at most, because the server
        drains. A further call does not prolong that."""
        self._read_by = min(self.read_by, self._host.clock.now() + LINGER)
        # as in `set_read_deadline`
        if self._receiving and not self._waits_end:
            self._host.move(Phase.BODY, self._read_by)

    def _rest_has_come(self) -> bool:
        """Return True if all of a body in chunks has come, and is not too long for `discard_body`. What has come is
        read from the socket, unless a task waits for it, but it is not given out."""
        reader, transport = self._host.reader, self._host.transport
        try:
            while not (reader.holds_last_chunk or self.reads or reader.buffered > DISCARD):
                data = transport.receive_ready()
                if not data:
                    return False
                reader.feed(data)
        except (BrokenResourceError, ClosedResourceError):
            return False
        return reader.holds_last_chunk and reader.buffered <= DISCARD

    async def _next_piece(self) -> bytes:
        """Return the next piece of the body from the parser, and receive until there is one. b"" at the end."""
        reader = self._host.reader
        while self._body != DONE:
            piece = self._buffered_piece()
            if piece is not None:
                return piece
            if self._body == EXPECT_100 and not self.writer.started:
                # the client waits for `100 Continue` before it sends its body
                self._body = OPEN
                await self._send_continue()
            reader.feed(await self._receive_body())
        return b""

    def _buffered_piece(self) -> bytes | None:
        """Return the next piece of the body from the parser, b"" at the end; None if more must be received first."""
        reader = self._host.reader
        try:
            piece = reader.next_body()
        except BadRequest as bad:
            self._host.refused(bad)
            self.tell()
            raise Disconnected(bad.detail) from bad
        if piece is not None and reader.at_end:
            self._body = DONE
        return piece

    def _body_deadline(self) -> tuple[float, Rule]:
        """Return when more of the body must have come, and by which rule."""
        if self._read_by is not None:
            return self._read_by, RULES["read"]
        timeouts = self._timeouts
        whole = self.start_time + timeouts.read
        return body_deadline(whole, self.head_done + self._paused, self._host.reader.received, timeouts)

    def _require_no_reader(self) -> None:
        if self.reads:
            raise BusyResourceError("another task of the handler receives already")

    async def _receive_body(self) -> bytes:
        self._require_no_reader()
        other = self.in_other_task
        self._receiving = True
        self.count_others(other)
        now = self._host.clock.now()
        self._paused += now - self._paused_at
        self._paused_at = now
        try:
            if self._host.reader.many_chunks:
                await checkpoint()
            if self._waits_end:
                raise Disconnected("the connection goes on without the handler")
            deadline, rule = self._body_deadline()
            return await self._receive(deadline, rule)
        finally:
            self._receiving = False
            self.count_others(-other)
            self._paused_at = self._host.clock.now()
            if self.task is not None and (self._response == SENT or self._link == DEAD):
                # what kept the connection from going on without the handler. In the next step: a handler that receives
                # in a loop begins its next receive in this one
                self.task.call_soon(self.task.not_needed)
            elif self._link == LIVE:
                self._host.watch_peer()

    async def _receive(self, deadline: float, rule: Rule | None) -> bytes:
        """Receive bytes by `deadline`, and translate errors. `rule` is the rule of the deadline, None in a watch."""
        host = self._host
        if rule is not None:
            host.enter(Phase.BODY, deadline)
        host.unwatch_peer()
        more = rule is not None and host.reader.received > LONG and not host.reader.many_chunks
        try:
            data = await host.transport.receive(deadline, LONG_RECEIVE if more else RECEIVE_SIZE)
        except DeadlineExceeded as late:
            raise self._ended_by_deadline(late, rule) from late
        except (BrokenResourceError, ClosedResourceError) as error:
            self._raise_lost(Reason.CLIENT_RESET, error)
        except BaseException:
            self._leave_body_phase()
            raise
        if not data:
            self._raise_lost(Reason.CLIENT_CLOSED, None)
        host.enter(Phase.HANDLER, self.deadline)
        return data

    def _ended_by_deadline(self, late: DeadlineExceeded, rule: Rule | None) -> Disconnected:
        """Return what a receive raises whose deadline has passed. End the connection by `rule`, unless the deadline was
        set only to wake the task: by `end_waits`, or in a watch, where `rule` is None."""
        if self._waits_end:
            self._leave_body_phase()
            return Disconnected("the connection goes on without the handler")
        if rule is None:
            return Disconnected("the watch has ended: another protocol has the connection")
        # a deadline that had passed before could not be met earlier
        lateness = self._host.clock.now() - max(late.deadline, self._paused_at)
        # the application may have set a deadline during the wait
        self._host.expired(rule if self._read_by is None else RULES["read"], lateness)
        self.tell()
        return Disconnected("the body did not come in time")

    def _leave_body_phase(self) -> None:
        """Note that the handler goes on although a receive has brought nothing: it was cancelled, or not needed. In the
        next step: if the server was cancelled, the handler has left then, and the connection ends in the phase of the
        body."""
        if self.task is not None:
            self.task.call_soon(self._note_body_left)

    def _note_body_left(self) -> None:
        goes_on = self.task is not None and self._link == LIVE
        if goes_on and self._host.phase is Phase.BODY and not self._receiving:
            self._host.enter(Phase.HANDLER, self.deadline)

    async def _wait_answered(self) -> None:
        if self._answered is None:
            self._answered = Event()
        await self._answered.wait()

    def _raise_lost(self, reason: Reason, cause: Exception | None) -> None:
        """End the exchange and its connection because the peer is gone, and raise Disconnected."""
        # if it is dead already, the socket was closed on our side, for a reason of its own
        if self._link != DEAD:
            self._host.lost(reason)
        self.kill()
        self.tell()
        raise Disconnected(f"the peer is gone ({reason})") from cause

    async def _send_continue(self) -> None:
        """Invite the body with `100 Continue`."""
        raise NotImplementedError
