"""Every wait of every connection ends on time.

Streams with Go's deadlines, for programs on trio, asyncio and uvloop:

    conn = await deadlined.open_tcp_stream("example.org", 80)
    conn.set_deadline(deadlined.current_time() + 5)

A deadline is an absolute time on the event loop's clock and a field of the connection: moving it is a store.
`deadlined.http` serves HTTP/1.1 with every phase under its own deadline, `deadlined.threads` has timers for programs
without an event loop, `deadlined.timers` holds the timer facilities, and the command `deadlined serve` runs an ASGI
application.

A name is loaded, with trio, when it is first used: a probe, which uses none, starts five times as fast.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import freshness as _freshness  # noqa: F401, warns before a compiled module fails that does not fit the others

if sys.platform == "win32":
    # raises an ImportError that says what is needed
    from . import runtime as _runtime  # noqa: F401

if TYPE_CHECKING:
    from . import asgi as asgi
    from . import http as http
    from . import proxy as proxy
    from . import threads as threads
    from .errors import DeadlineExceeded
    from .net import (
        BrokenResourceError,
        BusyResourceError,
        ClosedResourceError,
        Conn,
        Listener,
        PacketConn,
        TlsConn,
        open_tcp_listeners,
        open_tcp_stream,
        open_tls_stream,
        open_udp,
        open_unix_listener,
        open_unix_stream,
        serve_tcp,
    )
    from .runtime import current_time, statistics
    from .timing import Ticker, Timer, after_func, sleep, sleep_until
else:
    # hidden from type checkers, which would accept any name because of it

    def __getattr__(name: str) -> object:
        """Load a public name, or one of the modules below, when it is first used."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """Return all names, also those that are not loaded yet."""
        return sorted({*globals(), *_HOMES, *_MODULES})


__version__ = "0.1.0"

__all__ = [
    "BrokenResourceError",
    "BusyResourceError",
    "ClosedResourceError",
    "Conn",
    "DeadlineExceeded",
    "Listener",
    "PacketConn",
    "Ticker",
    "Timer",
    "TlsConn",
    "__version__",
    "after_func",
    "current_time",
    "open_tcp_listeners",
    "open_tcp_stream",
    "open_tls_stream",
    "open_udp",
    "open_unix_listener",
    "open_unix_stream",
    "serve_tcp",
    "sleep",
    "sleep_until",
    "statistics",
]

# the module that has each public name
_HOMES = {
    "DeadlineExceeded": "errors",
    **dict.fromkeys(("current_time", "statistics"), "runtime"),
    **dict.fromkeys(("Ticker", "Timer", "after_func", "sleep", "sleep_until"), "timing"),
}
_HOMES |= {name: "net" for name in __all__ if name not in (*_HOMES, "__version__")}

# what can be used after `import deadlined` alone
_MODULES = frozenset(("asgi", "errors", "http", "net", "poll", "proxy", "runtime", "threads", "timers", "timing"))
