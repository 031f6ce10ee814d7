"""The admin listener: a server of this package beside the server that it describes, with its own limits and deadlines.

Facts      It shares a process with the real clients, or with nothing but the supervisor. It is the last to end there,
           because it tells of a drain to its end, and the process then has MARGIN seconds (`process/last_resort.py`).
Hazard     A client that opens a thousand connections to it, or sends a byte per second, takes descriptors and memory,
           or all of that time. A failure of it ends what it only describes.
Answer     Its deadlines are short and cannot be configured. Beyond MOST connections a new one is answered 503 and
           closed, until one of the others ends. What it raises is logged and ends nothing else.
Cost       A client keeps its connection for ten idle seconds, so most scrapes open one.
"""

from __future__ import annotations

import errno
import logging
import socket as stdlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...http import HttpServer, Limits, Timeouts
from ...net import Conn, Listener
from ..log.logs import Log
from .address import AdminSockets
from .handler import AdminHandler
from .replies import problem
from .service import Service

# open connections: a few scrapers, probes and people need one or two each
MOST = 100

# seconds. The shutdown of a lifespan may have taken the first of the two of MARGIN
_DRAIN = 0.5

_TIMEOUTS = Timeouts(
    read_header=5.0, read=10.0, body_grace=5.0, write_grace=5.0, write=30.0, idle=10.0, handler=15.0, drain=_DRAIN
)

_LIMITS = Limits(max_head=8 * 1024, max_headers=50, max_body=16 * 1024)

# seconds between two lines about connections that were turned away
_PAUSE = 60.0

_log = logging.getLogger("deadlined.admin")


class AdminListener:
    """Answers questions about `service` on `sockets`. Make it in a running event loop and call `serve` once."""

    def __init__(
        self,
        sockets: AdminSockets,
        service: Service,
        config: Mapping[str, object],
        build: Mapping[str, str],
        log: Log,
    ) -> None:
        self._handler = AdminHandler(service, sockets.gate, config, build)
        self._server = HttpServer(self._handler, timeouts=_TIMEOUTS, limits=_LIMITS)
        self._sockets = sockets
        self._log = log
        self._quiet_until = 0.0

    async def serve(self) -> None:
        """Serve until `shutdown`."""
        listeners = [_BoundedListener(socket, self._has_room, self._turned_away) for socket in self._sockets.sockets]
        self._log("admin listening", url=self._sockets.url)
        await self._server.serve(listeners)

    async def serve_contained(self) -> None:
        """Serve until `shutdown`. An error ends it and is logged, and ends nothing else."""
        try:
            await self.serve()
        except Exception:
            _log.exception("the admin listener has failed; what it describes goes on")

    def shutdown(self) -> None:
        """End the streams of live pages, and drain: open requests are answered."""
        self._handler.end_streams()
        self._server.shutdown(reuse_grace=0.0)

    def _has_room(self) -> bool:
        return self._server.open_connections < MOST

    def _turned_away(self) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _PAUSE
            self._log("the admin listener turns connections away", level="warning", open=MOST)


class _BoundedListener(Listener):
    """A listener that closes new connections while `has_room()` is false, and calls `turned_away` for each."""

    def __init__(self, socket: stdlib.socket, has_room: Callable[[], bool], turned_away: Callable[[], object]) -> None:
        super().__init__(socket)
        self._has_room = has_room
        self._turned_away = turned_away

    def _accept_one(self) -> Conn | None:
        conn = super()._accept_one()
        if conn is None or self._has_room():
            return conn
        self._refuse(conn)
        raise ConnectionAbortedError(errno.ECONNABORTED, "there is no room for the connection")

    def _refuse(self, conn: Conn) -> None:
        self._turned_away()
        # an empty send buffer has room for it; the client may be gone
        with suppress(OSError):
            conn.socket.send(_FULL)
        conn.close()


def _full() -> bytes:
    reply = problem(503, f"{MOST} connections to the admin listener are open already", (b"retry-after", b"5"))
    fields = b"".join(b"%b: %b\r\n" % field for field in [*reply.headers(), (b"connection", b"close")])
    return b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n%b" % (fields, reply.body)


_FULL = _full()
