"""Upstreams as what a service serves: servers that run already, or a command that is started here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType

from ...http.settings import Handler, Respond
from ...proxy import Address, BaseProxy, Proxy, ProxyStatistics, RawProxy
from ...runtime import protected_from_interrupts
from ..command.child import Child
from ..command.place import Place, place_in
from ..config import ServeConfig
from ..log.logs import Log
from .content import Content, trusted_proxies

# the name of the upstream of `deadlined run` in the metrics
COMMAND = "command"


class Upstreams(Content):
    """Servers that run already, for `deadlined proxy`."""

    # from `__aenter__` on
    _proxy: BaseProxy

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self.title: str = f"{'TCP proxy' if config.tcp else 'proxy'} to {', '.join(config.upstream)}"

    async def __aenter__(self) -> Handler:
        return self._open(self._config.upstream)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._proxy.close()
        return None

    def configure(self, config: ServeConfig) -> None:
        """Use the timeouts and limits of `config`, for each try that begins from now on."""
        self._proxy.configure(timeouts=config.proxy_timeouts, limits=config.proxy_limits)

    def proxied(self) -> ProxyStatistics:
        return self._proxy.statistics()

    def respond(self) -> Respond:
        return self._proxy.respond

    async def close(self, deadline: Callable[[], float]) -> None:
        """Close the idle connections to upstreams: a server that ends may wait for them."""
        self._proxy.close()

    def _open(self, upstreams: Sequence[str]) -> BaseProxy:
        config = self._config
        addresses = [Address.parse(text) for text in upstreams]
        timeouts, limits = config.proxy_timeouts, config.proxy_limits
        if config.tcp:
            self._proxy = RawProxy(addresses, timeouts=timeouts, limits=limits)
        else:
            self._proxy = Proxy(addresses, timeouts=timeouts, limits=limits, trusted=trusted_proxies(config))
        return self._proxy


class Command(Upstreams):
    """A command that is started and kept running, for `deadlined run`. Requests wait while it does not accept
    connections."""

    # from `__aenter__` on
    _place: Place
    _child: Child

    def __init__(self, config: ServeConfig, log: Log) -> None:
        super().__init__(config)
        self._log = log
        self.title: str = f"proxy to {shlex.join(config.command)}"

    # Ctrl-C must not come between the start of the command and the block that ends it
    @protected_from_interrupts
    async def __aenter__(self) -> Handler:
        command = self._config.command
        self._place = place_in(command)
        proxy = self._open([self._place.address])
        address = Address.parse(self._place.address)
        proxy.set_available(address, False)
        self._child = Child(self._place, command, self._log, partial(proxy.set_available, address))
        proxy.note_refusals(address, self._child.refused)
        try:
            await self._child.start()
        except BaseException:
            self._end()
            raise
        return proxy

    @protected_from_interrupts
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._end()
        return None

    def proxied(self) -> ProxyStatistics:
        """Return what the proxy has counted. The command has a name that stays the same, unlike its address."""
        statistics = super().proxied()
        return replace(statistics, upstreams=tuple(replace(one, address=COMMAND) for one in statistics.upstreams))

    async def attend(self) -> None:
        """Start the command again whenever it ends."""
        await self._child.keep()

    async def close(self, deadline: Callable[[], float]) -> None:
        """Close the idle connections to the command, and end it."""
        await super().close(deadline)
        await self._child.stop(deadline)

    def _end(self) -> None:
        self._proxy.close()
        self._child.abort()
        self._place.close()
