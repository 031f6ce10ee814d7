"""The upstreams of a proxy as its owner sees them, whatever it forwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..http import Exchange, Responder
from ..runtime import current_host
from ..value import Value
from .address import Address
from .options import ProxyLimits, ProxyTimeouts
from .shared import Shared
from .upstream import Upstream, UpstreamStatistics

if TYPE_CHECKING:
    from ..http.trusted import TrustedProxies


@dataclass(frozen=True, slots=True)
class ProxyStatistics(Value):
    """A snapshot. `waiting`: requests that wait for an upstream now; `retries`: requests that were sent once more;
    `overloaded`: requests that have waited for too long and were not forwarded. For raw TCP, read "connections" for
    requests."""

    upstreams: tuple[UpstreamStatistics, ...]
    waiting: int
    retries: int
    overloaded: int


class BaseProxy:
    """What `Proxy` and `RawProxy` have in common. An abstract base class. ValueError without addresses."""

    def __init__(
        self,
        addresses: Sequence[Address],
        timeouts: ProxyTimeouts | None,
        limits: ProxyLimits | None,
        trusted: TrustedProxies | None,
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
        """Return an awaitable that forwards what comes in one exchange. For use as the handler of a server."""
        raise NotImplementedError

    def respond(self, exchange: Exchange) -> Responder | None:
        """Return the responder that forwards a request without a task, for `HttpServer(respond=...)`; None if the
        request needs a task, which is always so unless overridden."""
        return None

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

    def note_refusals(self, address: Address, refused: Callable[[], object]) -> None:
        """Call `refused` whenever a connect finds that nobody listens at `address`. KeyError for an address that is no
        upstream's."""
        self._by_address[address].on_refusal = refused

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
