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
    """The options of a server. `serve` is `handler`, or what lets its requests wait for their turn if their number is
    limited; `before_wait` is called for those. `respond` is asked before it, unless it is None. `overrides` are for
    some requests; `routes` has them applied, and is None if there are none. `parse_head` reads the heads of requests.
    `ssl_context` is None for plain HTTP, `observer` None for no observer. `recorded_fields` are names of header fields,
    in lower case. `keep_alive_lines` are the header lines that advertise `timeouts.idle`, b"" if that is off.

    Raises ValueError if two overrides are for the same requests."""

    handler: Handler
    respond: Respond | None
    timeouts: Timeouts
    limits: Limits
    overrides: tuple[Route, ...]
    parse_head: HeadParser
    ssl_context: ssl.SSLContext | None
    observer: Observer | None
    recorded_fields: tuple[bytes, ...]
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
    before_wait: Callable[[Exchange], object] | None
    # connections are another protocol's
    raw: bool
    serve: Handler = field(init=False)
    routes: Routes | None = field(init=False)
    keep_alive_lines: bytes = field(init=False)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        routes = Routes(self.overrides, self.timeouts, self.limits) if self.overrides else None
        is_limited = self.limits.max_running < INF and not self.raw
        serve = AdmittingHandler(self.handler, self.admission, self.before_wait) if is_limited else self.handler
        object.__setattr__(self, "serve", serve)
        object.__setattr__(self, "routes", routes)
        object.__setattr__(self, "clock", self.loop.clock)
        object.__setattr__(self, "keep_alive_lines", keep_alive_lines(self.timeouts.idle))
