"""How a connection waits for the next request: without a task if possible, under the deadline of its phase.

Facts      Most connections of a server are idle most of the time.
Answer     A connection from which no byte of the next request was read is unattended: it has no task, and the poller
           calls `on_ready`. If a response is still being sent, the connection waits for that without a task, too. Then
           it is idle, or closed if the response was its final one.
Cost       A wait stores its phase and deadline, moves the read deadline, and parks a callback. Where a short read does
           not show that nothing is left, as on a unix socket, a wait also costs one poll(2).
"""

from __future__ import annotations

import logging
from typing import Final

from ..errors import DeadlineExceeded
from ..net import Conn
from ..runtime import checkpoint
from . import policy
from .closing import GracefulClose
from .dates import DateLine
from .exchange import Exchange
from .owner import ConnectionOwner, ConnectionTask
from .peer import PeerConnection
from .policy import RULES
from .reporting import report
from .settings import Settings
from .state import (
    BYTES_CAME,
    CLOSED,
    CLOSING,
    DEAD,
    EXCHANGE,
    EXCHANGE_DONE,
    FINISHING,
    HANDLER_LEFT,
    HANDSHAKE,
    HEAD,
    IDLE,
    LIVE,
    NO_CALL,
    QUEUED,
    SENDING,
    UNATTENDED,
    WATCH,
    Phase,
    Reason,
    may_be_unattended,
)
from .timeouts import INF


class WaitingConnection(PeerConnection):
    """A connection that waits for requests. An abstract base class; `UpgradedConnection` derives from it."""

    def __init__(self, settings: Settings, conn: Conn, number: int, owner: ConnectionOwner, dates: DateLine) -> None:
        super().__init__(settings, conn, number, dates)
        self._owner: Final = owner
        # the task that runs the connection; None if it is queued, unattended, sending or closed
        self._task: ConnectionTask | None = None
        # when the current request began (at accept, after the handshake, or with its first bytes), and when its latest
        # bytes were read
        self._began_at = self._came_at = self.accepted
        # the rule of the deadline of a head that is waited for
        self._head_rule = RULES["read_header"]
        # when the latest wait for a next request began
        self._idle_since = self.accepted

    def on_ready(self) -> None:
        """Ask for a task if the connection is unattended: bytes may have come, its deadline has passed, or its socket
        was closed. If a handler runs, check whether the peer has left."""
        if self.attendance == UNATTENDED and self.state < CLOSED:
            self._call = NO_CALL
            self._ask_for_task()
        elif self._call == WATCH:
            self._check_peer()

    def fail(self, error: Exception) -> None:
        """End because of an error that is neither the peer's nor a handler's: a lack of memory, for example."""
        report(logging.ERROR, "the connection with %s failed inside the server", self.peer, error=error)
        self._end(Reason.SERVER_ERROR)

    # implements PeerConnection

    def drain(self, now: float) -> None:
        """Begin the drain at `now`; called again when `Drain.reuse_grace` is shorter. A connection whose head, or TLS
        handshake, is not complete has until `last_head_deadline`, an idle one until `reuse_deadline`. A request whose
        head has come is served, and then the rest of its body has LINGER."""
        self.draining = True
        if self._closing is not None:
            self._closing.hurry()
        elif self.state == FINISHING and self._exchange is not None:
            self._exchange.end_body_soon()
        elif self._is_idle:
            self._expect(Phase.IDLE, min(self.deadline, self._reuse_deadline(now)))
        elif self.state == HANDSHAKE:
            self.conn.set_read_deadline(min(self.conn.read_deadline, self._last_head_deadline(now)))
        elif self.state == HEAD and self.phase is Phase.HEADER:
            self._expect(Phase.HEADER, min(self.deadline, self._last_head_deadline(now)))

    @property
    def idle_since(self) -> float:
        return self._idle_since if self._is_idle else INF

    def end_idle(self, since: float, now: float) -> bool:
        if self.idle_since != since:
            return False
        # what has come by now is received first
        self._expect(Phase.IDLE, min(self.deadline, now))
        return True

    def _ask_for_flush(self) -> bool:
        if self._task is None:
            return self._responder is not None and self._owner.flush_later(self)
        return self._task.flush_later(self)

    def turn_is_long(self) -> bool:
        return self._task is not None and self._task.turn_is_long()

    def _go_on(self) -> None:
        if self.attendance != SENDING:
            if self.state == CLOSING and self.attendance == UNATTENDED and self._exchange is not None:
                # its Responder was abandoned, and asks for nothing any more
                self._ask_for_task()
            return
        if self.state <= IDLE and self.output.size:
            return
        if self.state == FINISHING:
            self._end_last_exchange()
        if self.state == CLOSED or (self.state == IDLE and self._park_again()):
            return
        self._ask_for_task()

    def go_on(self) -> None:
        exchange = self._exchange
        assert exchange is not None and self._task is None
        if not exchange.answered:
            if self.attendance == UNATTENDED:
                self.unwatch_peer()
                self._ask_for_task()
            return
        self._responder = None
        if self.attendance == QUEUED:
            # the task that comes finishes the exchange
            self._note_handler_left()
        elif self.reason is None and exchange.reusable_at_once and not exchange.writer.must_close:
            self._note_handler_left()
            self._release_exchange(exchange)
            self._advance(EXCHANGE_DONE)
            if not self._try_idle_unattended():
                self._ask_for_task()
        else:
            self._change_task()

    def hold_head(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        self._owner.hold_head(exchange)

    # who runs the connection

    def _begin_responder(self, exchange: Exchange) -> bool:
        """Have the exchange answered without a task, if the server has a Responder for it. Return True if so."""
        respond = self.settings.respond
        if respond is None or exchange.link != LIVE:
            return False
        responder = self._responder = respond(exchange)
        if responder is None:
            return False
        self._leave_task()
        try:
            responder.begin()
        except Exception as error:
            report(logging.ERROR, "%s failed inside the server", exchange.request.line, error=error)
            self._end(Reason.SERVER_ERROR)
            self._go_on()
        return True

    def _note_handler_left(self) -> None:
        """Change the state from EXCHANGE to FINISHING. Do nothing in any other state."""
        if self.state == EXCHANGE:
            self.unwatch_peer()
            self._advance(HANDLER_LEFT)

    def _change_task(self) -> None:
        """Release the task, and ask the owner for another one."""
        self._note_handler_left()
        if self._task is not None:
            self._task.release()
            self._task = None
        self._ask_for_task()

    def _ask_for_task(self) -> None:
        self.attendance = QUEUED
        self._owner.schedule(self)

    # waiting

    def _expect(self, phase: Phase, deadline: float) -> None:
        """Enter `phase`, in which bytes must come by `deadline`."""
        self.enter(phase, deadline)
        self.conn.set_read_deadline(deadline)

    def _expect_head(self) -> None:
        """Enter HEADER, in which the head of a request that began at `_began_at` must come. A reload does not move the
        deadline, and a drain only makes it earlier."""
        deadline, self._head_rule = policy.header_deadline(self._began_at, self.timeouts)
        if self.draining:
            deadline = min(deadline, self._last_head_deadline(self._began_at))
        self._expect(Phase.HEADER, deadline)

    def _become_unattended(self) -> bool:
        """Release the task, and let the poller call `on_ready` when bytes may have come. Return False and keep the task
        if they may have come already, the deadline has passed or the socket is closed. The readiness is consumed then:
        the caller must try to receive."""
        assert may_be_unattended(self.state, self.reader.buffered > 0)
        if not self.conn.call_when_readable(self):
            return False
        self._leave_task()
        return True

    def _leave_until_sent(self, exchange: Exchange) -> bool:
        """Release the task and return True if only sending the final response and closing are left, which `_go_on`
        does. Otherwise return False."""
        if exchange.link == DEAD or not (exchange.writer.must_close and exchange.body_done and self.output.size):
            return False
        self._leave_task(SENDING)
        return True

    def _leave_task(self, attendance: int = UNATTENDED) -> None:
        """Note that the connection is unattended or SENDING, and release its task if it has one."""
        self.attendance = attendance
        if self._task is not None:
            self._task.release()
            self._task = None

    def _resume_idle(self) -> None:
        """Receive what has come during a wait without a task. If nothing has, wait again, in this task if bytes may be
        there nevertheless; if the deadline has passed, end the connection."""
        if self.state >= CLOSING or self.reader.buffered or not self.transport.can_be_unattended:
            return
        data = None
        try:
            while data is None:
                if not self.conn.resume_readable(self):
                    if self.conn.ask_if_drained():
                        self._leave_task()
                    else:
                        # a watch has used up the readiness, but has not received
                        self.conn.cancel_call()
                    return
                data = self.transport.receive_ready()
        except DeadlineExceeded as late:
            self._receive_late(late)
        else:
            self._feed(data)

    def _receive_late(self, late: DeadlineExceeded) -> None:
        """Receive what has come before the deadline, while the event loop was busy. If nothing has, end the
        connection."""
        data = self.transport.receive_ready()
        if data is not None:
            self._feed(data)
        else:
            rule = RULES["idle"] if self.state == IDLE else self._head_rule
            self.expired(rule, self.clock.now() - late.deadline)

    def _try_idle_unattended(self) -> bool:
        """Send what is pending and enter the idle phase without a task, if possible. Return False if the wait needs
        this task: the transport cannot be unattended, or bytes of the next request may be there."""
        self.reader.drop_empty_lines()
        if self.reader.buffered or not (self.transport.can_be_unattended and self.conn.ask_if_drained()):
            return False
        if self.output.size:
            # `_go_on` enters the idle phase once all is sent
            self._leave_task(SENDING)
            return True
        self._expect_request()
        return self._become_unattended()

    def _expect_request(self) -> None:
        """Enter the idle phase: nothing is pending. If the connection is idle, and nothing but empty lines has come,
        its deadline stays."""
        if self.phase is Phase.IDLE:
            return
        now = self._idle_since = self.clock.now()
        deadline = policy.idle_deadline(now, self.timeouts)
        self._expect(Phase.IDLE, min(deadline, self._reuse_deadline(now)) if self.draining else deadline)

    def _reuse_deadline(self, now: float) -> float:
        """Return when the drain closes this connection, which is idle."""
        drain = self.settings.drain
        return policy.reuse_deadline(now, self._idle_since, drain.reuse_grace, drain.until)

    def _last_head_deadline(self, now: float) -> float:
        """Return when the drain ends this connection if the head of its request is not complete."""
        drain = self.settings.drain
        return policy.last_head_deadline(now, drain.since, drain.until)

    def _park_again(self) -> bool:
        """Enter the idle phase without a task. Return False if bytes of the next request may be there, or the deadline
        has passed."""
        self._expect_request()
        # check first: `_become_unattended` would consume the readiness, and `_resume_idle` wait for bytes that are here
        return self.conn.ask_if_drained() and self._become_unattended()

    async def _wait_idle(self) -> None:
        """Wait in the task for the next request. If its bytes are there already, let other tasks run first."""
        await self._empty_output()
        if self.state >= CLOSING:
            return
        if self.reader.buffered:
            await checkpoint()
            self._begin_request()
            return
        self._expect_request()
        try:
            self._feed(await self.transport.receive(self.deadline))
        except DeadlineExceeded as late:
            self._receive_late(late)

    def _feed(self, data: bytes) -> None:
        """Give received bytes to the parser. They begin the next request if the connection is idle, unless they are
        empty lines. b"" means that the peer has closed its side, and ends the connection."""
        self.reader.feed(data)
        if not data:
            self._end(Reason.CLIENT_CLOSED)
        elif self.state == IDLE:
            self.reader.drop_empty_lines()
            if self.reader.buffered:
                self._begin_request()
        else:
            self._came_at = self.clock.now()

    def _begin_request(self) -> None:
        """Note that the first bytes of the next request were read."""
        self._began_at = self._came_at = self.clock.now()
        self._end_choice()
        self._advance(BYTES_CAME)

    def _graceful_close(self) -> GracefulClose:
        """Return the graceful close that is under way, or a new one."""
        if self._closing is None:
            self._closing = GracefulClose(
                self.transport, self.output, self._unread, self._upgraded is not None, self.clock
            )
            if self.draining:
                self._closing.hurry()
        return self._closing

    def _end_last_exchange(self) -> None:
        """End the connection after its final response was sent. Close it at once, unless the close must linger."""
        raise NotImplementedError

    async def _empty_output(self) -> None:
        """Send what is pending, and wait until the kernel has taken it or the connection ends."""
        self.output.flush()
        if self.output.size:
            await self.output.wait(0)
