"""A connection after an upgrade: another protocol has its bytes, and the poller calls the connection.

Facts      After a 101 the connection is no longer HTTP's (RFC 9110, 7.8). Most upgraded connections are silent most of
           the time, and one handler may write to thousands of them.
Hazard     A task per connection that waits for bytes would cost more than the connection. A peer that sends without end
           must not keep the others waiting, nor fill the memory.
Answer     The connection takes the place of a waiter in its half: what comes is read and given to the protocol in the
           poller's call, until the protocol is full. What more there may be is read in the next step of the event loop.
           While the protocol is full, the connection waits in its half all the same, and only notices a reset.
           The handler that has asked for the upgrade keeps its task; the connection does not need one.
Cost       Nothing while nothing comes.
"""

from __future__ import annotations

import logging
from typing import Final

from ..net import BrokenResourceError, ClosedResourceError, Conn
from . import policy
from .dates import DateLine
from .exchange import Exchange
from .owner import ConnectionOwner
from .reporting import report
from .seams import Upgraded
from .settings import Settings
from .state import NO_CALL, PROTOCOL_SWITCHED, READ, UPGRADED, Reason
from .timeouts import INF
from .waiting import WaitingConnection

# reads in a row for a protocol that wants more of the same message
_READS: Final = 8

# bytes of a read: a message of 64 KiB, which is a common size, comes with its head by one call
_READ_SIZE: Final = 64 * 1024 + 1024


class UpgradedConnection(WaitingConnection):
    """A connection that can be upgraded. An abstract base class; `Connection` derives from it."""

    def __init__(self, settings: Settings, conn: Conn, number: int, owner: ConnectionOwner, dates: DateLine) -> None:
        super().__init__(settings, conn, number, owner, dates)
        # `_read` runs, or will run in the next step of the event loop
        self._reading = False

    def on_ready(self) -> None:
        if self.state == UPGRADED:
            self._call = NO_CALL
            self.read_on()
        else:
            super().on_ready()

    def drain(self, now: float) -> None:
        begins = not self.draining
        super().drain(now)
        if begins and self.state == UPGRADED and self._upgraded is not None:
            self._upgraded.drain()

    def configure(self, settings: Settings) -> None:
        before = self.timeouts
        super().configure(settings)
        if self.state == UPGRADED and self._upgraded is not None and self.timeouts != before:
            self._upgraded.timeouts_changed(before)

    # implements ExchangeHost

    def upgrade(self, protocol: Upgraded, head: bytes) -> None:
        self.unwatch_peer()
        self._advance(PROTOCOL_SWITCHED)
        self._upgraded = protocol
        if self._exchange is not None:
            # what follows is a session, which the limit of requests would let nobody else have
            self.settings.admission.leave(self._exchange)
        self.conn.set_read_deadline(INF)
        if head:
            self.output.append(head)
        # before the flush, which may find that the peer is gone
        protocol.began(self)
        self.enter(protocol.phase, protocol.deadline)
        self.flush_soon(False)
        early = self.reader.take_rest()
        if early and self.state == UPGRADED:
            protocol.received(early)
        if self.draining and self.state == UPGRADED:
            protocol.drain()
        if self.state == UPGRADED:
            self.read_on()

    def read_on(self) -> None:
        if self._call == READ or self._reading:
            return
        self.unwatch_peer()
        self._reading = True
        try:
            more = self._read()
        except (BrokenResourceError, ClosedResourceError):
            more = False
            self._lose_upgraded(Reason.CLIENT_RESET)
        except Exception as error:
            more = False
            report(logging.ERROR, "the connection with %s failed inside the server", self.peer, error=error)
            self._lose_upgraded(Reason.SERVER_ERROR)
        self._reading = more
        if more:
            self._owner.call_soon(self._read_more)

    def end_upgraded(self, reason: Reason, lateness: float, unread: bool) -> None:
        self._leave_handler(reason, lateness)
        self._unread = unread
        self.output.flush()
        if self._must_linger:
            if self._exchange is not None:
                # its record does not count the time that the peer takes to leave
                self._release_exchange(self._exchange)
            self._ask_for_task()
        else:
            self.close()

    def reset_upgraded(self, reason: Reason, lateness: float) -> None:
        self._leave_handler(reason, lateness)
        self.output.discard()
        self.conn.abort()
        self.close()

    @property
    def was_left(self) -> bool:
        return self.conn.peer_has_left or self.conn.was_reset

    def _lose_upgraded(self, reason: Reason) -> None:
        if self.state == UPGRADED:
            self.end_upgraded(reason, 0.0, False)

    def _leave_handler(self, reason: Reason, lateness: float) -> None:
        """End for `reason`, and leave the handler behind in its task if it still runs. The socket stays open."""
        upgraded, exchange = self._upgraded, self._exchange
        assert upgraded is not None and exchange is not None
        if self._task is not None:
            # None if the handler has just failed: it has ended this task, which `task_lost` would tell next
            if exchange.task is not None:
                exchange.detach()
                if not upgraded.closed_by_handler:
                    exchange.end_soon(policy.UPGRADE_GRACE)
                self._owner.handler_detached(exchange)
            self._leave_task()
        self._end(reason, lateness)

    # a handler that leaves

    def _leave_upgraded(self) -> None:
        """Go on without a task, because the handler has left."""
        upgraded = self._upgraded
        assert upgraded is not None
        self._leave_task()
        upgraded.handler_left(False)

    def _detach_ending(self, exchange: Exchange) -> bool:
        """Go on without a task if the protocol is ending. Return True if so."""
        if self.state != UPGRADED or self._upgraded is None or not self._upgraded.ending:
            return False
        self._detach_upgraded(exchange)
        return True

    def _cut_upgraded(self, lateness: float) -> None:
        """Cancel the handler and go on without it, because its deadline has passed `lateness` seconds ago."""
        upgraded, exchange = self._upgraded, self._exchange
        assert upgraded is not None and exchange is not None
        self._cancel_handler()
        self._detach_upgraded(exchange)
        upgraded.handler_expired(lateness)

    def _detach_upgraded(self, exchange: Exchange) -> None:
        """Go on without a task, and leave the handler behind in this one."""
        exchange.detach()
        self._owner.handler_detached(exchange)
        self._leave_task()

    # reading

    def _read_more(self) -> None:
        self._reading = False
        if self.state == UPGRADED:
            self.read_on()

    def _read(self) -> bool:
        """Give what has come to the protocol. Return True if there may be more, to be read after other connections."""
        upgraded = self._upgraded
        assert upgraded is not None
        budget = _READS
        while self.state == UPGRADED and not upgraded.full:
            data = None if self.transport.drained else self.transport.receive_ready(_READ_SIZE)
            if data is not None:
                wants_more = upgraded.received(data)
                budget -= 1
                if data and not self.transport.drained and not (wants_more and budget):
                    return True
            elif not self.conn.resume_readable(self):
                self._call = READ
                return False
        if self.state == UPGRADED:
            self._watch_for_reset()
        return False

    def _watch_for_reset(self) -> None:
        """End if the peer has reset the connection, else look again when something comes: nothing is read now."""
        if self.conn.peer_has_left and self.conn.was_reset:
            self._lose_upgraded(Reason.CLIENT_RESET)
        else:
            self._watch()
