"""What all requests of a proxy share."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Final

from ..http import Exchange
from ..poll import Clock
from ..timing import sleep
from .balancer import Balancer
from .budget import RetryBudget
from .certificates import certificate_of
from .errors import Failure, UpstreamError
from .fields import passed_upgrade, request_lines
from .forwarded import peer_of
from .options import ProxyLimits, ProxyTimeouts
from .upstream import Upstream

if TYPE_CHECKING:
    from ..http.trusted import TrustedProxies

# seconds before a request is sent once more to upstreams of which none has accepted a connection
PAUSE: Final = 0.1


class Shared:
    """The upstreams, the timeouts in use, and the counts of a proxy."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        clock: Clock,
        timeouts: ProxyTimeouts,
        limits: ProxyLimits,
        trusted: TrustedProxies | None,
    ) -> None:
        self.upstreams: Final = upstreams
        self.clock: Final = clock
        self.timeouts = timeouts
        self.balancer: Final = Balancer(upstreams, clock, limits.upstream_connections)
        self.budget: Final = RetryBudget()
        self.retries: int = 0
        self.overloaded = 0
        self._trusted: Final = trusted
        self._authority: Final = upstreams[0].address.authority

    async def begin_retry(self, error: UpstreamError, failed: Sized) -> None:
        """Count one more try, after `error`. If no upstream has accepted a connection, `failed` being those that have
        not, wait first: one may be starting again."""
        self.retries += 1
        if error.failure is Failure.CONNECT and len(failed) >= len(self.upstreams):
            await sleep(PAUSE)

    def lines(self, exchange: Exchange) -> tuple[bytes, bytes]:
        """Return the upgrade that an upstream is asked for, b"" for none, and the fields of the request to it, as
        lines."""
        request = exchange.request
        client, scheme, server = exchange.client, exchange.scheme, exchange.server_address
        if self._trusted is not None:
            origin = self._trusted.origin(request.headers, client, scheme, server)
            if origin is not None:
                # for the log
                exchange.forwarded_client = origin.client
        upgrade = passed_upgrade(request) if request.upgrade else b""
        peer = peer_of(client, scheme, server, self._trusted)
        return upgrade, request_lines(request, peer, self._authority, upgrade, certificate_of(exchange.tls))
