"""The server: listeners, connections, and a shutdown that always ends."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import trio

from ..net import Conn, Listener
from ..runtime import current_pump
from .connection import HttpConnection
from .exchange import Exchange
from .phases import RULES, Phase, Reason
from .pool import TaskPool
from .records import ConnectionInfo, Observer
from .timeouts import INF, Limits, Timeouts
from .wire import date_line, head_parser

Handler = Callable[[Exchange], Awaitable[object]]


@dataclass(frozen=True)
class HttpStatistics:
    """`open` connections now and how many are in each phase, and handlers in the `background`: their responses are out
    and their connections have gone on. Totals since the start: `accepted` connections, `requests`, and the ended
    connections by their reason, with the worst lateness of a deadline, in seconds."""

    open: int
    phases: Mapping[Phase, int]
    background: int
    accepted: int
    requests: int
    reasons: Mapping[Reason, int]
    worst_lateness: float


class HttpServer:
    """Serves HTTP/1.1 with a handler, every phase of every connection under its own deadline.

    `handler(exchange)` is called for each request, in the connection's task and in a copy of the context variables of
    `serve`; what it raises is answered with 500 and logged. To be made inside `trio.run`. `ssl_context` makes it speak
    TLS. `observer` is told of every request and connection that is over.
    `parser` names what reads the heads of requests: "h11", "httptools" (ImportError if it is not installed), or "auto",
    httptools if it is there.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        observer: Observer | None = None,
        parser: str = "auto",
    ) -> None:
        pump = current_pump()
        self.handler = handler
        self.timeouts = timeouts or Timeouts()
        self.limits = limits or Limits()
        self.ssl_context = ssl_context
        self.observer = observer
        self.parse_head = head_parser(parser)
        self.clock = pump.clock
        self.poller = pump.poller
        self.draining = False
        advertised = self.timeouts.idle
        self.keep_alive_line = b"keep-alive: timeout=%d\r\n" % advertised if advertised < INF else b""
        self._connections: set[HttpConnection] = set()
        self._accepted = 0
        self._requests = 0
        self._background = 0
        self._reasons: Counter[Reason] = Counter()
        self._worst_lateness = 0.0
        self._date = b""
        self._date_second = -1
        self._shutdown = trio.Event()
        self._quiet = trio.Event()

    async def serve(
        self,
        listeners: Iterable[Listener],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `shutdown`, and then until the last connection and handler is done or the drain's deadline has
        cut it.

        The listeners are closed at the end, or as soon as the drain begins.
        """
        try:
            await self._serve(listeners, task_status)
        finally:
            # cancelled from outside: those that were in no task
            for connection in list(self._connections):
                connection.close()

    async def _serve(self, listeners: Iterable[Listener], task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as connections:
            pool = TaskPool(connections, self.poller)
            try:
                async with trio.open_nursery() as acceptors:
                    for listener in listeners:
                        acceptors.start_soon(self._accept, listener, pool)
                    task_status.started()
                    await self._shutdown.wait()
                    acceptors.cancel_scope.cancel()
                await self._drain()
            finally:
                pool.close()
                connections.cancel_scope.cancel()

    def shutdown(self) -> None:
        """Begin to drain: accept nothing more, close what is idle, answer what was asked, and cut what is left after
        `timeouts.drain` seconds. Idempotent."""
        self.draining = True
        self._shutdown.set()

    def connections(self) -> list[ConnectionInfo]:
        """Every open connection, the oldest first."""
        now = self.clock.now()
        return sorted((connection.info(now) for connection in self._connections), key=lambda info: info.id)

    def statistics(self) -> HttpStatistics:
        """A snapshot of the counts."""
        return HttpStatistics(
            open=len(self._connections),
            phases=Counter(connection.phase for connection in self._connections),
            background=self._background,
            accepted=self._accepted,
            requests=self._requests,
            reasons=Counter(self._reasons),
            worst_lateness=self._worst_lateness,
        )

    def date_line(self) -> bytes:
        """The Date header field, made anew once a second."""
        second = int(self.clock.now())
        if second != self._date_second:
            self._date_second = second
            self._date = date_line()
        return self._date

    def count_request(self) -> None:
        """A request is over."""
        self._requests += 1

    def left_behind(self) -> None:
        """A connection has gone on without its handler."""
        self._background += 1

    def caught_up(self) -> None:
        """A handler that was left behind has returned."""
        self._background -= 1
        self._look_around()

    def ended(self, connection: HttpConnection, reason: Reason, lateness: float) -> None:
        """A connection is over, for `reason`; so late was the deadline that cut it, 0.0 if none did."""
        self._connections.discard(connection)
        self._reasons[reason] += 1
        self._worst_lateness = max(self._worst_lateness, lateness)
        self._look_around()

    def _look_around(self) -> None:
        if not self._busy:
            self._quiet.set()

    @property
    def _busy(self) -> bool:
        return bool(self._connections) or self._background > 0

    async def _accept(self, listener: Listener, pool: TaskPool) -> None:
        async with listener:
            while True:
                self._welcome(await listener.accept(), pool)

    def _welcome(self, conn: Conn, pool: TaskPool) -> None:
        self._accepted += 1
        connection = HttpConnection(self, conn, self._accepted)
        self._connections.add(connection)
        pool.serve(connection)

    async def _drain(self) -> None:
        start = self.clock.now()
        deadline = start + self.timeouts.drain
        for connection in list(self._connections):
            connection.begin_drain(start)
        with trio.CancelScope(deadline=deadline):
            while self._busy:
                self._quiet = trio.Event()
                await self._quiet.wait()
        for connection in list(self._connections):
            connection.cut(RULES["drain"], self.clock.now() - deadline)
            connection.cancel()
