"""The part of a connection that any task or callback may use: its facts, its state, and its end.

Nothing here waits. A deadline that passes ends a connection at once, whatever its handler is doing: `policy` decides
what to do, and this module does it. `connection.py` derives from it and adds the work of the connection's own task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..net import Conn
from ..poll.desc import MYPY
from . import policy
from .closing import GracefulClose
from .configured import ConfiguredConnection
from .dates import DateLine
from .errors import BadRequest
from .exchange import Exchange
from .output import Output
from .policy import Action, Rule
from .records import ConnectionRecord, RequestRecord, recorded
from .reporting import notify
from .seams import Responder, Upgraded
from .settings import Settings
from .state import (
    CLOSED,
    DEAD,
    ENDED,
    FINISHING,
    HANDSHAKE,
    HEAD,
    IDLE,
    NONE,
    QUEUED,
    SENT,
    TRANSPORT_CLOSED,
    Phase,
    Reason,
    Refusal,
    next_state,
)
from .timeouts import INF
from .transport import Plain, Transport, address_of, peer_name, server_address_of
from .wire import RequestParser, canned

# reasons for which nobody has cut or refused what was received
_LEFT: Final = (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)


class ConnectionBase(ConfiguredConnection):
    """Facts, state and end of one connection. An abstract base class; `peer.py` derives from it."""

    def __init__(self, settings: Settings, conn: Conn, number: int, dates: DateLine) -> None:
        super().__init__(settings)
        # for all of its life
        self.conn: Final = conn
        self.dates = dates
        self.number = number
        self.accepted: float = self.clock.now()
        self.client = address_of(conn.socket.getpeername)
        self.server_address = server_address_of(conn.socket.getsockname)
        self.scheme = "http" if settings.ssl_context is None else "https"
        self._peer = ""
        # its bytes, and what has them after an upgrade
        self.reader = RequestParser(settings.limits, settings.parse_head, settings.routes)
        self.transport = Plain(conn)
        self.output = Output(self)
        self._upgraded: Upgraded | None = None
        # its state; what it waits for, and until when: setting them arms nothing
        self.state = HEAD if settings.ssl_context is None else HANDSHAKE
        self.attendance: int = QUEUED
        self.phase = Phase.HEADER
        self.deadline: float = INF
        self.close_after = INF
        self.draining = False
        # the current request; what answers it without a task, None once it is answered or a task goes on
        self._exchange: Exchange | None = None
        self._responder: Responder | None = None
        self.refusal = None
        # all requests so far, those of routes that are not observed, and the bytes before the current one began
        self.requests = 0
        self._unobserved = 0
        self._received_before = self._sent_before = 0
        # for what is left of a response when its exchange is over: when all of it must have left, by `write`, and the
        # deadline that the application has set for it
        self._sent_by: float = INF
        self._write_by: float | None = None
        # its end; whether the peer may be sending bytes that the server will not read; the close that is under way
        self.reason: Reason | None = None
        self._lateness = 0.0
        self._ended_at = INF
        self._unread = False
        self._closing: GracefulClose | None = None
        if TYPE_CHECKING and not MYPY:
            self.reader: RequestParser
            self.output: Output
            self.transport: Transport
            self.phase: Phase
            self.draining: bool
            self.refusal: Refusal | None
            self.client: tuple[str, int] | None
            self.server_address: tuple[str, int | None] | None

    @property
    def peer(self) -> str:
        """The client's address, for the log."""
        if not self._peer:
            self._peer = peer_name(self.client)
        return self._peer

    @property
    def exchange(self) -> Exchange | None:
        """The current request."""
        return self._exchange

    def configure(self, settings: Settings) -> None:
        """Use `settings` from now on. Their timeouts apply to heads, requests and sends that begin later, the idle
        timeout and those of a websocket also to a current wait, which may be without a limit."""
        idle = self.timeouts.idle
        self._use(settings)
        self.reader.configure(settings.limits, settings.routes)
        self._choose_again(self._exchange)
        if self._is_idle and not self.draining and self.timeouts.idle != idle:
            self.enter(Phase.IDLE, policy.idle_deadline(self.clock.now(), self.timeouts))
            self.conn.set_read_deadline(self.deadline)

    def close(self) -> None:
        """Close the socket and report why the connection ended. Idempotent. Without a reason yet, or if not all was
        sent, the server was cancelled: reset the connection, for DRAIN_TIMEOUT unless it has a reason."""
        if self.state == CLOSED:
            return
        if self.reason is None or self.output.size:
            self._end(Reason.DRAIN_TIMEOUT)
            self.output.discard()
            self.conn.abort()
        if self._exchange is not None:
            self._release_exchange(self._exchange)
        self.output.close()
        self._advance(TRANSPORT_CLOSED)
        counts = self.settings.counts
        counts.received += self.transport.received
        counts.sent += self.transport.sent
        self.conn.close()
        # it refers to this object
        self._upgraded = None
        self._tell_closed(self.reason or Reason.SERVER_ERROR, self._lateness)
        only_unobserved = 0 < self._unobserved == self.requests
        if self.settings.observer is not None and not only_unobserved:
            notify(self.settings.observer.connection, self._record())

    @property
    def current_phase(self) -> Phase:
        """What the connection waits for. In a graceful close, `phase` is the one in which it has ended."""
        return self.phase if self._closing is None else Phase.CLOSING

    @property
    def next_deadline(self) -> float:
        """When the current wait ends, absolute: the deadline of the connection, of its close, or of an upgrade."""
        if self._closing is not None:
            return self._closing.deadline
        upgraded = self._upgraded
        return self.deadline if upgraded is None or self.phase is not upgraded.phase else upgraded.deadline

    @property
    def loses_nothing(self) -> bool:
        """True before the first byte of a request, and once all of a response was sent whose handler has left: the rest
        of its body may still come, or the close be under way."""
        if self._exchange is not None and self._closing is None:
            return self.state == FINISHING and self._exchange.response == SENT
        if self.reason is not None:
            return not self.output.size
        return self._is_idle or (self.state in (HANDSHAKE, HEAD) and not self.reader.buffered)

    # implements ExchangeHost

    def enter(self, phase: Phase, deadline: float) -> None:
        self.phase = phase
        self.deadline = deadline

    def move(self, phase: Phase, when: float) -> None:
        if self._upgraded is not None and phase is Phase.BODY:
            self._upgraded.read_deadline_moved(when)
            return
        if phase is Phase.BODY:
            self.conn.set_read_deadline(when)
        elif phase is Phase.WRITE and self.output.blocked:
            self.conn.set_write_deadline(when)
        # of two waits at once, the phase is that of the one which began later
        if self.phase is phase:
            self.deadline = when

    def expired(self, rule: Rule, lateness: float) -> None:
        action = self._action_on_expiry(rule)
        # in a drain it may be DONE instead
        cut = action.reason is rule.reason
        if cut and self.reason is None:
            self.settings.counts.expiry(rule.phase, max(lateness, 0.0))
        self._perform(action, rule.detail, lateness if cut else 0.0)

    def count_expiry(self, lateness: float) -> float:
        late = max(lateness, 0.0)
        self.settings.counts.expiry(self.phase, late)
        return late

    def refused(self, bad: BadRequest) -> None:
        response = NONE if self._exchange is None else self._exchange.response
        self._perform(policy.on_refusal(bad, response), bad.detail)

    # its state and its end

    @property
    def _is_idle(self) -> bool:
        """True while the connection waits for the next request. While the last response is still being sent, the phase
        is another one: the idle time has not begun."""
        return self.state == IDLE and self.phase is Phase.IDLE

    @property
    def _must_linger(self) -> bool:
        """True if the end takes more than closing the socket: bytes to send or to discard, or TLS to end."""
        return self._unread or self.output.size > 0 or not self.transport.closes_at_once

    @property
    def _sent(self) -> int:
        """Bytes that were sent or are pending."""
        return self.transport.sent + self.output.size

    def _advance(self, event: int) -> None:
        """Change the state as the table says for `event`."""
        self.state = next_state(self.state, event)

    def _end(self, reason: Reason, lateness: float = 0.0) -> None:
        """Record why the connection ends, and move to CLOSING. The first reason stays. The socket stays open."""
        if self.reason is None:
            self.unwatch_peer()
            self.reason = reason
            self._ended_at = self.clock.now()
            self._lateness = max(lateness, 0.0)
            if self.state == HEAD and reason not in _LEFT:
                # cut or refused in a head, whose route is not known: that is recorded
                self._unobserved = 0
            self._advance(ENDED)
            if self._upgraded is not None:
                self._upgraded.ended(reason)
            responder, self._responder = self._responder, None
            if responder is not None:
                responder.abandon()

    def _action_on_expiry(self, rule: Rule) -> Action:
        """Ask the policy what to do when the deadline of `rule` has passed, as things stand now."""
        exchange = self._exchange
        if exchange is None:
            response = SENT if self.loses_nothing else NONE
            byte_came = self.reader.buffered > 0
            return policy.on_expiry(rule, byte_came=byte_came, response=response, draining=self.draining)
        return policy.on_expiry(
            rule,
            byte_came=True,
            response=SENT if self.loses_nothing else exchange.response,
            dead=exchange.link == DEAD,
            draining=self.draining,
            spares=exchange.answered or not self.cancel_on_disconnect,
        )

    def _perform(self, action: Action, detail: str, lateness: float = 0.0) -> None:
        """Do what the policy has decided, without waiting. A connection that ends already has nothing to answer."""
        ended = self.reason is not None
        self._end(action.reason, lateness)
        exchange = self._exchange
        if action.status is not None and not ended:
            self._answer(action.status, detail)
        elif action.reset:
            self.output.discard()
            self.conn.abort()
            if exchange is not None:
                exchange.kill()
        if action.cancels:
            self._cancel_handler()

    def _answer(self, status: int, detail: str) -> None:
        """Let the graceful close send a last response in the server's own name. Cut off the handler's exchange."""
        exchange = self._exchange
        if exchange is None:
            self.settings.counts.refused(status)
        else:
            exchange.kill(status)
        self._unread = True
        head_only = self.reader.asks_for_head if exchange is None else exchange.request.method == "HEAD"
        self.output.append(canned(status, self.reason or Reason.SERVER_ERROR, detail, head_only))

    def _release_exchange(self, exchange: Exchange) -> None:
        """Record that the exchange is over, and cut it off: what still refers to it cannot reach this connection."""
        exchange.kill()
        self._exchange = None
        self._keep_choice(exchange)
        self._sent_by, self._write_by = exchange.sent_by, exchange.write_by
        self._tell_request_done()
        self.settings.counts.request(exchange.request.method, exchange.status, self.clock.now() - exchange.head_done)
        if not self._observed:
            self._unobserved += 1
        elif self.settings.observer is not None:
            notify(self.settings.observer.request, self._request_record(exchange))
        self.refusal = None
        self._received_before, self._sent_before = self.transport.received, self._sent

    # implemented by Connection

    def drain(self, now: float) -> None:
        """Begin the drain at `now`; called again when `reuse_grace` is shorter. What has begun is served."""
        raise NotImplementedError

    @property
    def idle_since(self) -> float:
        """When the connection has begun to wait for its next request; `inf` if it does not."""
        raise NotImplementedError

    def end_idle(self, since: float, now: float) -> bool:
        """End the connection as at its idle deadline if it is idle since `since`. Return False if it is not."""
        raise NotImplementedError

    def handler_failed(self, exchange: Exchange, error: BaseException) -> None:
        """Log how the handler has failed, and end the connection unless the response is complete."""
        raise NotImplementedError

    def _cancel_handler(self) -> None:
        """Cancel the handler, if one runs."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what is pending. Called at the end of a turn of the event loop, after `flush_soon`."""
        raise NotImplementedError

    def _tell_request_done(self) -> None:
        """Tell the server that an exchange is over."""
        raise NotImplementedError

    def _tell_closed(self, reason: Reason, lateness: float) -> None:
        """Tell the server that the connection is over. `lateness` is that of `ConnectionOwner.closed`."""
        raise NotImplementedError

    def _request_record(self, exchange: Exchange) -> RequestRecord:
        request = exchange.request
        forwarded = exchange.forwarded_client
        names = self.settings.recorded_fields
        return RequestRecord(
            peer=self.peer if forwarded is None else peer_name(forwarded),
            method=request.method,
            target=request.target.decode("ascii"),
            version=request.version,
            status=exchange.status,
            received=self.transport.received - self._received_before,
            sent=self._sent - self._sent_before,
            head=exchange.head_done - exchange.start_time,
            handled=self.clock.now() - exchange.head_done,
            reason=self.reason,
            fields=recorded(request.headers, names) if names else (),
            refused=self.refusal,
        )

    def _record(self) -> ConnectionRecord:
        return ConnectionRecord(
            peer=self.peer,
            reason=self.reason or Reason.SERVER_ERROR,
            phase=self.phase,
            elapsed=self._ended_at - self.accepted,
            lateness=self._lateness,
            requests=self.requests,
            received=self.transport.received,
            sent=self.transport.sent,
        )
