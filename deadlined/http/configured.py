"""Which options hold for a connection now: the server's, or those of a route for the current request.

Facts      A reload changes the options of open connections. A request may have timeouts and limits of its own, by its
           path and method.
Answer     A connection has its own references to what is asked often. The choice for a request replaces some of them
           from the end of its head until the next request begins. A reload makes the choice again.
Cost       Some stores per connection and reload. Nothing per request without routes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..poll import Clock
from ..poll.desc import MYPY
from ..runtime import Host
from .draining import Draining
from .errors import BadRequest
from .exchange import Exchange
from .routes import Choice
from .seams import ExchangeHost
from .settings import Settings
from .timeouts import Limits, Timeouts

# bytes of the latest path that are kept, so that a reload can find its route again
_KEPT_PATH: Final = 512


class ConfiguredConnection(ExchangeHost):
    """The options in use of one connection. An abstract base class; `base.py` derives from it."""

    def __init__(self, settings: Settings) -> None:
        self.clock = settings.clock
        # method and path of the latest request that is over, whose route holds until the next one begins; None without
        # routes
        self._latest: tuple[str, bytes] | None = None
        self._use(settings)
        if TYPE_CHECKING and not MYPY:
            self.clock: Clock
            self.timeouts: Timeouts
            self.limits: Limits
            self.keep_alive_lines: bytes
            self.cancel_on_disconnect: bool
            self.ws_compression: bool
            self.loop: Host
            self.drain_began: Draining

    def _use(self, settings: Settings) -> None:
        """Use the options of the server."""
        self.settings = settings
        self.timeouts, self.limits = settings.timeouts, settings.limits
        self._observed = True
        self.keep_alive_lines = settings.keep_alive_lines
        self.cancel_on_disconnect = settings.cancel_on_disconnect
        self.ws_compression = settings.ws_compression
        self.loop = settings.loop
        self.drain_began = settings.drain.notice

    def _use_choice(self, choice: Choice | None) -> None:
        """Use the timeouts and limits of a route, or the server's again, until the next request begins."""
        chosen = self.settings if choice is None else choice
        self.timeouts, self.limits = chosen.timeouts, chosen.limits
        self.keep_alive_lines = chosen.keep_alive_lines
        self._observed = choice is None or choice.observed

    def _choose_again(self, exchange: Exchange | None) -> None:
        """Use what the routes say now of the current request, or of the latest while none has begun."""
        routes = self.settings.routes
        request = self._latest if exchange is None else (exchange.request.method, exchange.request.path_and_query)
        if request is not None and routes is not None:
            # a request that the routes of its time have let in is not refused by these
            with suppress(BadRequest):
                self._use_choice(routes.choose(*request))

    def _keep_choice(self, exchange: Exchange) -> None:
        """Let the choice for the request of `exchange`, which is over, hold until the next request begins."""
        if self.settings.routes is not None:
            self._latest = (exchange.request.method, exchange.request.path[:_KEPT_PATH])

    def _end_choice(self) -> None:
        """Use the server's options, because the next request begins."""
        if self._latest is not None:
            self._latest = None
            self._use_choice(None)
