"""The life of one connection, from accept to close: the states of `state.py` in the order in which they happen.

Facts      A client may stop sending or reading at any byte.
Hazard     A phase without a deadline holds the connection for ever; a deadline that outlives its phase cuts a healthy
           one (golang/go#80205 and #80876 were one of each).
Answer     Every wait goes through the transport with the deadline of its phase. `policy` decides what an expiry means,
           and `base` does it at once, whatever the handler is doing. A connection from which no byte of the handshake
           or of the next request was read is unattended: it has no task, and the poller calls `on_ready`.
Cost       A task while there is something to do. A phase stores its name and its deadline.
"""

from __future__ import annotations

import random

from ..errors import DeadlineExceeded
from ..net import BrokenResourceError, ClosedResourceError, Conn
from . import policy
from .dates import DateLine
from .errors import BadRequest, Disconnected, ResponseCut, UnfinishedResponseError
from .exchange import Exchange
from .handling import log_failure, run_handler
from .handshake import TlsHandshake
from .owner import ConnectionOwner, ConnectionTask
from .policy import RULES
from .secure import Tls
from .settings import Handler, Settings
from .state import (
    CLOSING,
    DEAD,
    DONE,
    EXCHANGE_DONE,
    HANDSHAKE,
    HANDSHAKE_DONE,
    HEAD,
    LIVE,
    REQUEST_READ,
    RUNNING,
    SENT,
    UNATTENDED,
    UPGRADED,
    Phase,
    Reason,
)
from .upgraded import UpgradedConnection
from .wire import Request


class Connection(UpgradedConnection):
    """One connection of a server. The owner calls `start` once, and has a task call `run` after each `schedule`."""

    def __init__(self, settings: Settings, conn: Conn, number: int, owner: ConnectionOwner, dates: DateLine) -> None:
        super().__init__(settings, conn, number, owner, dates)
        self.close_after = policy.age_deadline(self.accepted, random.uniform(-1, 1), self.timeouts)
        # the TLS handshake that is under way
        self._shaking: TlsHandshake | None = None
        # `_finish_exchange` is under way or was cancelled: what ends the task is not the handler's failure
        self._finishing = False

    # called by the server, its workers and the poller

    def start(self) -> None:
        """Begin to serve: wait without a task for the first byte. Without TLS, check first whether it has come."""
        if self.state == HANDSHAKE:
            self._expect(Phase.HANDSHAKE, policy.handshake_deadline(self.accepted, self.timeouts))
            if not self._become_unattended():
                self._owner.schedule(self)
            return
        self._expect_head()
        try:
            data = self.transport.receive_ready()
        except (BrokenResourceError, ClosedResourceError):
            self._end(Reason.CLIENT_RESET)
            self.close()
            return
        if data is not None:
            self._feed(data)
        if data is not None or not self._become_unattended():
            self._owner.schedule(self)

    async def run(self, task: ConnectionTask) -> None:
        """Serve in `task` until the connection is closed, is unattended, or goes on in another task. Only cancellation
        and other BaseExceptions pass."""
        self.attendance = RUNNING
        self._task = task
        try:
            try:
                if self._exchange is not None or self.state == HANDSHAKE:
                    await self._resume(task)
                else:
                    self._resume_idle()
                while self._is_run_by(task) and self.state < CLOSING:
                    if self.state == HEAD:
                        await self._serve_next(task)
                    elif not self._try_idle_unattended():
                        await self._wait_idle()
            except BadRequest as bad:
                self.refused(bad)
            except (BrokenResourceError, ClosedResourceError, Disconnected):
                self._end(Reason.CLIENT_RESET)
            if self._is_run_by(task) and self._must_linger:
                await self._graceful_close().run()
        except Exception as error:
            self.fail(error)
        if self._is_run_by(task):
            self.close()

    def _is_run_by(self, task: ConnectionTask) -> bool:
        """Return True if the connection has not gone on without `task`. A method, because mypyc would assume in `run`
        that `_task` is still what `run` has assigned."""
        return self._task is task

    def task_lost(self, error: BaseException | None) -> None:
        """Go on in another task after this one has ended. `error` is what ended it; None if the connection itself has
        cancelled it."""
        exchange, upgraded = self._exchange, self.state == UPGRADED
        if upgraded:
            # the handler has ended: if its failure ends the connection, that leaves nothing behind in the task
            self._leave_task()
        if error is not None and exchange is not None and not self._finishing:
            self.handler_failed(exchange, error)
        if not upgraded:
            self._change_task()
        elif self.state == UPGRADED:
            self._leave_upgraded()

    def detach_handler(self) -> bool:
        """Go on in another task if the connection does not need its handler any more. Return True if so. Called as the
        handler suspends, or while it is suspended."""
        exchange = self._exchange
        if exchange is None or not exchange.detachable:
            return False
        self._detach(exchange)
        return True

    def detach_answered(self) -> bool:
        """Go on without the handler if it has given the whole response, which may not have left yet, or if the protocol
        of an upgrade is ending. Return True if so: the handler was in time."""
        exchange = self._exchange
        if exchange is None or exchange.link != LIVE:
            return False
        if exchange.upgraded:
            return self._detach_ending(exchange)
        if not exchange.answered:
            return False
        self._detach(exchange)
        return True

    def handler_expired(self, lateness: float) -> None:
        """End the connection because the handler's deadline has passed. The end goes on in another task, so that the
        peer does not wait until the cancelled handler has returned."""
        exchange = self._exchange
        if self._leaving and exchange is not None and exchange.ends_soon:
            self._peer_left(Reason.CLIENT_CLOSED)
            return
        if self.state == UPGRADED:
            self._cut_upgraded(lateness)
            return
        self.expired(RULES["handler"], lateness)
        if exchange is not None:
            self._detach(exchange)

    # implements ConnectionBase

    def _cancel_handler(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def handler_failed(self, exchange: Exchange, error: BaseException) -> None:
        # what was sent before the failure goes out, and decides whether the peer can be told; nothing follows it
        self.output.flush()
        stopped = self.draining and isinstance(error, UnfinishedResponseError)
        cut = error if isinstance(error, ResponseCut) else None
        log_failure(exchange, error, stopped)
        if self.state == UPGRADED and self._upgraded is not None:
            # it may be what another handler does after its response, to an earlier request
            if exchange.upgraded:
                self._upgraded.handler_left(True)
        elif exchange.link == LIVE:
            # a complete response that has not left yet leaves all the same
            response = SENT if exchange.answered else exchange.response
            shows_end = exchange.shows_end and self.reason is None
            if (action := policy.on_handler_failure(response, cut, stopped, shows_end)) is not None:
                self._perform(action, "the application failed; its log says why" if cut is None else cut.detail)
                exchange.kill()
        elif exchange.link == DEAD:
            self._end(Reason.SERVER_ERROR)

    def _peer_left(self, reason: Reason) -> None:
        exchange = self._exchange
        assert exchange is not None
        self.lost(reason)
        if not exchange.answered:
            exchange.kill()
        if exchange.task is not None:
            if not exchange.answered:
                self._cancel_handler()
            # the socket is closed at once, whatever the handler does with its cancellation
            self._detach(exchange)
        elif self.attendance == UNATTENDED:
            self._ask_for_task()

    def _tell_request_done(self) -> None:
        self._owner.request_done()

    def _tell_closed(self, reason: Reason, lateness: float) -> None:
        self._task = None
        self._owner.closed(self, reason, lateness)

    # waiting for a request

    async def _resume(self, task: ConnectionTask) -> None:
        """Go on in a new task: with the TLS handshake, with an exchange whose Responder needs a task, or with one whose
        handler has left or is detached."""
        exchange, responder = self._exchange, self._responder
        if exchange is None:
            await self._handshake()
        elif responder is not None:
            # which abandons the Responder if the peer has left
            self.watch_peer()
            self._responder = None
            await self._run_handler(task, exchange, lambda _: responder.run())
        elif self._upgraded is None:
            self._finishing = True
            # a cancelled handler may still wait for the socket
            await exchange.let_leave()
            await self._finish_exchange(exchange)

    async def _handshake(self) -> None:
        if self._shaking is None:
            self._shaking = TlsHandshake(self.conn, self.settings.ssl_context, self.peer)
        try:
            result = await self._shaking.run(self.deadline)
        except DeadlineExceeded as late:
            # in the record, so that a client that trickles is not taken for a silent one
            self.transport.received = self._shaking.received
            self.expired(RULES["handshake"], self.clock.now() - late.deadline)
            return
        self._shaking = None
        if isinstance(result, Tls):
            self.transport = result
            self._began_at = self.clock.now()
            self._advance(HANDSHAKE_DONE)
            self._expect_head()
            if result.can_be_unattended and self.conn.ask_if_drained():
                self._become_unattended()
        else:
            self._unread = result is Reason.PROTOCOL_ERROR  # a plain close could be a reset, which discards TLS's alert
            self._end(result)

    def _buffered_request(self) -> Request | None:
        """Return the next request if its head was received, None if it was not."""
        return self.reader.next_request()

    async def _rest_of_head(self) -> Request | None:
        """Receive until the head is complete, and return the request. Return None if the connection ends instead."""
        if self.phase is not Phase.HEADER:
            self._expect_head()
        request = None
        try:
            while request is None and self.state == HEAD:
                self._feed(await self.transport.receive(self.deadline))
                request = self.reader.next_request()
        except DeadlineExceeded as late:
            self.expired(self._head_rule, self.clock.now() - late.deadline)
        return request if self.state == HEAD else None

    # serving a request

    async def _serve_next(self, task: ConnectionTask) -> None:
        """Serve a request in `task`, or ask for another task if this one has run a handler and must not run another."""
        if task.fresh:
            await self._serve_request(task)
        else:
            self._change_task()

    async def _serve_request(self, task: ConnectionTask) -> None:
        """Read a head, and let the request be answered: without `task` if possible, else by the handler."""
        request = self._buffered_request() or await self._rest_of_head()
        if request is None:
            return
        exchange = self._begin_exchange(request, self._came_at)
        if not self._begin_responder(exchange):
            await self._run_handler(task, exchange, self.settings.serve)

    async def _run_handler(self, task: ConnectionTask, exchange: Exchange, handler: Handler) -> None:
        """Run the handler, unless the peer has left, and finish the exchange. Return early if another task does it."""
        if exchange.link == DEAD:
            await self._finish_exchange(exchange)
            return
        usable = False
        try:
            await run_handler(task, handler, exchange, self)
        finally:
            usable = task.handler_left()
            # also if the handler has ended its task: nothing may detach it any more
            if self._is_run_by(task):
                self._note_handler_left()
            else:
                self._owner.handler_finished(exchange)
            if exchange.link == DEAD or exchange.upgraded:
                self._owner.handler_cut()
        if not self._is_run_by(task):
            return
        if self._upgraded is not None:
            if self.state == UPGRADED:
                self._leave_upgraded()
        elif not usable:
            self._change_task()
        elif self.reason is None and exchange.reusable_at_once and not exchange.writer.must_close:
            self._release_exchange(exchange)
            self._advance(EXCHANGE_DONE)
        elif self.reason is not None or not self._leave_until_sent(exchange):
            await self._finish_exchange(exchange)

    def _begin_exchange(self, request: Request, now: float) -> Exchange:
        """Make the exchange of `request`, whose head was complete at `now`."""
        self.requests += 1
        if self.reader.choice is not None:
            self._use_choice(self.reader.choice)
        last = self._why_last(request, now) is not None
        exchange = self._exchange = Exchange(self, request, self._began_at, now, last)
        self._advance(REQUEST_READ)
        self.enter(Phase.HANDLER, exchange.deadline)
        self._leaving = False
        self.watch_peer()
        return exchange

    def _detach(self, exchange: Exchange) -> None:
        """Go on in another task and leave the handler behind in this one."""
        exchange.detach()
        self._owner.handler_detached(exchange)
        self._change_task()

    async def _finish_exchange(self, exchange: Exchange) -> None:
        """End an exchange whose handler has left: send what is pending, discard the rest of the body, and decide
        whether the connection can be used again. After a cancellation another task does this again."""
        self._finishing = True
        if exchange.link != DEAD or self.reason in policy.BY_HANDLER:
            await self._empty_output()
        if exchange.link == DEAD:
            # the first reason stays; if there is none, the application gave up in the middle of a send
            self._end(Reason.SERVER_ERROR)
        if self.reason is None and exchange.writer.must_close:
            self._end(self._why_last(exchange.request, self.clock.now()) or Reason.DONE)
        if self.reason is None and not (exchange.reusable_at_once or await exchange.discard_body()):
            self._end(Reason.DONE)
        if self.reason is not None:
            await exchange.end_reads()
            self._reset_part(exchange)
        # unless the peer asked for the close, it may be sending a next request that the server will not read
        more = self.reason is not None and (exchange.request.keep_alive or self.reader.buffered > 0)
        self._unread = more or exchange.body != DONE
        self._finishing = False
        self._release_exchange(exchange)
        if self.reason is None:
            self._advance(EXCHANGE_DONE)

    def _end_last_exchange(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        self._end(self._why_last(exchange.request, self.clock.now()) or Reason.DONE)
        self._unread = exchange.request.keep_alive or self.reader.buffered > 0
        self._release_exchange(exchange)
        if not self._must_linger:
            self.close()

    def _why_last(self, request: Request, now: float) -> Reason | None:
        return policy.why_last(request.keep_alive, self.draining, self.requests, self.limits, now, self.close_after)
