"""Streams, listeners and datagram sockets for trio and asyncio, with Go's deadlines."""

from __future__ import annotations

import abc

from .conn import Conn
from .datagram import PacketConn, open_udp
from .dial import open_tcp_stream, open_tls_stream, open_unix_stream
from .errors import BrokenResourceError, BusyResourceError, ClosedResourceError
from .listen import open_tcp_listeners
from .listen_unix import open_unix_listener
from .listener import Listener
from .serve import serve_tcp
from .tls import TlsConn

__all__ = [
    "BrokenResourceError",
    "BusyResourceError",
    "ClosedResourceError",
    "Conn",
    "Listener",
    "PacketConn",
    "TlsConn",
    "open_tcp_listeners",
    "open_tcp_stream",
    "open_tls_stream",
    "open_udp",
    "open_unix_listener",
    "open_unix_stream",
    "serve_tcp",
]

for _kind in (Conn, TlsConn):
    if "_abc_impl" not in vars(_kind):
        # mypyc makes a class without calling its metaclass: it would share its base's cache of isinstance(), and every
        # stream that one of the two was asked about would get the same answer from the other
        abc._abc_init(_kind)  # type: ignore[attr-defined]
