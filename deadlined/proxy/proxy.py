"""A reverse proxy as a handler of exchanges."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..http import Exchange, Responder
from ..runtime import current_host
from .address import Address
from .forward import Forwarder
from .options import ProxyLimits, ProxyTimeouts
from .shared import Shared
from .upstream import Upstream, UpstreamStatistics

if TYPE_CHECKING:
    from ..http.forwarded import TrustedProxies


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """A snapshot. `waiting`: requests that wait for an upstream now; `retries`: requests that were sent once more;
    `overloaded`: requests that have waited for too long and were answered with 503."""

    upstreams: tuple[UpstreamStatistics, ...]
    waiting: int
    retries: int
    overloaded: int


class Proxy:
    """Forwards requests to upstreams: the handler of an `HttpServer`. With its `respond` most requests need no task.

    Make it in a running event loop, of trio or asyncio. `addresses` are the upstreams, at least one (ValueError). The
    one with the fewest requests gets the next; one that fails several times in a row is left out for some seconds.
    `trusted`: the proxies in front of this one, whose `Forwarded` and `X-Forwarded-*` fields are passed on, None for
    none: then what a client says of itself there is dropped.

    502 is answered if an upstream is broken, 504 if it is too slow, 503 with Retry-After if a request has waited for an
    upstream for too long. A response that breaks off resets the client's connection. A client that leaves ends its
    request at the upstream.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        timeouts: ProxyTimeouts | None = None,
        limits: ProxyLimits | None = None,
        trusted: TrustedProxies | None = None,
    ) -> None:
        if not addresses:
            raise ValueError("a proxy needs the address of at least one upstream")
        clock = current_host().clock
        upstreams = {address: Upstream(address, clock) for address in addresses}
        self._by_address: Final = upstreams
        self._shared: Final = Shared(
            tuple(upstreams.values()), clock, timeouts or ProxyTimeouts(), limits or ProxyLimits(), trusted
        )

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Return an awaitable that forwards one request."""
        return Forwarder(exchange, self._shared).run()

    def respond(self, exchange: Exchange) -> Responder | None:
        """Return who forwards a request without a task, for `HttpServer(respond=...)`. None if the request needs a
        task: none of its upstream's connections is idle, for example."""
        shared = self._shared
        upstream = None if exchange.request.upgrade else shared.balancer.acquire_idle()
        return None if upstream is None else Forwarder(exchange, shared, upstream)

    def configure(self, *, timeouts: ProxyTimeouts | None = None, limits: ProxyLimits | None = None) -> None:
        """Use other options for each try that begins from now on; None leaves them as they are."""
        if timeouts is not None:
            self._shared.timeouts = timeouts
        if limits is not None:
            self._shared.balancer.set_limit(limits.upstream_connections)

    def set_available(self, address: Address, available: bool) -> None:
        """Note whether the upstream at `address` accepts connections. Requests wait while none does. KeyError for an
        address that is no upstream's."""
        self._shared.balancer.set_available(self._by_address[address], available)

    def close(self) -> None:
        """Close the idle connections to the upstreams. Requests that run are not affected."""
        for upstream in self._shared.upstreams:
            upstream.close()

    def statistics(self) -> ProxyStatistics:
        """Return a snapshot of the counts."""
        shared = self._shared
        return ProxyStatistics(
            upstreams=tuple(upstream.statistics() for upstream in shared.upstreams),
            waiting=shared.balancer.waiting,
            retries=shared.retries,
            overloaded=shared.overloaded,
        )
