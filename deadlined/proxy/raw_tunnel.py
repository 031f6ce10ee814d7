"""A raw connection: bytes both ways between a client and an upstream, each end of which may end its side first.

Facts      Protocols on TCP use half-closes: a client sends all that it has, ends its side, and waits for the answer, or
           the other way round.
Hazard     A half-close that is taken for the end cuts what the other side still sends. One that overtakes bytes makes
           an incomplete stream look complete.
Answer     Each half-close is passed on once all before it was sent. The tunnel ends when both have been passed on; any
           other end resets the upstream. `idle` bounds the rest, and the age of the connection, if that has a bound.
Cost       The handler's task waits for the end of the tunnel.
"""

from __future__ import annotations

from ..errors import DeadlineExceeded
from ..http import Reason
from ..net import BrokenResourceError, ClosedResourceError
from ..poll import Clock
from ..runtime import Event
from .connection import UpstreamConnection
from .options import INF
from .tunnel import Tunnel
from .upstream import Upstream


class RawTunnel(Tunnel):
    """The protocol of a raw connection that is joined to `upstream` by `connection`. `stall` as for `Tunnel`."""

    def __init__(self, connection: UpstreamConnection, upstream: Upstream, clock: Clock, stall: float) -> None:
        super().__init__(connection, clock, stall, INF)
        self._upstream = upstream
        # bytes of the upstream have come
        self.upstream_spoke: bool = False
        # the half-closes that were passed on
        self._told_upstream = self._told_client = False
        # set when both were, or the tunnel has ended
        self._done = Event()

    def _upstream_spoke(self) -> None:
        if not self.upstream_spoke:
            self.upstream_spoke = True
            # an upstream that accepts and breaks off at once is not fit
            self._upstream.succeeded()

    async def _finish(self) -> None:
        """Pass the end on to the client, and wait for that of the client."""
        output = self._host.output
        output.flush()
        await output.wait(0)
        if not self._closed:
            await self._end_downward()
        await self._done.wait()

    async def _end_downward(self) -> None:
        """End the side towards the client, who must take that as it must take bytes."""
        host = self._host
        deadline = self._clock.now() + host.timeouts.write_grace
        try:
            await host.transport.end(deadline)
            self._told_client = True
            self._finish_if_told()
        except DeadlineExceeded as late:
            self.end(Reason.WRITE_TIMEOUT, host.count_expiry(self._clock.now() - late.deadline))
        except (BrokenResourceError, ClosedResourceError):
            self.end(Reason.CLIENT_RESET)

    def _end_upward(self) -> None:
        super()._end_upward()
        if self._client_ended and not (self._closed or self._upward.output.size):
            self._told_upstream = True
            self._finish_if_told()

    def _finish_if_told(self) -> None:
        """Close the upstream's connection, and let the handler return, if both half-closes were passed on."""
        if self._told_upstream and self._told_client:
            # no reset: the kernel may still have to send what the upstream has not read
            self._connection.close()
            self._upstream.succeeded()
            self._done.set()

    # implements Upgraded

    def handler_left(self, failed: bool) -> None:
        if failed or self._closed:
            super().handler_left(failed)
        else:
            self._host.end_upgraded(Reason.DONE, 0.0, False)

    def ended(self, reason: Reason) -> None:
        super().ended(reason)
        self._done.set()
