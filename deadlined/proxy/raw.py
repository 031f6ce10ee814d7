"""A proxy for any protocol on TCP: each client's connection is joined to a connection to an upstream.

Facts      Nobody but the two ends knows what the bytes mean. A client whose connection was accepted takes the upstream
           for connected.
Hazard     Bytes that were read from a client and do not reach an upstream are lost without anybody noticing.
Answer     Nothing is read from the client before an upstream has accepted a connection. So another one can be tried
           always, and if none accepts, the client's connection is reset: nothing that it has sent was taken.
Cost       A task per connection, as for a request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Final

from ..http import Exchange, ResponseCut
from ..http.transport import peer_name
from .address import Address
from .base import BaseProxy
from .errors import TRIES, Failure, Overloaded, UpstreamError, bare
from .options import ProxyLimits, ProxyTimeouts
from .raw_tunnel import RawTunnel
from .shared import Shared
from .upstream import Upstream

_log: Final = logging.getLogger("deadlined.proxy")


class RawProxy(BaseProxy):
    """Joins connections of clients to upstreams: the handler of an `HttpServer` that was made with `raw=True`.

    Make it in a running event loop, of trio or asyncio. `addresses` are the upstreams, at least one (ValueError). The
    one with the fewest connections gets the next; one that fails several times in a row is left out for some seconds.

    Bytes pass both ways unchanged, and so do half-closes and resets. If no upstream accepts, or a client has waited for
    one for too long, its connection is reset.
    """

    def __init__(
        self, addresses: Sequence[Address], *, timeouts: ProxyTimeouts | None = None, limits: ProxyLimits | None = None
    ) -> None:
        super().__init__(addresses, timeouts, limits, None)

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Return an awaitable that joins one connection to an upstream, and serves it until its end."""
        return _Joint(exchange, self._shared).run()


class _Joint:
    """One client's connection on its way to an upstream."""

    __slots__ = ("_exchange", "_failed", "_shared", "_tries")

    def __init__(self, exchange: Exchange, shared: Shared) -> None:
        self._exchange = exchange
        self._shared = shared
        # the upstreams that have failed
        self._failed: list[Upstream] = []
        self._tries = 0

    async def run(self) -> None:
        """Connect, and pass bytes on until the tunnel has ended. Raise ResponseCut if no upstream can be had;
        Disconnected if the client is gone."""
        shared = self._shared
        shared.budget.deposit()
        error = await self._try()
        while isinstance(error, UpstreamError) and self._repeats(error):
            self._log(logging.INFO, error, "tried once more")
            await shared.begin_retry(error, self._failed)
            error = await self._try()
        if isinstance(error, Overloaded):
            shared.overloaded += 1
            _log.warning("%s: %s: the client was reset", self._peer, error.detail)
            raise ResponseCut(503, error.detail)
        if error is not None:
            self._log(logging.WARNING, error, "the client was reset")
            raise ResponseCut(error.status, error.detail)

    async def _try(self) -> UpstreamError | Overloaded | None:
        """Connect to an upstream, and run the tunnel. Return why there is no connection, None if there was one."""
        shared = self._shared
        try:
            upstream = await shared.balancer.acquire(self._failed, shared.timeouts.upstream_queue)
        except Overloaded as full:
            return bare(full)
        self._tries += 1
        try:
            return await self._join(upstream)
        finally:
            shared.balancer.release(upstream)

    async def _join(self, upstream: Upstream) -> UpstreamError | Overloaded | None:
        timeouts, clock = self._shared.timeouts, self._shared.clock
        upstream.count_try()
        try:
            connection = await upstream.connect(clock.now() + timeouts.upstream_connect)
        except UpstreamError as error:
            self._note_failure(upstream, error)
            return bare(error)
        except Overloaded as full:
            return bare(full)
        try:
            await self._tunnel(upstream, RawTunnel(connection, upstream, clock, timeouts.upstream_idle))
        finally:
            # unless the tunnel has closed it
            connection.abort()
        return None

    async def _tunnel(self, upstream: Upstream, tunnel: RawTunnel) -> None:
        await self._exchange.hand_over(tunnel)
        await tunnel.run()
        failure = tunnel.failure
        if failure is not None:
            if tunnel.upstream_spoke:
                upstream.broke_off(failure)
            else:
                upstream.failed(failure)
            _log.warning(
                "%s: %s: the upstream has failed (%s): the client was reset", self._peer, upstream.address, failure
            )

    def _note_failure(self, upstream: Upstream, error: UpstreamError) -> None:
        error.upstream = str(upstream.address)
        upstream.failed(error.failure)
        if upstream not in self._failed:
            self._failed.append(upstream)

    def _repeats(self, error: UpstreamError) -> bool:
        """Return True if another try is due. No upstream has seen anything, so it is safe; one that waits in vain for
        long costs a retry of the budget."""
        return self._tries < TRIES and (error.failure is Failure.CONNECT or self._shared.budget.withdraw())

    @property
    def _peer(self) -> str:
        return peer_name(self._exchange.client)

    def _log(self, level: int, error: UpstreamError, outcome: str) -> None:
        _log.log(level, "%s: %s: %s (%s): %s", self._peer, error.upstream, error.detail, error.failure, outcome)
