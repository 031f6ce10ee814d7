"""How a connection sends its output, and notices that its peer has left, without a task.

Facts      While a handler runs, no task of the connection reads or writes. The peer may stop reading, or leave.
Hazard     A handler that sleeps for a client that has left keeps its resources, a database's connection for example. A
           response that waits for its peer must end by its deadline, even if its handler sleeps.
Answer     The poller calls the connection when the peer sends or leaves, and its output when there is room.
Cost       A callback is parked when a handler begins, and forgotten when its response is sent.
"""

from __future__ import annotations

from ..net import Conn
from . import policy
from .base import ConnectionBase
from .dates import DateLine
from .exchange import Exchange
from .output import FEW_PARTS, LIMIT
from .policy import Action, Rule
from .settings import Settings
from .state import CLOSING, EXCHANGE, IDLE, NO_CALL, UPGRADED, WATCH, Phase, Reason
from .timeouts import INF


class PeerConnection(ConnectionBase):
    """A connection that notices what its peer does while a handler runs. An abstract base class; `waiting.py` derives
    from it."""

    def __init__(self, settings: Settings, conn: Conn, number: int, dates: DateLine) -> None:
        super().__init__(settings, conn, number, dates)
        # the pool will call `flush` at the end of the turn
        self._flush_is_due = False
        # what the poller will call `on_ready` for: NO_CALL, WATCH or READ
        self._call: int = NO_CALL
        # the peer has ended its side while the current handler ran
        self._leaving = False
        # the timeouts under which the first piece of the output began to wait
        self.send_timeouts = self.timeouts

    # implements ExchangeHost

    def watch_peer(self) -> None:
        if self.cancel_on_disconnect and self.state == EXCHANGE and self._call == NO_CALL:
            self._check_peer()

    def unwatch_peer(self) -> None:
        if self._call != NO_CALL:
            self._call = NO_CALL
            self.conn.cancel_call()

    def lost(self, reason: Reason) -> None:
        self._end(reason)
        if self._exchange is not None:
            self._reset_part(self._exchange)

    def _reset_part(self, exchange: Exchange) -> None:
        """Reset the connection if it would end a response in the middle of a body that nothing else ends: its peer,
        which may still read, would take the part for the whole."""
        if exchange.writer.ends_by_close and not exchange.writer.complete:
            self.output.discard()
            self.conn.abort()

    def _check_peer(self) -> None:
        """Watch the peer. If it has reset the connection, cut the handler at once. If it has ended its side, which may
        be a half-close, give the handler DISCONNECT_GRACE to answer. Do nothing for a handler that waits in a receive
        or a send: that will raise Disconnected."""
        self._call = NO_CALL
        exchange = self._exchange
        if self.state != EXCHANGE or self.phase is Phase.WRITE or exchange is None or exchange.will_notice:
            return
        if exchange.answered:
            # what the handler still does is not for this peer
            return
        if self.conn.peer_has_left:
            if self.conn.was_reset:
                self._peer_left(Reason.CLIENT_RESET)
                return
            self._peer_ended_side(exchange)
        self._watch()

    def _peer_ended_side(self, exchange: Exchange) -> None:
        """Give the handler DISCONNECT_GRACE to answer."""
        self._leaving = True
        exchange.end_soon()

    def _watch(self) -> None:
        if self.conn.call_when_readable(self) or self._watch_again():
            self._call = WATCH

    def _watch_again(self) -> bool:
        """Watch although bytes have come that are not read now, or the deadline of an earlier read has passed."""
        if self.conn.read_deadline <= self.clock.now():
            self.conn.set_read_deadline(INF)
            # a half whose deadline has passed does not consume its readiness
            if self.conn.call_when_readable(self):
                return True
        # the call before this one has consumed the readiness
        return self.conn.call_when_readable(self)

    def tell_others(self) -> None:
        """End the connection, because the server's tasks are about to be cancelled, if the handler must be told of that
        by what another task of it receives."""
        exchange = self._exchange
        if self.reason is None and exchange is not None and exchange.others_wait:
            self._perform(Action(Reason.DRAIN_TIMEOUT, reset=True, cancels=True), "")

    # implements OutputOwner

    def output_waits(self) -> None:
        self.send_timeouts = self.timeouts

    def output_deadline(self, length: int, since: float, progress: float) -> tuple[float, Rule]:
        exchange = self._exchange
        if exchange is not None:
            return exchange.output_deadline(length, since, progress)
        if self.state == IDLE:
            # the last response, whose exchange is over
            return policy.output_deadline(self._sent_by, self._write_by, length, since, progress, self.send_timeouts)
        whole = since + self.send_timeouts.write
        return policy.output_deadline(whole, None, length, since, progress, self.send_timeouts)

    def output_blocked(self, deadline: float) -> None:
        # the phase in which a connection has ended is recorded
        if self.state < CLOSING:
            self.enter(Phase.WRITE, deadline)

    def output_moved(self, deadline: float) -> None:
        # a task that receives meanwhile has entered another phase
        if self.phase is Phase.WRITE:
            self.deadline = deadline

    def output_sent(self) -> None:
        if self.state == UPGRADED and self._upgraded is not None:
            self.enter(self._upgraded.phase, self._upgraded.deadline)
            self._upgraded.output_sent()
        elif self._exchange is not None:
            if self._exchange.receives:
                self.enter(Phase.BODY, self.conn.read_deadline)
            else:
                self.enter(Phase.HANDLER, self._exchange.deadline)
            self.watch_peer()
            self._exchange.output_sent()
        self._go_on()

    def output_expired(self, rule: Rule, lateness: float) -> None:
        if self.state == UPGRADED:
            self.count_expiry(lateness)
            self.reset_upgraded(rule.reason, lateness)
            return
        exchange = self._exchange
        self.expired(rule, lateness)
        if exchange is not None:
            exchange.tell()
        self._go_on()

    def output_lost(self, reason: Reason) -> None:
        if self.state == UPGRADED:
            self._lose_upgraded(reason)
            return
        if self._upgraded is not None:
            # the connection ends already, and the protocol has told the handler
            return
        exchange = self._exchange
        runs = exchange is not None and self.state == EXCHANGE and not exchange.will_notice
        if exchange is not None and runs and (self.cancel_on_disconnect or exchange.answered):
            self._peer_left(reason)
            return
        self._end(reason)
        if exchange is not None:
            exchange.kill()
            exchange.tell()
        self._go_on()

    def flush(self) -> None:
        self._flush_is_due = False
        self.output.flush()
        if not self.output.size:
            self._go_on()

    def flush_soon(self, more: bool) -> bool:
        output = self.output
        if output.size > LIMIT and (more or output.blocked or output.size > self.transport.most_last):
            output.flush()
            return not more and not output.size
        asks = not self._flush_is_due and not output.blocked
        if asks:
            self._flush_is_due = self._ask_for_flush()
            if not self._flush_is_due:
                output.flush()
                if output.size > LIMIT:
                    return False
        checks_turn = more and (asks or output.parts % FEW_PARTS == 0)
        return not (checks_turn and self.turn_is_long())

    # implemented by subclasses

    def _peer_left(self, reason: Reason) -> None:
        """End the connection for `reason`, because the peer has left, and cancel the handler unless it has given the
        whole response."""
        raise NotImplementedError

    def _lose_upgraded(self, reason: Reason) -> None:
        """End the connection, which was upgraded, because its peer is gone or the server has failed."""
        raise NotImplementedError

    def _ask_for_flush(self) -> bool:
        """Have `flush` called at the end of this turn of the event loop. Return False if that cannot be promised."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """Continue a connection that waits for its output without a task, after the output was sent or lost. Do nothing
        for others."""
        raise NotImplementedError
