"""Every wait of every connection ends on time.

Streams with Go's deadlines, for programs on trio, asyncio and uvloop:

    conn = await deadlined.open_tcp_stream("example.org", 80)
    conn.set_deadline(deadlined.current_time() + 5)

A deadline is an absolute time on the event loop's clock and a field of the connection: moving it is a store.
`deadlined.http` serves HTTP/1.1 with every phase under its own deadline, `deadlined.threads` has timers for programs
without an event loop, `deadlined.timers` holds the timer facilities, and the command `deadlined serve` runs an ASGI
application.
"""

from __future__ import annotations

from . import freshness as _freshness  # noqa: F401, warns before a compiled module fails that does not fit the others
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
