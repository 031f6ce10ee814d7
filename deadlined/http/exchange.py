"""One request and its response, as a handler sees them.

An exchange makes no task, cancel scope or timer. `facts.py` has how far it has come, `ending.py` how it ends,
`receiving.py` how its request is received. Here are the response, and the deadlines that a handler sets. Each send has
a deadline, and so has the response as a whole.
"""

from __future__ import annotations

from typing import Final

from ..runtime import checkpoint
from .draining import Draining
from .errors import OVER, Disconnected, ResponseError
from .facts import LAST, PIECE
from .late_sends import LateSends
from .output import LIMIT
from .policy import RULES, Rule, output_deadline
from .receiving import DISCARD, ReceivingExchange
from .seams import Upgraded
from .state import DEAD, DONE, EXPECT_100, LIVE, SENT, Phase, Refusal
from .timeouts import INF, Limits, Timeouts
from .tls_facts import TlsFacts
from .wire import CONTINUE, Headers

# late sends, those after the peer has gone, that return at once with `quiet_sends`. The next 16 return after a
# checkpoint; later ones raise Disconnected. The cancellation of the handler takes some steps of the event loop, and
# should reach the handler in a wait of its own
_MOST_LATE: Final = 16

# steps of the event loop for a send that is awaited in a task of its own, as by `asyncio.wait_for` before Python 3.12:
# the task begins, the send lets others run, and the task's end is told
_STEPS_TO_RETURN: Final = 3


class Exchange(ReceivingExchange):
    """A request, its body to receive, and its response to send.

    `set_read_deadline`, `set_write_deadline` and `set_handler_deadline` replace the deadlines that follow from
    `Timeouts`, for the rest of the exchange. They take absolute times on the event loop's clock, `inf` for none. A
    deadline that has passed cannot be moved any more: the peer has been told.
    """

    __slots__ = ()

    @property
    def client(self) -> tuple[str, int] | None:
        """Host and port of the peer; None on a unix socket."""
        return self._host.client

    @property
    def server_address(self) -> tuple[str, int | None] | None:
        """Host and port of the server's end; on a unix socket its path and None. None for a socket without a name."""
        return self._host.server_address

    @property
    def scheme(self) -> str:
        """ "http", or "https" over TLS."""
        return self._host.scheme

    @property
    def tls(self) -> TlsFacts | None:
        """What TLS has agreed on, and who the client is by its certificate. None without TLS."""
        return self._host.transport.tls

    @property
    def draining(self) -> Draining:
        """The beginning of the server's drain, an awaitable."""
        return self._host.drain_began

    @property
    def limits(self) -> Limits:
        """The server's limits."""
        return self._host.limits

    @property
    def timeouts(self) -> Timeouts:
        """The timeouts that hold for the request: those with which it has begun, also after a reload."""
        return self._timeouts

    @property
    def cancel_on_disconnect(self) -> bool:
        """Whether the handler is cancelled when its client leaves; otherwise it runs to its end."""
        return self._host.cancel_on_disconnect

    @property
    def client_has_left(self) -> bool:
        """True once the kernel has reported that the peer has ended its side, or the connection is broken, even if
        bytes of the peer are still unread."""
        return self._host.transport.conn.peer_has_left

    @property
    def ws_compression(self) -> bool:
        """True if a websocket may compress its messages."""
        return self._host.ws_compression

    def set_read_deadline(self, when: float) -> None:
        """Make receiving the body fail at `when`, in place of the deadlines `read` and `body_*`. Raise ValueError for
        NaN, RuntimeError outside of the event loop."""
        when = self._checked(when)
        if self._link == LIVE:
            self._read_by = when
            # a receive that `end_waits` has woken goes on in a later step, and would wait again
            if self.upgraded or (self._receiving and not self._waits_end):
                self._host.move(Phase.BODY, when)

    def set_write_deadline(self, when: float) -> None:
        """Make sending fail at `when`, in place of the deadlines `write` and `write_*`. Raise ValueError for NaN,
        RuntimeError outside of the event loop."""
        when = self._checked(when)
        if self._link == LIVE:
            self._write_by = when
            self._host.move(Phase.WRITE, when)

    def set_handler_deadline(self, when: float) -> None:
        """Have the handler cancelled at `when`, in place of the deadline `handler`. One whose peer has left has no more
        time than that leaves it. Raise ValueError for NaN, RuntimeError outside of the event loop."""
        self._own_deadline = self._checked(when)
        if self.task is not None:
            self.task.arm(self.deadline)
        if self._link == LIVE:
            self._host.move(Phase.HANDLER, self.deadline)

    def _checked(self, when: float) -> float:
        """Return `when`, or now if it has passed: nothing is late before. Raise ValueError and RuntimeError as the
        setters do."""
        if when != when:
            raise ValueError("a deadline must not be NaN; use inf for none")
        if not self._host.loop.runs_here():
            raise RuntimeError("a deadline is set in the event loop; a thread does it by anyio.from_thread.run_sync")
        return max(when, self._host.clock.now())

    def start(self, status: int, headers: Headers) -> None:
        """Begin the response. The head is sent with the first piece of the body, or alone once the handler has been
        suspended for `heads.HOLD`. Raise ResponseError for an invalid head, Disconnected as `send` does."""
        if self._link == DEAD:
            self._admit_late_send()
            return
        self.writer.start(status, headers)
        if self.task is not None:
            self.task.response_started()

    def note_refusal(self, refusal: Refusal) -> None:
        """Record why the request is answered with 503 in place of its handler, for its record."""
        if self._link == LIVE:
            self._host.refusal = refusal

    @property
    def holds_head(self) -> bool:
        """True if the head of the response waits for the first piece of the body, for `heads.HOLD` at most."""
        return self._link == LIVE and self.writer.status != 0 and not (self.writer.started or self.opens_body)

    def hold_head(self) -> None:
        """Have the head sent alone after `heads.HOLD`, if no piece of the body has come by then. For a Responder that
        waits; a handler's head is held by itself."""
        if self.holds_head:
            self._host.hold_head()

    def send_head(self) -> None:
        """Send the head of the response if it waits. The head cannot say any more how long the body is."""
        if self.holds_head:
            self.try_send(b"", True)

    async def send(self, data: bytes, more: bool) -> None:
        """Send a piece of the body; `more` is False for the last one.

        Several tasks may send; the pieces are sent in the order of the calls, at the end of the event loop's turn. The
        call waits while more than 64 KiB are pending; over TLS after the last piece only if they are more than 256 KiB,
        or if they are known to wait for the peer. If the peer does not accept a piece in time, the connection is reset
        and the handler is cancelled (not without `cancel_on_disconnect`). The piece of a cancelled send is sent all the
        same.

        Raise ResponseError if the piece does not fit the response, Disconnected if the peer is gone. With `quiet_sends`
        the first 32 calls of `start` and `send` after that, within DISCONNECT_GRACE seconds, do nothing instead, while
        the handler runs and its response is incomplete.
        """
        if not self.try_send(data, more):
            await self.finish_send()

    def try_send(self, data: bytes, more: bool) -> bool:
        """Do what `send` does, as far as it needs no wait. Return True if nothing is left to do. If this returns False,
        the caller must await `finish_send()` before the next piece. Raise what `send` raises, here or there.

        After the last piece, a caller whose pieces are small may leave `finish_send` out: pending bytes have their own
        deadline, and a lost peer ends the exchange. An empty last piece raises nothing if the peer is gone: nothing is
        lost.
        """
        ends = not (data or more)
        if self._link == DEAD:
            return ends or self._admit_late_send()
        writer = self.writer
        host = self._host
        # the deadline of the whole response counts also while no send has to wait, but not for an end without bytes
        due = self._response_due()
        needs_none = writer.complete or (writer.is_all_made and not more)
        if due < INF and due <= host.clock.now() and not needs_none:
            # what was sent in time is not lost
            host.output.flush()
            host.output_expired(RULES["write"], 0.0)
            return False
        date = b""
        if not writer.started:
            date = host.dates.current()
            if host.draining or (self._body != DONE and self._leaves_unread(more)):
                writer.must_close = True
        before, large, after = writer.body(data, more, date, host.keep_alive_lines)
        if not before:
            # nothing to send, as in a response to HEAD. There may be endlessly many pieces, so let `finish_send` yield
            self._mark_if_sent()
            return False
        host.output.append(before, large, after)
        # counts as a send that waits: if the flush finds the peer gone, a send tells the handler, and only with
        # `quiet_sends` it is cancelled
        self._sending += 1
        need_not_wait = host.flush_soon(more)
        self._sending -= 1
        self._mark_if_sent()
        return need_not_wait or (ends and self._link == DEAD)

    def _admit_late_send(self) -> bool:
        """Count a send after the peer has gone. Return True if the send is done, False if the caller must await
        `finish_send`. Raise Disconnected without `quiet_sends`, after a complete response, once the handler has left,
        for the 33rd, and DISCONNECT_GRACE seconds after the first."""
        if self._late is None:
            self._late = LateSends()
        in_time = self._late.count(self._host.clock.now(), 2 * _MOST_LATE)
        # a handler that has left is not cancelled any more, but tasks that it has started may go on
        runs = self.task is not None
        if not (self.quiet_sends and runs and in_time) or self.writer.complete:
            raise Disconnected(OVER)
        return not self._late_sends_yield

    @property
    def _late_sends_yield(self) -> bool:
        """True once so many late sends were made that each lets others run."""
        return self._late is not None and self._late.number > _MOST_LATE

    @property
    def waits_for_peer(self) -> bool:
        """True while `finish_send` waits for the peer to take more. Otherwise it only lets others run."""
        return self._host.output.size > LIMIT and self._link != DEAD

    async def finish_send(self) -> None:
        """Wait until at most 64 KiB are pending. Raise Disconnected if the peer is gone and `quiet_sends` is off. A
        checkpoint, except if the peer is gone, with `quiet_sends`, until more than 16 late sends were made."""
        if self.waits_for_peer:
            self._sending += 1
            # a handler that gives up an earlier piece may still complete the response
            was_last = self.writer.complete
            given_up = True
            try:
                while self.waits_for_peer:
                    await self._host.output.wait_for_room()
                given_up = False
            finally:
                self._sending -= 1
                if given_up:
                    self._given_up = max(self._given_up, LAST if was_last else PIECE)
                    # `let_sends_return` has no other sign of it
                    self._host.output.wake_senders()
            if self._link == LIVE and not (self._watching or self._receiving):
                # the peer was not watched meanwhile: this send would have noticed that it is gone
                self._host.watch_peer()
        elif self._link != DEAD or not self.quiet_sends or self._late_sends_yield:
            self._yielding += 1
            try:
                await checkpoint()
            finally:
                self._yielding -= 1
        if self._link == DEAD and not self.quiet_sends:
            # a cancellation that has come as well is raised here, in place of Disconnected
            await checkpoint()
            raise Disconnected("the peer is gone, or did not accept the response in time")

    async def let_sends_return(self) -> None:
        """Wait until the sends that are under way have returned. A checkpoint. The sends of a complete response may
        wait for the peer, and this waits as long.

        A receive calls this if it ends because the response is complete: frameworks cancel the task that sends as soon
        as the task that receives has ended.
        """
        for _ in range(_STEPS_TO_RETURN):
            await checkpoint()
        other = self.in_other_task
        self.count_others(other)
        try:
            while self._sending and self.writer.complete and self.waits_for_peer and not self._ends_listening:
                await self._host.output.wait_for_room()
        finally:
            self.count_others(-other)
        await checkpoint()

    async def wait_taken(self) -> None:
        """Wait until the kernel has taken all that was sent, or the peer is gone. Raises neither Disconnected nor
        anything else: it is no send, and a complete response stays complete if it is cancelled."""
        output = self._host.output
        output.flush()
        while output.size and self._link == LIVE:
            await output.wait_for_room()

    def go_on(self) -> None:
        """Let the connection go on after its Responder: if the response is complete to the next request, else in a
        task, which calls `Responder.run`. For the Responder only."""
        self._host.go_on()

    async def upgrade(self, protocol: Upgraded, headers: Headers) -> None:
        """Answer the request with 101 and `headers`, and hand the connection over to `protocol`. The handler's deadline
        is removed; the handler goes on, and tells `protocol` what to send.

        Raise ResponseError if a response was started or the request has a body that was not received, Disconnected if
        the peer is gone.
        """
        if self._link == DEAD:
            raise Disconnected(OVER)
        if self._body != DONE:
            raise ResponseError("the request has a body, which must be received before the connection is upgraded")
        await self._end_watch()
        self._switch(protocol, self.writer.switch(headers, self._host.dates.current()))

    async def hand_over(self, protocol: Upgraded) -> None:
        """Do what `upgrade` does on a raw connection, where no request is answered: send nothing.

        Raise ResponseError on any other connection, or the second time, Disconnected if the peer is gone.
        """
        if self._link == DEAD:
            raise Disconnected(OVER)
        await self._end_watch()
        self.writer.hand_over()
        self._switch(protocol, b"")

    async def _end_watch(self) -> None:
        """End `wait_disconnected`: from now on only the protocol reads. Nothing has changed if this is cancelled."""
        while self._watching:
            self._host.transport.conn.set_read_deadline(-INF)
            await checkpoint()
        if self._link == DEAD:
            raise Disconnected(OVER)

    def _switch(self, protocol: Upgraded, head: bytes) -> None:
        if self._answered is not None:
            # ends the rest of `wait_disconnected`, which waits without reading
            self._answered.set()
        if self.deadline < INF:
            self._leave_by = INF
            self.set_handler_deadline(INF)
        self._host.upgrade(protocol, head)

    def output_deadline(self, length: int, since: float, progress: float) -> tuple[float, Rule]:
        """Return when the peer must have accepted more of a piece, and by which rule; see `OutputOwner`."""
        return output_deadline(self.sent_by, self._write_by, length, since, progress, self._host.send_timeouts)

    def output_sent(self) -> None:
        """Tell the task that nothing of the response is pending any more, if it is complete."""
        if self._response == SENT and self.task is not None:
            self.task.not_needed()

    def _leaves_unread(self, more: bool) -> bool:
        """Return True if the rest of the body will not be read, as far as is known when the response begins; `more`:
        with a piece that is not its last. Nobody knows how long the rest of a body in chunks is, so it must have come
        for `discard_body`, unless the handler reads it while it responds."""
        if self._body == EXPECT_100:
            return True
        received = self._host.reader.received
        if not self.request.chunked:
            return (self.request.content_length or 0) - received > DISCARD
        reads_on = (more and received > 0) or (self._receiving and (more or not self.ends_receives))
        return not (reads_on or self._rest_has_come())

    def _response_due(self) -> float:
        """Return when the whole response must be sent."""
        return self.sent_by if self._write_by is None else self._write_by

    async def _send_continue(self) -> None:
        output = self._host.output
        output.append(CONTINUE)
        output.flush()

    def _mark_if_sent(self) -> None:
        """Note that the response is complete, if it is. End a watch, and tell the task."""
        if not self.writer.complete or self._response == SENT:
            return
        self._response = SENT
        self._host.unwatch_peer()
        if self._answered is not None:
            self._answered.set()
        if self._watching or (self._receiving and self.ends_receives):
            self.end_waits()
        if self.task is not None:
            if self._link == LIVE and self._leave_by < INF:
                # the peer has ended its side and was answered in time: what comes after the response is not cut
                self._leave_by = INF
                self.task.arm(self._own_deadline)
            self.task.not_needed()
