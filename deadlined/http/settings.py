"""The options that all connections of a server share. No connection changes them."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..poll import Clock
from ..runtime import Host
from ..value import Value
from .admission import Admission
from .admitting import AdmittingHandler
from .counts import Counts
from .draining import Drain
from .exchange import Exchange
from .records import Observer
from .routes import Route, Routes
from .seams import Responder
from .timeouts import INF, Limits, Timeouts
from .wire import HeadParser
from .wire.response import keep_alive_lines

Handler = Callable[[Exchange], Awaitable[object]]

# returns what answers an exchange without a task; None to leave the exchange to the handler
Respond = Callable[[Exchange], Responder | None]


@dataclass(frozen=True, slots=True)
class Settings(Value):
    """The options of a server, and the objects that all its connections share. Those after `raw` follow from the
    others.

    Raises ValueError if two of the `overrides` are for the same requests."""

    # what answers requests
    handler: Handler
    # asked before `handler`; None if there is none
    respond: Respond | None
    # called for each request that must wait for its turn
    before_wait: Callable[[Exchange], object] | None
    timeouts: Timeouts
    limits: Limits
    # timeouts and limits of some requests
    overrides: tuple[Route, ...]
    # reads the heads of requests
    parse_head: HeadParser
    # None for plain HTTP
    ssl_context: ssl.SSLContext | None
    observer: Observer | None
    # names of the header fields that the observer is given, in lower case
    recorded_fields: tuple[bytes, ...]
    # the host of the event loop
    loop: Host
    # a client that leaves cancels its handler
    cancel_on_disconnect: bool
    # a websocket may compress its messages
    ws_compression: bool
    drain: Drain
    # what the connections count
    counts: Counts
    # how many requests are handled at once
    admission: Admission
    # connections are another protocol's
    raw: bool
    # `handler`; if the number of requests is limited, one that calls it when they have their turn
    serve: Handler = field(init=False)
    # `overrides`, applied to `timeouts` and `limits`; None if there are none
    routes: Routes | None = field(init=False)
    # the header lines that advertise `timeouts.idle`, b"" if that is off
    keep_alive_lines: bytes = field(init=False)
    # that of `loop`
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        routes = Routes(self.overrides, self.timeouts, self.limits) if self.overrides else None
        is_limited = self.limits.max_running < INF and not self.raw
        serve = AdmittingHandler(self.handler, self.admission, self.before_wait) if is_limited else self.handler
        object.__setattr__(self, "serve", serve)
        object.__setattr__(self, "routes", routes)
        object.__setattr__(self, "clock", self.loop.clock)
        object.__setattr__(self, "keep_alive_lines", keep_alive_lines(self.timeouts.idle))
