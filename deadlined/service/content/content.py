"""What a service serves, as the rest of the service sees it: a handler of requests, and what lives around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ...http import Exchange, HttpServer
from ...http.settings import Handler, Respond
from ..config import ServeConfig

if TYPE_CHECKING:
    from ...http.trusted import TrustedProxies
    from ...proxy import ProxyStatistics


class Content(ABC):
    """What is served: `async with content as handler`, once, in a run. An abstract base class. The block raises
    StartupError if the content cannot be served; at its end nothing of the content is left, whatever has ended it.

    In the block, `served_by` is called first, then `attend` and `close`. `title`: what is served, for people.
    """

    title: str

    @abstractmethod
    async def __aenter__(self) -> Handler:
        """Begin, and return the handler of requests."""

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End what is left."""

    def served_by(self, server: HttpServer) -> None:  # noqa: B027, most contents need not know it
        """Note the server that will call the handler."""

    def respond(self) -> Respond | None:
        """Return what answers requests without a task, if it can; None if nothing does."""
        return None

    def before_wait(self, exchange: Exchange) -> None:  # noqa: B027, as above
        """Set the deadlines of a request that must wait for its turn."""

    def configure(self, config: ServeConfig) -> None:  # noqa: B027, as above
        """Use what can change in a running process from now on."""

    def proxied(self) -> ProxyStatistics | None:
        """Return what a proxy has counted, None if nothing is proxied."""
        return None

    async def attend(self) -> None:  # noqa: B027, as above
        """Do what must be done while requests are served. For a task beside the server, which is cancelled after
        `close`."""

    async def close(self, deadline: Callable[[], float]) -> None:  # noqa: B027, as above
        """End what requests needed: they are over, or do not end. It may take until `deadline()`, or LEAST_GRACE
        seconds if that is later. A second signal moves `deadline()` to its own time, and must be seen soon."""


def trusted_proxies(config: ServeConfig) -> TrustedProxies | None:
    """Return the proxies that are believed, None for none."""
    if not config.trusted_proxies:
        return None
    from ...http.trusted import TrustedProxies

    return TrustedProxies(config.trusted_proxies, config.forwarded_fields)
