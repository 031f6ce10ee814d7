"""A reverse proxy as a handler of exchanges."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ..http import Exchange, Responder
from .address import Address
from .base import BaseProxy
from .forward import Forwarder
from .methods import ALWAYS_PASSED, own_answer
from .options import ProxyLimits, ProxyTimeouts

if TYPE_CHECKING:
    from ..http.trusted import TrustedProxies


class Proxy(BaseProxy):
    """Forwards requests to upstreams: the handler of an `HttpServer`. With its `respond` most requests need no task.

    Make it in a running event loop, of trio or asyncio. `addresses` are the upstreams, at least one (ValueError). The
    one with the fewest requests gets the next; one that fails several times in a row is left out for some seconds.
    `trusted`: the proxies in front of this one, whose `Forwarded` and `X-Forwarded-*` fields are passed on, None for
    none: then what a client says of itself there is dropped.

    502 is answered if an upstream is broken, 504 if it is too slow, 503 with Retry-After if a request has waited for an
    upstream for too long. A response that breaks off ends the client's connection. A client that leaves ends its
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
        super().__init__(addresses, timeouts, limits, trusted)

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Return an awaitable that forwards one request."""
        return Forwarder(exchange, self._shared).run()

    def respond(self, exchange: Exchange) -> Responder | None:
        """Return the responder that forwards a request without a task, for `HttpServer(respond=...)`. None if the
        request needs a task: none of its upstream's connections is idle, for example, or it is not for an upstream."""
        request, shared = exchange.request, self._shared
        if request.upgrade or (request.method not in ALWAYS_PASSED and own_answer(request)):
            return None
        upstream = shared.balancer.acquire_idle()
        if upstream is None:
            return None
        try:
            return Forwarder(exchange, shared, upstream)
        except BaseException:
            shared.balancer.release(upstream)
            raise
