"""One connection, from accept to its one reason: the phases in the order in which they happen.

Facts      A client may stop at any byte, of anything, in either direction.
Hazard     A phase without a deadline holds the connection for ever; a deadline that outlives its phase cuts a healthy
           one (golang/go#80205 and #80876 were one of each).
Answer     Every wait goes through `receive` or `send`, which take the deadline of their phase from the table. Where a
           deadline passes, `cut` tells the peer at once what the table owes it, whatever the application is doing.
           Between two requests it rests in no task: the poller calls it when there is something to read.
Cost       A task, while there is something to do; a stored field per phase.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

import trio

from ..errors import DeadlineExceeded
from ..net import Conn
from ..runtime import ReadyCallback, RunInContextCopy, checkpoint
from .errors import BadRequest, Disconnected, ResponseError, is_disconnect
from .exchange import Exchange
from .goodbye import Goodbye
from .handling import Handling
from .handshake import shake_hands
from .phases import DETAILS, NEW_GRACE, RULES, Phase, Reason, age_deadline, farewell, header_deadline, idle_deadline
from .records import ConnectionInfo, connection_record, request_record
from .timeouts import INF, Limits, Timeouts
from .transport import Plain, Transport, address_of
from .wire import Request, RequestParser, canned

if TYPE_CHECKING:
    from .phases import Rule
    from .pool import TaskPool
    from .server import HttpServer

_log: Final = logging.getLogger("deadlined.http")


class HttpConnection(ReadyCallback):
    """Serves one connection: `converse`, then `say_goodbye` unless it `can_leave`, and `close` in any case."""

    def __init__(self, server: HttpServer, conn: Conn, number: int) -> None:
        self.server = server
        self.conn = conn
        self.clock = server.clock
        self.timeouts: Timeouts = server.timeouts
        self.limits: Limits = server.limits
        self.parser = RequestParser(server.limits, server.parse_head)
        self.transport: Transport = Plain(conn)
        self.accepted = self.clock.now()
        self.phase = Phase.HEADER
        self.deadline = INF
        self.reason: Reason | None = None
        self.requests = 0
        self.client = address_of(conn.socket.getpeername)
        self.local = address_of(conn.socket.getsockname)
        self._peer = ""
        self._number = number
        self._lateness = 0.0
        self._ended = INF
        self._answered: trio.Event | None = None
        # of the task that serves it now
        self._handling: Handling | None = None
        self._exchange: Exchange | None = None
        # what had been received and sent before that exchange
        self._received = self._sent = 0
        # where it asks for a task when there is something to read; None while it is in one
        self._pool: TaskPool | None = None
        self._goodbye = Goodbye(conn)
        self._close_after = age_deadline(self.accepted, random.uniform(-1, 1), self.timeouts)

    async def converse(self, handling: Handling) -> None:
        """Serve with this task's `handling`, until the connection ends or is cancelled, or goes on in another task, or
        rests in none."""
        self._handling = handling
        try:
            if self._pool is not None:
                self._rise(handling)
            elif self._exchange is not None:
                await self._go_on_from(self._exchange)
                await self._pause(handling)
            elif self.server.ssl_context is not None:
                await shake_hands(self, self.server.ssl_context)
            while self._goes_on_in(handling):
                await self._next_exchange(handling)
                if self._goes_on_in(handling) and not self._rests(handling):
                    await self._pause(handling)
        except BadRequest as bad:
            self.refuse(bad)
        except (trio.BrokenResourceError, trio.ClosedResourceError, Disconnected):
            # unless it was cut, or noted where it happened
            self.finish(Reason.CLIENT_RESET)
        finally:
            self._leave(handling)

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        if not self._peer:
            self._peer = f"{self.client[0]}:{self.client[1]}" if self.client else "unix"
        return self._peer

    @property
    def can_leave(self) -> bool:
        """After `converse`: True if nothing is left to say, so that `close` is all."""
        return self._goodbye.nothing_to_say(self.transport)

    async def say_goodbye(self) -> None:
        """After `converse`: say what is left to say, and close politely."""
        await self._goodbye.say(self.transport, self.clock, self.timeouts)

    def failed(self) -> None:
        """An error in this server, to be called where it is handled."""
        _log.exception("the connection with %s failed inside the server", self.peer)
        self.finish(Reason.SERVER_ERROR)

    def on_ready(self) -> None:
        """While it rests: there is something to read, or a deadline has passed."""
        if self._pool is not None:
            self._pool.serve(self)

    def close(self) -> None:
        """Close, whatever has happened, and report why the connection ended."""
        self._pool = None
        if self.reason is None:
            # cancelled from outside, with the server
            self.finish(Reason.DRAIN_TIMEOUT)
            self.conn.abort()
        self.conn.close()
        self.server.ended(self, self.reason or Reason.SERVER_ERROR, self._lateness)
        try:
            if self.server.observer is not None:
                self.server.observer.connection(connection_record(self, self._ended, self._lateness))
        except Exception:
            self.failed()

    def cut(self, rule: Rule, lateness: float) -> None:
        """The deadline of `rule` has passed: note it, and tell the peer at once what is owed to it."""
        self.finish(rule.reason, lateness)
        exchange = self._exchange
        if exchange is not None and exchange.over and rule.reason is not Reason.DRAIN_TIMEOUT:
            # the peer has been told already
            return
        byte_came = exchange is not None or self.parser.buffered > 0
        words = farewell(rule, byte_came=byte_came, answered=exchange is not None and exchange.answered)
        if words.status is not None:
            self._answer(words.status, DETAILS[rule.field])
        elif words.reset and not (exchange is not None and exchange.out):
            self.conn.abort()
            if exchange is not None:
                exchange.give_up()

    def cancel(self) -> None:
        """Cancel the handler, wherever it is."""
        if self._handling is not None:
            self._handling.cancel()

    def refuse(self, bad: BadRequest) -> None:
        """Answer what cannot be served, if nothing was answered yet; the connection ends."""
        self.finish(bad.reason)
        if self._exchange is None or not self._exchange.answered:
            self._answer(bad.status, bad.detail)

    def finish(self, reason: Reason, lateness: float = 0.0) -> None:
        """The connection ends for `reason`; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._ended = self.clock.now()
            self._lateness = max(lateness, 0.0)

    def enter(self, phase: Phase, deadline: float) -> None:
        """From now on the connection is in `phase`, until `deadline`."""
        self.phase = phase
        self.deadline = deadline

    def begin_drain(self, now: float) -> None:
        """The server shuts down: an idle connection ends now, a silent one soon, a busy one with its response."""
        if self.phase is Phase.IDLE:
            self.conn.set_read_deadline(-INF)
        elif self._exchange is None and not self.requests and not self.parser.buffered:
            self.conn.set_read_deadline(min(self.conn.read_deadline, now + NEW_GRACE))

    def detach(self) -> None:
        """The handler goes on without the connection: another task is to `converse`."""
        self._handling = None
        self.server.left_behind()

    async def wait_answered(self) -> None:
        """Sleep until the response to the current request is out."""
        if self._answered is None:
            self._answered = trio.Event()
        await self._answered.wait()

    def response_complete(self, watched: bool) -> None:
        """The last byte of a response is out: whoever waits for the peer to leave need not wait any more."""
        if self._answered is not None:
            self._answered.set()
            self._answered = None
        if watched:
            self.conn.set_read_deadline(-INF)

    def info(self, now: float) -> ConnectionInfo:
        """How the connection stands at `now`."""
        left = self.deadline - now
        return ConnectionInfo(self._number, self.peer, self.phase, now - self.accepted, left, self.requests)

    def _leave(self, handling: Handling) -> None:
        if self._handling is handling:
            self._handling = None

    def _goes_on_in(self, handling: Handling) -> bool:
        return self.reason is None and self._handling is handling

    async def _next_exchange(self, handling: Handling) -> None:
        at_once = not self.requests and self.server.ssl_context is None
        start = self.accepted if at_once else self.clock.now()
        request = self.parser.next_request()
        now = start
        if request is None:
            request = await self._rest_of_head(start)
            now = self.clock.now()
        if request is not None:
            await self._serve(handling, Exchange(self, request, start, now, self._last(request, now)))

    def _rests(self, handling: Handling) -> bool:
        """Leave the task until the next request begins, if there is nothing to do until then."""
        if not self.transport.rests_alone or self.parser.buffered or not self.conn.drained or self.server.draining:
            return False
        self._become_idle(handling)
        self.conn.set_read_deadline(self.deadline)
        return self._let_go_of(handling)

    def _let_go_of(self, handling: Handling) -> bool:
        """Rest in no task, unless there is something to read already."""
        if not self.conn.call_when_readable(self):
            return False
        self._pool = handling.pool
        self._handling = handling.connection = None
        return True

    def _rise(self, handling: Handling) -> None:
        """Go on in this task, unless there is nothing to read after all."""
        self._pool = None
        try:
            data = self.transport.receive_now()
            while data is None and not self._let_go_of(handling):
                data = self.transport.receive_now()
        except DeadlineExceeded as late:
            self._silent(RULES["idle"], late)
            return
        if data is not None:
            self._take(data)

    async def _pause(self, handling: Handling) -> None:
        """Wait in the task until the next request begins, or the connection ends; others have a turn."""
        if self.parser.buffered or not self.conn.drained:
            await checkpoint()
        if self.parser.buffered or not self._goes_on_in(handling):
            return
        if self.server.draining:
            self.finish(Reason.DONE)
            return
        self._become_idle(handling)
        try:
            self._take(await self.transport.receive(self.deadline))
        except DeadlineExceeded as late:
            self._silent(RULES["idle"], late)

    def _become_idle(self, handling: Handling) -> None:
        self.enter(Phase.IDLE, idle_deadline(self.clock.now(), self.timeouts))
        handling.postpone(self.deadline)

    def _take(self, data: bytes) -> None:
        self.parser.feed(data)
        if not data:
            self.finish(Reason.CLIENT_CLOSED)

    async def _rest_of_head(self, start: float) -> Request | None:
        """Receive until there is a request; None if the connection ends instead."""
        deadline, rule = header_deadline(start, self.timeouts)
        self.enter(Phase.HEADER, deadline)
        request = None
        try:
            while request is None:
                data = await self.transport.receive(deadline)
                if not data:
                    self.finish(Reason.CLIENT_CLOSED)
                    return None
                self.parser.feed(data)
                request = self.parser.next_request()
        except DeadlineExceeded as late:
            self._silent(rule, late)
        return request

    def _silent(self, rule: Rule, late: DeadlineExceeded) -> None:
        """No request came in time, or the drain did not wait for it."""
        if self.server.draining and not self.parser.buffered:
            self.finish(Reason.DONE)
        else:
            self.cut(rule, self.clock.now() - late.deadline)

    async def _serve(self, handling: Handling, exchange: Exchange) -> None:
        """Let the handler answer, and see how the connection can go on, unless it has gone on meanwhile."""
        self.requests += 1
        self._exchange = exchange
        self.enter(Phase.HANDLER, exchange.deadline)
        handling.begin(exchange)
        try:
            try:
                await RunInContextCopy(handling.pool.context, self.server.handler, exchange)
                if not (exchange.writer.complete or exchange.over or self.reason):
                    raise ResponseError("the application returned before its response was complete")
            except Exception as error:
                if not is_disconnect(error):
                    self._handler_failed(exchange, error)
            finally:
                handling.end()
            if not exchange.past:
                await self._settle(exchange)
        finally:
            if exchange.past:
                self.server.caught_up()
            else:
                self._part_with(exchange)

    async def _go_on_from(self, exchange: Exchange) -> None:
        """What `_serve` does after the handler, while it is still running in another task."""
        try:
            # a handler that was cancelled may have to leave the socket first
            await checkpoint()
            await self._settle(exchange)
        finally:
            self._part_with(exchange)

    def _part_with(self, exchange: Exchange) -> None:
        exchange.end()
        self._exchange = None
        self.server.count_request()
        if self.server.observer is not None:
            self.server.observer.request(request_record(exchange, self._received, self._sent))
        self._received, self._sent = self.transport.received, self.transport.sent

    def _handler_failed(self, exchange: Exchange, error: Exception) -> None:
        # an application that stumbles over a peer that is gone has not failed
        _log.log(logging.DEBUG if exchange.over else logging.ERROR, "%s failed", exchange.request.line, exc_info=error)
        if exchange.past:
            return
        self.finish(Reason.SERVER_ERROR)
        if exchange.over:
            return
        if not exchange.answered:
            self._answer(500, "the application failed; its log says why")
        elif not exchange.out:
            # the peer must not take what it has for the whole
            self.conn.abort()

    async def _settle(self, exchange: Exchange) -> None:
        """After a response: go on, or say why not."""
        writer = exchange.writer
        if exchange.over:
            # the application gave up in the middle of a send
            self.finish(Reason.SERVER_ERROR)
        if self.reason is None and writer.must_close:
            self.finish(self._why_closed(exchange.request))
        if self.reason is None and not (exchange.settled or await exchange.settle()):
            self.finish(Reason.DONE)
        # unless the peer asked for the end, it may be sending already what we shall not read
        ends = self.reason is not None
        self._goodbye.unread = not exchange.body_done or (
            ends and (exchange.request.keep_alive or self.parser.buffered > 0)
        )

    def _last(self, request: Request, now: float) -> bool:
        """Must the response to the next `request` be this connection's last, as far as one knows at its head?"""
        return (
            not request.keep_alive
            or self.server.draining
            or self.requests + 1 >= self.limits.max_requests
            or now >= self._close_after
        )

    def _why_closed(self, request: Request) -> Reason:
        if not request.keep_alive or self.server.draining:
            return Reason.DONE
        if self.requests >= self.limits.max_requests:
            return Reason.KEEPALIVE_LIMIT
        return Reason.CONNECTION_AGE if self.clock.now() >= self._close_after else Reason.DONE

    def _answer(self, status: int, detail: str) -> None:
        """Say our last words now if that can be done at once, else when the task says goodbye."""
        exchange = self._exchange
        if exchange is not None:
            exchange.give_up(status)
        head_only = self.parser.asks_for_head if exchange is None else exchange.request.method == "HEAD"
        words = canned(status, detail, head_only)
        self._goodbye.tell(words, self.transport)
