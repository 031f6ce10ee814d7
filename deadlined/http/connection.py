"""One connection, from accept to its one reason: the states of `state.py` in the order in which they happen.

Facts      A client may stop at any byte, of anything, in either direction.
Hazard     A phase without a deadline holds the connection for ever; a deadline that outlives its phase cuts a healthy
           one (golang/go#80205 and #80876 were one of each).
Answer     Every wait goes through the transport with the deadline of its phase. What an expiry means is decided by
           `policy` and performed here, at once, whatever the handler is doing. While nothing of a request has come a
           connection is unattended: the poller calls it.
Cost       A task while there is something to do; a stored field per phase.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable
from typing import Final

import trio

from ..errors import DeadlineExceeded
from ..net import Conn
from ..runtime import checkpoint
from . import policy
from .base import ConnectionBase
from .closing import close_gracefully
from .dates import DateLine
from .errors import BadRequest, Disconnected, ResponseError, is_disconnect
from .exchange import Exchange
from .handshake import tls_handshake
from .policy import RULES
from .reporting import report
from .seams import HandlerTask
from .settings import Handler, Settings
from .state import (
    BYTES_CAME,
    CLOSED,
    CLOSING,
    DEAD,
    EXCHANGE,
    EXCHANGE_DONE,
    HANDLER_LEFT,
    HANDSHAKE,
    HANDSHAKE_DONE,
    HEAD,
    IDLE,
    LIVE,
    QUEUED,
    REQUEST_READ,
    RUNNING,
    UNATTENDED,
    Phase,
    Reason,
    may_be_unattended,
)
from .transport import Tls
from .wire import Request


class ConnectionTask(HandlerTask):
    """What a connection asks of the task that runs it. An abstract base class."""

    def run_handler(self, handler: Handler, exchange: Exchange) -> Awaitable[object]:
        """To be awaited: call the handler, in a context of its own. `handler_left` follows."""
        raise NotImplementedError

    def close_generators(self) -> Awaitable[None] | None:
        """To be awaited if it is not None: close the async generators that the handler has abandoned."""
        raise NotImplementedError

    def handler_left(self) -> bool:
        """The handler has returned or failed: return False if the task must not be used again."""
        raise NotImplementedError

    def release(self) -> None:
        """The connection goes on without this task."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the handler; the task ends."""
        raise NotImplementedError


class ConnectionOwner:
    """What a connection tells the server. An abstract base class."""

    def schedule(self, connection: Connection) -> None:
        """Let a task run `connection`, soon."""
        raise NotImplementedError

    def request_done(self) -> None:
        """An exchange is over."""
        raise NotImplementedError

    def handler_detached(self) -> None:
        """A connection goes on without its handler, which still runs."""
        raise NotImplementedError

    def handler_finished(self) -> None:
        """A detached handler has returned."""
        raise NotImplementedError

    def closed(self, connection: Connection, reason: Reason, lateness: float) -> None:
        """A connection is over. `lateness` of the deadline that cut it, 0.0 if none did."""
        raise NotImplementedError


class Connection(ConnectionBase):
    """`start` it once; then `run` it in a task each time that it asks its owner for one."""

    def __init__(self, settings: Settings, conn: Conn, number: int, owner: ConnectionOwner, dates: DateLine) -> None:
        super().__init__(settings, conn, number, dates)
        self._owner: Final = owner
        # what runs it, while it is RUNNING
        self._task: ConnectionTask | None = None
        # when the current request began: at accept, after the handshake, or with its first byte; and when its last
        # bytes came
        self._began = self._came = self.accepted
        self._close_after = policy.age_deadline(self.accepted, random.uniform(-1, 1), self.timeouts)

    # what the server does with it

    def start(self) -> None:
        """Begin: serve what has come already, or wait for the first byte."""
        if self.state == HANDSHAKE:
            self._owner.schedule(self)
            return
        deadline, _ = policy.header_deadline(self.accepted, self.timeouts)
        self.enter(Phase.HEADER, deadline)
        self.conn.set_read_deadline(deadline)
        try:
            data = self.transport.receive_ready()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end(Reason.CLIENT_RESET)
            self.close()
            return
        if data is not None:
            self._feed(data)
        if data is not None or not self._register_idle():
            self._owner.schedule(self)

    def on_ready(self) -> None:
        """While it is unattended: something may have come, or the deadline has passed."""
        if self.attendance == UNATTENDED and self.state < CLOSED:
            self.attendance = QUEUED
            self._owner.schedule(self)

    async def run(self, task: ConnectionTask) -> None:
        """Serve in `task` until the connection is closed, unattended, or has gone on without this task."""
        self.attendance = RUNNING
        self._task = task
        try:
            try:
                if self._exchange is not None or self.state == HANDSHAKE:
                    await self._resume()
                else:
                    self._resume_idle()
                while self._is_run_by(task) and self.state < CLOSING:
                    if self.state == HEAD:
                        await self._serve_request(task)
                    elif not self._try_idle_unattended():
                        await self._wait_idle()
            except BadRequest as bad:
                self.refused(bad)
            except (trio.BrokenResourceError, trio.ClosedResourceError, Disconnected):
                self._end(Reason.CLIENT_RESET)
            if self._is_run_by(task) and self._must_linger:
                await close_gracefully(self.transport, self._last_response, self._unread, self.clock, self.timeouts)
        except Exception as error:
            report(logging.ERROR, "the connection with %s failed inside the server", self.peer, error=error)
            self._end(Reason.SERVER_ERROR)
        if self._is_run_by(task):
            self.close()

    def _is_run_by(self, task: ConnectionTask) -> bool:
        """True unless the connection has gone on without `task`. (A function, because mypyc believes that what a
        function has assigned stays.)"""
        return self._task is task

    def task_lost(self, error: BaseException | None) -> None:
        """Go on in another task, because this one has ended: with `error`, or cancelled by the connection itself."""
        exchange = self._exchange
        if error is not None and exchange is not None:
            self._handler_failed(exchange, error)
        self._change_task()

    def detach_handler(self) -> bool:
        """The handler suspends: if its response is out, go on in another task. True if so."""
        exchange = self._exchange
        if exchange is None or not exchange.detachable:
            return False
        self._detach(exchange)
        return True

    def handler_expired(self, lateness: float) -> None:
        """The handler's deadline has passed: end as the rule says, in another task, because how long the handler takes
        to end is not the peer's concern."""
        exchange = self._exchange
        self.expired(RULES["handler"], lateness)
        if exchange is not None:
            self._detach(exchange)

    def drain(self, now: float) -> None:
        """The server shuts down: what was asked is answered, what is idle ends in a moment, what is new soon."""
        self.draining = True
        if self.state == IDLE:
            self.conn.set_read_deadline(min(self.conn.read_deadline, now + policy.IDLE_GRACE))
        elif self.state <= HEAD and not self.requests and not self.reader.buffered:
            self.conn.set_read_deadline(min(self.conn.read_deadline, now + policy.NEW_GRACE))

    # what it adds to its base

    def _cancel_handler(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _tell_request_done(self) -> None:
        self._owner.request_done()

    def _tell_closed(self, reason: Reason, lateness: float) -> None:
        self._task = None
        self._owner.closed(self, reason, lateness)

    # waiting for a request

    async def _resume(self) -> None:
        """Do what is left to do for the state in which a task was asked for."""
        exchange = self._exchange
        if exchange is None:
            await self._handshake()
        else:
            # a handler that was cancelled may have to leave the socket first
            await checkpoint()
            await self._finish_exchange(exchange)

    async def _handshake(self) -> None:
        context = self.settings.ssl_context
        assert context is not None
        deadline = policy.handshake_deadline(self.accepted, self.timeouts)
        self.enter(Phase.HANDSHAKE, deadline)
        try:
            result = await tls_handshake(self.conn, context, deadline)
        except DeadlineExceeded as late:
            if late.deadline < deadline:
                # the drain's
                self._end(Reason.DONE)
            else:
                self.expired(RULES["handshake"], self.clock.now() - late.deadline)
            return
        if isinstance(result, Tls):
            self.transport = result
            self._began = self.clock.now()
            self._move(HANDSHAKE_DONE)
        else:
            self._end(result)

    def _register_idle(self) -> bool:
        """Be called when there is something to read. False if there is already."""
        assert may_be_unattended(self.state, self.reader.buffered > 0)
        if not self.conn.call_when_readable(self):
            return False
        self._leave_task()
        return True

    def _leave_task(self) -> None:
        self.attendance = UNATTENDED
        if self._task is not None:
            self._task.release()
            self._task = None

    def _resume_idle(self) -> None:
        """After a wait without a task: receive what has come, or go on waiting if nothing has."""
        if self.state >= CLOSING or self.reader.buffered:
            return
        data = None
        try:
            while data is None:
                if not self.conn.resume_readable(self):
                    self._leave_task()
                    return
                data = self.transport.receive_ready()
        except DeadlineExceeded as late:
            # bytes that came in time may have waited for this turn of the loop
            data = self.transport.receive_ready()
            if data is None:
                rule = RULES["idle"] if self.state == IDLE else RULES["read_header"]
                self.expired(rule, self.clock.now() - late.deadline)
                return
        self._feed(data)

    def _try_idle_unattended(self) -> bool:
        """Wait for the next request without a task. False if that cannot be done, or the next request is there."""
        now = self.clock.now()
        self.enter(Phase.IDLE, now + policy.IDLE_GRACE if self.draining else policy.idle_deadline(now, self.timeouts))
        if self.reader.buffered or not (self.transport.can_be_unattended and self.conn.drained):
            return False
        self.conn.set_read_deadline(self.deadline)
        return self._register_idle()

    async def _wait_idle(self) -> None:
        """Wait for the next request in the task. Others run first if its bytes are there."""
        if self.reader.buffered:
            await checkpoint()
            self._begin_request()
            return
        try:
            self._feed(await self.transport.receive(self.deadline))
        except DeadlineExceeded as late:
            self.expired(RULES["idle"], self.clock.now() - late.deadline)

    def _feed(self, data: bytes) -> None:
        """Take what was received of a request; b"" is the peer's end."""
        self.reader.feed(data)
        if not data:
            self._end(Reason.CLIENT_CLOSED)
        elif self.state == IDLE:
            self._begin_request()
        else:
            self._came = self.clock.now()

    def _begin_request(self) -> None:
        self._began = self._came = self.clock.now()
        self._move(BYTES_CAME)

    async def _rest_of_head(self) -> Request | None:
        """Receive until there is a request; None if the connection ends instead."""
        deadline, rule = policy.header_deadline(self._began, self.timeouts)
        self.enter(Phase.HEADER, deadline)
        request = None
        try:
            while request is None and self.state == HEAD:
                self._feed(await self.transport.receive(deadline))
                request = self.reader.next_request()
        except DeadlineExceeded as late:
            self.expired(rule, self.clock.now() - late.deadline)
        return request if self.state == HEAD else None

    # serving a request

    async def _serve_request(self, task: ConnectionTask) -> None:
        """Read a head and run the handler; finish the exchange, unless the connection has gone on without the task."""
        request = self.reader.next_request() or await self._rest_of_head()
        if request is None:
            return
        exchange = self._begin_exchange(request, self._came)
        usable = False
        try:
            try:
                await task.run_handler(self.settings.handler, exchange)
                if not (exchange.writer.complete or exchange.link == DEAD or self.reason):
                    raise ResponseError("the application returned before its response was complete")
            except Exception as error:
                if not is_disconnect(error):
                    self._handler_failed(exchange, error)
            closing = task.close_generators()
            if closing is not None:
                await closing
        finally:
            usable = task.handler_left()
            if not self._is_run_by(task):
                self._owner.handler_finished()
        if not self._is_run_by(task):
            return
        self._move_from_exchange()
        if not usable:
            self._change_task()
        elif self.reason is None and exchange.reusable_at_once and not exchange.writer.must_close:
            self._release_exchange(exchange)
            self._move(EXCHANGE_DONE)
        else:
            await self._finish_exchange(exchange)

    def _begin_exchange(self, request: Request, now: float) -> Exchange:
        self.requests += 1
        last = policy.is_last(request.keep_alive, self.draining, self.requests, self.limits, now, self._close_after)
        exchange = self._exchange = Exchange(self, request, self._began, now, last)
        self._move(REQUEST_READ)
        self.enter(Phase.HANDLER, exchange.deadline)
        return exchange

    def _handler_failed(self, exchange: Exchange, error: BaseException) -> None:
        # an application that stumbles over a peer that is gone has not failed
        level = logging.DEBUG if exchange.link == DEAD else logging.ERROR
        report(level, "%s failed", exchange.request.line, error=error)
        if exchange.link == LIVE:
            self._perform(policy.on_handler_failure(exchange.response), "the application failed; its log says why")
        elif exchange.link == DEAD:
            self._end(Reason.SERVER_ERROR)

    def _move_from_exchange(self) -> None:
        if self.state == EXCHANGE:
            self._move(HANDLER_LEFT)

    def _detach(self, exchange: Exchange) -> None:
        exchange.detach()
        self._owner.handler_detached()
        self._change_task()

    def _change_task(self) -> None:
        """Go on in another task."""
        self._move_from_exchange()
        if self._task is not None:
            self._task.release()
            self._task = None
        self.attendance = QUEUED
        self._owner.schedule(self)

    async def _finish_exchange(self, exchange: Exchange) -> None:
        """After the handler: decide whether the connection can be used again, and read what is left of the body."""
        try:
            if exchange.link == DEAD:
                # unless it has another reason, the application gave up in the middle of a send
                self._end(Reason.SERVER_ERROR)
            if self.reason is None and exchange.writer.must_close:
                self._end(self._why_last(exchange.request))
            if self.reason is None and not (exchange.reusable_at_once or await exchange.discard_body()):
                self._end(Reason.DONE)
            # unless the peer asked for the end, it may be sending already what nobody will read
            more = self.reason is not None and (exchange.request.keep_alive or self.reader.buffered > 0)
            self._unread = more or not exchange.body_done
        finally:
            self._release_exchange(exchange)
        if self.reason is None:
            self._move(EXCHANGE_DONE)

    def _why_last(self, request: Request) -> Reason:
        now = self.clock.now()
        return policy.why_last(request.keep_alive, self.draining, self.requests, self.limits, now, self._close_after)
