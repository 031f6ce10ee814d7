"""The server: listeners, the set of connections, statistics, and a shutdown that always ends."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import trio

from ..net import Conn, Listener
from ..runtime import current_pump
from .connection import Connection, ConnectionOwner
from .dates import DateLine
from .policy import RULES
from .records import ConnectionInfo, Observer
from .settings import Handler, Settings
from .state import Phase, Reason
from .timeouts import Limits, Timeouts
from .wire import head_parser
from .worker import WorkerPool

# connections that are accepted in one turn of the event loop: one would let newcomers wait behind those that are busy
_ACCEPTS: int = 32


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


class HttpServer(ConnectionOwner):
    """Serves HTTP/1.1 with a handler, every phase of every connection under its own deadline.

    Make it inside `trio.run`, and `serve` with it once. `handler(exchange)` is called for each request, in a task that
    serves the connection and in a copy of the context variables of `serve`; what it raises is answered with 500 and
    logged. Whatever a handler does to its task ends at most its own request.

    `ssl_context` makes the server speak TLS. `observer` is told of every request and connection that is over. `parser`
    names what reads the heads of requests: "h11", "httptools" (ImportError if it is not installed), or "auto", which is
    httptools if it is there; ValueError for another name.
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
        self._settings = Settings(
            handler=handler,
            timeouts=timeouts or Timeouts(),
            limits=limits or Limits(),
            parse_head=head_parser(parser),
            ssl_context=ssl_context,
            observer=observer,
            clock=pump.clock,
        )
        self._clock = pump.clock
        self._poller = pump.poller
        self._dates = DateLine(pump.clock)
        self._pool: WorkerPool | None = None
        self._draining = False
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._requests = 0
        self._background = 0
        self._reasons: Counter[Reason] = Counter()
        self._worst_lateness = 0.0
        self._shutdown = trio.Event()
        self._quiet = trio.Event()

    @property
    def timeouts(self) -> Timeouts:
        """What the server was told, or the defaults."""
        return self._settings.timeouts

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Use `timeouts` from now on: for each wait that begins, also of connections that are open."""
        self._settings = replace(self._settings, timeouts=timeouts)
        for connection in self._connections:
            connection.configure(self._settings)

    @property
    def draining(self) -> bool:
        """True once `shutdown` was called."""
        return self._draining

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
            # cancelled from outside: those that no worker has closed
            for connection in list(self._connections):
                connection.close()

    def shutdown(self) -> None:
        """Begin to drain: accept nothing but what has connected already, answer what was asked, close what is idle, and
        cut what is left after `timeouts.drain` seconds. Idempotent."""
        if not self._draining:
            self._draining = True
            now = self._clock.now()
            # at once: a response that begins before `serve` goes on must say already that it is the last
            for connection in list(self._connections):
                connection.drain(now)
            self._shutdown.set()

    def connections(self) -> list[ConnectionInfo]:
        """Describe every open connection, the oldest first."""
        now = self._clock.now()
        return sorted((connection.info(now) for connection in self._connections), key=lambda info: info.id)

    def statistics(self) -> HttpStatistics:
        """Take a snapshot of the counts."""
        return HttpStatistics(
            open=len(self._connections),
            phases=Counter(connection.phase for connection in self._connections),
            background=self._background,
            accepted=self._accepted,
            requests=self._requests,
            reasons=Counter(self._reasons),
            worst_lateness=self._worst_lateness,
        )

    # what a connection tells it

    def schedule(self, connection: Connection) -> None:
        if self._pool is not None:
            self._pool.schedule(connection)

    def request_done(self) -> None:
        self._requests += 1

    def handler_detached(self) -> None:
        self._background += 1

    def handler_finished(self) -> None:
        self._background -= 1
        self._note_quiet()

    def closed(self, connection: Connection, reason: Reason, lateness: float) -> None:
        self._connections.discard(connection)
        self._reasons[reason] += 1
        self._worst_lateness = max(self._worst_lateness, lateness)
        self._note_quiet()

    def _note_quiet(self) -> None:
        if not self._busy:
            self._quiet.set()

    @property
    def _busy(self) -> bool:
        return bool(self._connections) or self._background > 0

    async def _serve(self, listeners: Iterable[Listener], task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as workers:
            pool = self._pool = WorkerPool(workers, self._poller)
            try:
                async with trio.open_nursery() as acceptors:
                    for listener in listeners:
                        acceptors.start_soon(self._accept, listener)
                    task_status.started()
                    await self._shutdown.wait()
                    acceptors.cancel_scope.cancel()
                await self._drain()
            finally:
                pool.close()
                workers.cancel_scope.cancel()

    async def _accept(self, listener: Listener) -> None:
        async with listener:
            try:
                while True:
                    self._begin(await listener.accept())
                    self._accept_waiting(listener, _ACCEPTS - 1)
            finally:
                if self._draining:
                    # they have connected before the drain, and may have asked
                    while self._accept_waiting(listener, _ACCEPTS):
                        continue

    def _accept_waiting(self, listener: Listener, most: int) -> bool:
        """Accept up to `most` connections that wait already. True if there may be more."""
        for _ in range(most):
            conn = listener.try_accept()
            if conn is None:
                return False
            self._begin(conn)
        return True

    def _begin(self, conn: Conn) -> None:
        self._accepted += 1
        connection = Connection(self._settings, conn, self._accepted, self, self._dates)
        self._connections.add(connection)
        connection.start()
        if self._draining:
            connection.drain(self._clock.now())

    async def _drain(self) -> None:
        deadline = self._clock.now() + self.timeouts.drain
        with trio.CancelScope(deadline=deadline):
            while self._busy:
                self._quiet = trio.Event()
                await self._quiet.wait()
        for connection in list(self._connections):
            connection.expired(RULES["drain"], self._clock.now() - deadline)
