"""A connection after a 101: bytes of another protocol, both ways, between a client and an upstream. `raw_tunnel.py`
derives from it what raw TCP needs.

Facts      After a 101 nobody but the two ends knows what the bytes mean, or when one of them is at fault. A reset says
           that what came before may not be all.
Hazard     A peer that does not read must not fill the memory. A tunnel whose ends are gone, or have forgotten it, holds
           two connections. An end that is sent in place of a reset makes an incomplete stream look complete.
Answer     While more than LIMIT bytes wait for one end, the other is not read. An upstream must take what it is sent,
           except while it is not read: it may read only as fast as it can write. A tunnel ends if nothing is read from
           either end for the `idle` time of the server, and neither takes what waits for it, or if the connection of
           the client is too old. If the client ends its side, the upstream is told once it has taken what came before,
           and the tunnel ends at the latest GRACE seconds after the client's end. If the upstream ends its side, what
           it has not taken is lost, and the tunnel ends once the client has taken what waits for it, under the
           deadlines of a response. A failure of the upstream resets the client.
Cost       The task of the handler that has asked for the upgrade reads from the upstream. What the client sends is
           passed on in the poller's call, as far as the upstream takes it at once. What the client takes after the
           upstream's end needs no task.
"""

from __future__ import annotations

from typing import Final

from ..http import ExchangeHost, Phase, Reason, Timeouts, Upgraded
from ..http.output import LIMIT, Output, OutputOwner
from ..http.policy import RULES, Rule
from ..http.transport import Plain
from ..net import BrokenResourceError
from ..poll import Clock
from ..runtime import checkpoint
from ..timers import Timer
from .connection import UpstreamConnection
from .errors import Failure, UpstreamError
from .options import INF
from .progress import take_deadline

# seconds, at most, from the client's end until the tunnel ends
GRACE: Final = 5.0


class Tunnel(Upgraded):
    """The protocol of an exchange whose upstream has answered 101 on `connection`. `stall`: seconds within which the
    upstream must take more of what it is sent, not counting those in which what it sends waits for the client.
    `grace`: seconds, at most, from the client's end to the upstream's."""

    def __init__(self, connection: UpstreamConnection, clock: Clock, stall: float, grace: float = GRACE) -> None:
        self._connection: Final = connection
        self._clock: Final = clock
        self._stall: Final = stall
        self._grace: Final = grace
        # refers to this object, and so does the timer from the beginning to the end: the client may leave before
        self._maybe_upward: _Upward | None = None
        self._maybe_host: ExchangeHost | None = None
        self._closed = False
        # how the upstream has failed, None if it has not
        self.failure: Failure | None = None
        # when bytes came last, from either end
        self._heard = clock.now()
        # until when what the upstream sends has waited for the client: inf while it does, -inf if it never has
        self.waited_for_client_until: float = -INF
        # nothing is passed on to the upstream any more: it has ended its side
        self._upstream_ended = False
        # the client has ended its side, and when the upstream must have ended its own
        self._client_ended = False
        self._end_by = INF
        # when the age of the client's connection ends the tunnel
        self._too_old_at = INF
        # what both ends had taken when the tunnel was about to end as idle
        self._taken = -1
        self._timer = Timer(_expire)

    @property
    def _host(self) -> ExchangeHost:
        host = self._maybe_host
        assert host is not None, "the tunnel has not begun"
        return host

    @property
    def _upward(self) -> _Upward:
        upward = self._maybe_upward
        assert upward is not None, "the tunnel has not begun"
        return upward

    async def run(self) -> None:
        """Send what the upstream sends to the client, until the upstream has ended its side or the tunnel has ended.
        Call it after the exchange was upgraded; when the handler returns then, `handler_left` ends the tunnel."""
        try:
            await self._run()
            if not self._closed:
                await self._finish()
        except UpstreamError as error:
            # it is also raised if the end of the tunnel has aborted the connection: then `fail` does nothing
            self.fail(error.failure)

    async def _run(self) -> None:
        output = self._host.output
        while not self._closed:
            data = await self._connection.receive_raw()
            if not data or self._closed:
                return
            self._pass_down(data)
            if not self._host.flush_soon(True):
                # the sender must wait: too much is pending, or others must run
                if output.size > LIMIT:
                    self.waited_for_client_until = INF
                    await output.wait(LIMIT)
                    self.waited_for_client_until = self._clock.now()
                else:
                    await checkpoint()

    def _pass_down(self, data: bytes) -> None:
        self._heard = self._clock.now()
        self._upstream_spoke()
        self._host.output.append(data)

    def _upstream_spoke(self) -> None:
        """Note that bytes of the upstream have come. Do nothing unless overridden."""

    async def _finish(self) -> None:
        """Do what is left to do after the upstream has ended its side. Nobody takes what the client still sends."""
        self._upstream_ended = True
        self._end_by = INF
        self._upward.output.close()

    def fail(self, failure: Failure) -> None:
        """Reset the client because the upstream has failed, after offering it what came before. Idempotent. If the
        client has reset its connection, that is why the tunnel ends."""
        if self._closed:
            return
        if self._host.transport.conn.was_reset:
            self.end(Reason.CLIENT_RESET)
            return
        rest = self._connection.receive_rest()
        if rest:
            self._pass_down(rest)
        self._host.output.flush()
        # the flush may have found that the client is gone
        if not self._closed:
            self.failure = failure
            self._host.reset_upgraded(Reason.UPSTREAM_FAILED, 0.0)

    def end(self, reason: Reason, lateness: float = 0.0) -> None:
        """End the tunnel for `reason`. Idempotent."""
        if not self._closed:
            self._host.end_upgraded(reason, lateness, False)

    # for what the client has sent

    def upstream_took_all(self) -> None:
        """Note that nothing waits for the upstream any more: read on from the client."""
        self._end_upward()
        if not self._client_ended:
            self._host.read_on()

    def _end_upward(self) -> None:
        """End the side towards the upstream, once the client has ended its own and all was sent."""
        if self._client_ended and not self._upward.output.size:
            try:
                self._connection.conn.shutdown_write()
            except BrokenResourceError:
                self.fail(Failure.RESET)

    # implements Upgraded

    @property
    def phase(self) -> Phase:
        return Phase.TUNNEL

    def timeouts_changed(self, before: Timeouts) -> None:
        if self._host.timeouts.idle != before.idle:
            self._heard = self._clock.now()
            self._arm()

    def began(self, host: ExchangeHost) -> None:
        self._maybe_host = host
        self._maybe_upward = _Upward(self, self._connection, self._clock, self._stall)
        self._timer.arg = self
        self._heard = self._clock.now()
        # one that is too old before ends at once, and is not late
        self._too_old_at = max(host.close_after, self._heard)
        self._arm()

    @property
    def full(self) -> bool:
        return self._client_ended or self._upward.output.size > LIMIT

    @property
    def deadline(self) -> float:
        return min(self._heard + self._host.timeouts.idle, self._end_by, self._too_old_at)

    def received(self, data: bytes) -> bool:
        self._heard = self._clock.now()
        if data:
            self._upward.output.append(data)
            self._upward.output.flush()
        elif self._host.transport.was_cut:
            # neither stream is complete: the end of the tunnel resets the upstream
            self._host.reset_upgraded(Reason.CLIENT_RESET, 0.0)
        else:
            self._client_ended = True
            if not self._upstream_ended:
                self._end_by = self._heard + self._grace
                self._arm()
                self._end_upward()
        return False

    def read_deadline_moved(self, when: float) -> None:
        """Do nothing: no application sets it."""

    def handler_left(self, failed: bool) -> None:
        if self._closed:
            return
        if failed:
            self._host.reset_upgraded(Reason.SERVER_ERROR, 0.0)
        else:
            self._host.output.flush()
            if not self._host.output.size:
                self.output_sent()

    def handler_expired(self, lateness: float) -> None:
        self.end(Reason.HANDLER_TIMEOUT, lateness)

    def output_sent(self) -> None:
        """End the tunnel if all of the upstream was sent. Before its end `run` waits while too much is pending."""
        if self._upstream_ended and not self._closed:
            # the client may still be sending, and must be able to read what has been sent to it
            self._host.end_upgraded(Reason.DONE, 0.0, True)

    def drain(self) -> None:
        """Do nothing: only the two ends can end their protocol. At the drain's deadline the server cuts the tunnel."""

    @property
    def ending(self) -> bool:
        return False

    @property
    def closed_by_handler(self) -> bool:
        return False

    def ended(self, reason: Reason) -> None:
        self._closed = True
        self._disarm()
        self._upward.close()
        self._connection.abort()

    # the deadline

    def expire(self, lateness: float) -> None:
        """End if nothing has come for too long, or the connection is too old. Called by the timer, which may be early:
        the deadline moves without it."""
        if self._closed:
            return
        now = self._clock.now()
        late = max(now - self.deadline, lateness)
        if self.deadline > now:
            self._arm()
        elif self._too_old_at <= now:
            self.end(Reason.CONNECTION_AGE, self._host.count_expiry(late))
        elif self._end_by <= now:
            self.end(Reason.CLIENT_CLOSED)
        elif self._is_moving():
            self._heard = now
            self._arm()
        else:
            self.end(Reason.IDLE_TIMEOUT, self._host.count_expiry(late))

    def _is_moving(self) -> bool:
        """Return True if an end takes slowly what waits for it: it has taken some since this was last asked."""
        before, self._taken = self._taken, self._host.transport.taken + self._upward.transport.taken
        return self._taken != before and self._host.output.size + self._upward.output.size > 0

    def _arm(self) -> None:
        self._host.loop.set_timer(self._timer, self.deadline)

    def _disarm(self) -> None:
        self._host.loop.set_timer(self._timer, INF)
        self._timer.arg = None


class _Upward(OutputOwner):
    """What the client has sent and the upstream has not taken yet."""

    def __init__(self, tunnel: Tunnel, connection: UpstreamConnection, clock: Clock, stall: float) -> None:
        self.clock = clock
        self.transport = Plain(connection.conn)
        self.output: Final = Output(self)
        self._maybe_tunnel: Tunnel | None = tunnel
        self._stall: Final = stall

    @property
    def _tunnel(self) -> Tunnel:
        tunnel = self._maybe_tunnel
        assert tunnel is not None, "the tunnel has ended"
        return tunnel

    def close(self) -> None:
        """Discard what was not taken, and forget the tunnel, which refers to this object."""
        self.output.close()
        self._maybe_tunnel = None

    def output_waits(self) -> None:
        """Do nothing: the limit is that of the tunnel's start."""

    def output_deadline(self, length: int, since: float, progress: float) -> tuple[float, Rule]:
        waited_until = self._tunnel.waited_for_client_until
        return take_deadline(progress, waited_until, self.clock.now(), self._stall), RULES["write_grace"]

    def output_blocked(self, deadline: float) -> None:
        """Do nothing: the client is not read while much is pending."""

    def output_moved(self, deadline: float) -> None:
        """Do nothing: nobody is shown it."""

    def output_sent(self) -> None:
        self._tunnel.upstream_took_all()

    def output_expired(self, rule: Rule, lateness: float) -> None:
        self._tunnel.fail(Failure.IDLE_TIMEOUT)

    def output_lost(self, reason: Reason) -> None:
        self._tunnel.fail(Failure.RESET)


def _expire(tunnel: Tunnel, seq: int, lateness: float) -> None:
    tunnel.expire(lateness)
