"""The HTTP server: it keeps the set of its connections and their statistics, and drains at shutdown."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..net import Conn, Listener
from ..net.inheritance import closed_in_children
from ..runtime import ContainedTasks, current_host, open_contained_tasks, within
from ..runtime.forking import Inherited
from .accepting import Acceptors
from .admission import Admission
from .base import ConnectionBase
from .capacity import Capacity
from .connection import Connection
from .counts import Counts, HttpStatistics
from .dates import DateLine
from .draining import Drain
from .exchange import Exchange
from .owner import ConnectionOwner
from .policy import REUSE_GRACE, RULES
from .pool import WorkerPool
from .raw import new_connection
from .records import ConnectionInfo, Observer
from .reporting import report
from .routes import Route
from .settings import Handler, Respond, Settings
from .state import Phase, Reason
from .survey import Survey, busiest_paths, statistics_of
from .timeouts import INF, Limits, Timeouts
from .wire import head_parser
from .worker import Worker


class HttpServer(ConnectionOwner):
    """An HTTP/1.1 server that calls a handler for each request. Every phase of every connection has its own deadline.

    Make it in a running event loop, of trio or asyncio, and call `serve` once.

    `handler(exchange)` answers a request. It runs in a copy of the context variables of the caller of `serve`. Its task
    serves one request after another; on asyncio only while no request can notice that. An exception of the handler is
    logged, and answered with 500 if no response was started. A handler that cancels its task, or leaves scopes open in
    it, ends at most its own request.

    `routes` override timeouts and limits of some requests; ValueError if two are for the same ones. `ssl_context` makes
    the server speak TLS. `observer` is told of every request and connection that is over, with the header fields
    that `recorded_fields` names, up to 256 bytes of each. `parser` names the parser of request heads: "h11",
    "httptools" (ImportError if it is not installed), or "auto" for httptools if it is installed, else h11. Raises
    ValueError for another name. `ws_compression`: a websocket may compress its messages (permessage-deflate) if its
    client offers that.

    `cancel_on_disconnect`: a handler that is suspended is cancelled when its client leaves. A client that resets the
    connection has left at once. One that ends only its own side may still wait for the answer, so its handler has
    DISCONNECT_GRACE seconds to return; so has a handler that learns of the end by a receive or a send. After the
    response is sent nothing is cancelled. If False, no handler is cancelled because its client leaves or does not read.
    `on_cut()` is called when a handler has ended that was cut short, by its client, a deadline or its own failure, or
    that has served a websocket. It must be short and must not raise.

    `respond(exchange)` is asked first, once a head is complete. If it returns a Responder, that answers the request,
    without a task; if None, the handler does. It must not wait, and must not raise.

    `limits.max_running` requests are handled at once. A request counts until its handler has returned, or has upgraded
    the connection; what a Responder answers does not count. Others wait, first come first served, for
    `timeouts.request_queue` at most, and are answered with 503 then. `before_wait(exchange)` is called for each request
    that must wait, and may set its deadlines. It must not raise.
    `limits.max_connections` are open at once. Further clients wait to be accepted. While any do, connections that have
    been idle for REUSE_GRACE or more are closed, the longest idle first.

    `raw`: connections are another protocol's from their first byte. The handler is called once for each, before a byte
    is received, and hands it over by `Exchange.hand_over`. No HTTP is read, sent, counted, limited or recorded.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        routes: Iterable[Route] = (),
        ssl_context: ssl.SSLContext | None = None,
        observer: Observer | None = None,
        recorded_fields: Iterable[str] = (),
        parser: str = "auto",
        cancel_on_disconnect: bool = True,
        ws_compression: bool = True,
        on_cut: Callable[[], object] | None = None,
        respond: Respond | None = None,
        before_wait: Callable[[Exchange], object] | None = None,
        raw: bool = False,
    ) -> None:
        self._host: Final = current_host()
        self._admission: Final = Admission(self._host.clock, limits or Limits())
        self._drain: Final = Drain()
        self._counts: Final = Counts()
        self._settings = Settings(
            handler=handler,
            respond=respond,
            timeouts=timeouts or Timeouts(),
            limits=limits or Limits(),
            overrides=tuple(routes),
            parse_head=head_parser(parser),
            ssl_context=ssl_context,
            observer=observer,
            recorded_fields=tuple(dict.fromkeys(name.lower().encode("ascii") for name in recorded_fields)),
            loop=self._host,
            cancel_on_disconnect=cancel_on_disconnect,
            ws_compression=ws_compression,
            drain=self._drain,
            counts=self._counts,
            admission=self._admission,
            before_wait=before_wait,
            raw=raw,
        )
        self._dates: Final = DateLine(self._host.clock)
        self._on_cut: Final = on_cut
        self._pool: WorkerPool | None = None
        self._connections: set[ConnectionBase] = set()
        self._background: set[Exchange] = set()
        self._was_cut = False
        self._capacity: Final = Capacity(self._connections, self._host.clock, limits or Limits())
        self._acceptors: Final = Acceptors(self._drain, self._begin, self._capacity)
        # closes the connections in a forked child
        self._inherited = Inherited(self._disown, self._has_connections)

    @property
    def timeouts(self) -> Timeouts:
        """The timeouts in use: those that the server was given last, or the defaults."""
        return self._settings.timeouts

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Use `timeouts` as `configure` does."""
        self.configure(timeouts=timeouts)

    def configure(
        self,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        routes: Iterable[Route] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Use other options from now on, also for connections that are open; None leaves one as it is.

        Timeouts hold for each head, request and send that begins from now on; one under way keeps its own. They hold
        for idle connections if `timeouts.idle` has changed, and for open websockets: their current waits count from
        now. A send that waits without a limit gets that of now. A limit holds for each check from now on, `max_message`
        and `max_frame` for each new websocket, `ssl_context` for each new connection. ValueError if two routes are for
        the same requests; nothing has changed then.
        """
        used = self._settings
        self._settings = replace(
            used,
            timeouts=timeouts or used.timeouts,
            limits=limits or used.limits,
            overrides=used.overrides if routes is None else tuple(routes),
            ssl_context=ssl_context or used.ssl_context,
        )
        for connection in self._connections:
            connection.configure(self._settings)
        self._admission.configure(self._settings.limits)
        self._capacity.configure(self._settings.limits)

    @property
    def draining(self) -> bool:
        """True once `shutdown` was called."""
        return self._drain.began.is_set()

    async def serve(self, listeners: Iterable[Listener], *, task_status: Any = None) -> None:
        """Serve until `shutdown`, and then until all connections and handlers are done or the drain's deadline has cut
        them.

        The listeners are closed when the drain begins, or when this is cancelled. `task_status.started()` is called
        once connections are accepted: trio and anyio pass it when this is started with `start`.
        """
        self._host.holds += 1
        self._acceptors.set_listeners(listeners)
        try:
            with closed_in_children(self._acceptors.sockets):
                await within(open_contained_tasks(), partial(self._serve_in, task_status))
        finally:
            self._host.holds -= 1
            self._acceptors.end()
            # connections are left only if the server was cancelled or the drain's deadline has passed
            for connection in list(self._connections):
                connection.close()

    def add_listener(self, listener: Listener) -> None:
        """Accept connections of one more listener. Close it if the server is not serving, or drains."""
        self._acceptors.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Accept no connection of this listener any more, and close it. Connections that wait in its socket's queue are
        left to other processes that have the socket; if there are none, they are reset."""
        self._acceptors.remove(listener)

    def shutdown(self, reuse_grace: float = REUSE_GRACE) -> None:
        """Begin to drain. Accept only what is in the listeners' queues already, serve the requests that have begun,
        close idle connections, and reset what is left after `timeouts.drain` seconds. Another call can only make
        `reuse_grace` shorter.

        An idle connection is closed IDLE_GRACE seconds from now, but `reuse_grace` seconds after its last response if
        that is later, and in the first half of the drain in any case; until then it may send one more request. 0 is for
        a server whose end somebody waits for. A head that is not complete NEW_GRACE seconds from now is answered with
        408. ValueError for NaN.
        """
        if math.isnan(reuse_grace):
            raise ValueError("reuse_grace must not be NaN")
        now = self._host.clock.now()
        if self._drain.begin(now, now + self.timeouts.drain, reuse_grace):
            self._admission.end_waits((now + self._drain.until) / 2)
            # at once: a response that begins before `serve` goes on must say already that it is the last
            for connection in list(self._connections):
                connection.drain(now)

    def cut(self) -> None:
        """End the drain now: reset what is left, as at the drain's deadline. No effect before `shutdown`."""
        self._drain.cut()

    @property
    def was_cut(self) -> bool:
        """True once a drain has cut a request or its response, or ended a detached handler."""
        return self._was_cut

    @property
    def open_connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def max_connections(self) -> float:
        """The number of connections that may be open at once, `inf` without a limit."""
        return self._settings.limits.max_connections

    @property
    def background(self) -> int:
        """The number of handlers that still run after their response."""
        return len(self._background)

    def connections(
        self, phase: Phase | None = None, *, sort: str = "id", descending: bool = False, limit: int | None = None
    ) -> list[ConnectionInfo]:
        """Describe the open connections, the oldest first: all, or those in `phase`.

        `sort` names the field that orders them: id, age, left or requests; `descending` turns the order around. Only
        the first `limit` are described: describing costs most.
        """
        survey = self.survey(phase, sort=sort, descending=descending, limit=limit)
        survey.advance(survey.left)
        return survey.describe(survey.undescribed)

    def survey(
        self, phase: Phase | None = None, *, sort: str = "id", descending: bool = False, limit: int | None = 0
    ) -> Survey:
        """Begin to count the open connections, for `statistics`, and to find those that `connections` describes. The
        caller advances the survey, and may let other tasks run in between."""
        most = len(self._connections) if limit is None else limit
        return Survey(self._connections, self._counts, self._host.clock, phase, sort, descending, most)

    def statistics(self, survey: Survey | None = None) -> HttpStatistics:
        """Return a snapshot of the counts. Open connections and bytes are counted by `survey`, which must have visited
        all its connections and does not know later ones; without it, they are counted now."""
        if survey is None:
            survey = self.survey()
            survey.advance(survey.left)
        return statistics_of(self._counts, survey, len(self._background), self._admission)

    def paths(self, most: int) -> dict[str, int]:
        """Return the `most` frequent paths of requests that are handled, also in the background, and their numbers."""
        return busiest_paths(self._connections, self._background, most)

    # implements ConnectionOwner: called by the connections

    def schedule(self, connection: ConnectionBase) -> None:
        assert isinstance(connection, Connection)
        if self._pool is not None:
            self._pool.schedule(connection)

    def call_soon(self, function: Callable[[], object]) -> None:
        if self._pool is not None:
            self._pool.tasks.call_soon(function)

    def flush_later(self, connection: ConnectionBase) -> bool:
        return self._pool is not None and self._pool.flush_later(connection, None)

    def hold_head(self, exchange: Exchange) -> None:
        if self._pool is not None:
            self._pool.heads.add(exchange)

    def request_done(self) -> None:
        self._counts.handled += 1

    def handler_detached(self, exchange: Exchange) -> None:
        self._background.add(exchange)

    def handler_finished(self, exchange: Exchange) -> None:
        self._background.discard(exchange)
        self._note_quiet()

    def handler_cut(self) -> None:
        if self._on_cut is not None:
            self._on_cut()

    def closed(self, connection: ConnectionBase, reason: Reason, lateness: float) -> None:
        self._connections.discard(connection)
        self._capacity.connection_ended()
        self._counts.end(reason, lateness)
        self._note_quiet()

    def _note_quiet(self) -> None:
        """End the drain if no connection and no handler is left."""
        if not self._busy():
            self._drain.check()

    def _busy(self) -> bool:
        """True while a connection or a detached handler is left."""
        return bool(self._connections or self._background)

    def _has_connections(self) -> bool:
        return bool(self._connections)

    def _disown(self) -> None:
        """Close the connections in a forked child: while it has them, its parent cannot end them. Let them tell no
        observer what the parent tells it."""
        unobserved = replace(self._settings, observer=None)
        for connection in self._connections:
            connection.conn.socket.close()
            connection.settings = unobserved

    async def _serve_in(self, task_status: Any, tasks: ContainedTasks) -> None:
        pool = self._pool = WorkerPool(tasks, self._host.poller, Worker)
        try:
            await self._acceptors.run(task_status)
            await self._drain.wait(self._busy, self._host.clock)
            self._reset_rest()
        finally:
            pool.close()

    def _begin(self, conn: Conn) -> None:
        """Start a connection on an accepted `conn`. Close it if there is no memory for that."""
        self._counts.accepted += 1
        try:
            connection = new_connection(self._settings, conn, self._counts.accepted, self, self._dates)
            self._connections.add(connection)
        except MemoryError as error:
            conn.close()
            self._counts.end(Reason.SERVER_ERROR, 0.0)
            report(logging.ERROR, "a new connection could not be begun", error=error)
            return
        try:
            connection.start()
        except Exception as error:
            connection.fail(error)
            connection.close()
        if self.draining:
            connection.drain(self._host.clock.now())

    def _reset_rest(self) -> None:
        """Reset what is left at the drain's deadline. `serve` closes what loses nothing, which no drain has cut."""
        late = 0.0 if self._drain.until == -INF else self._host.clock.now() - self._drain.until
        self._was_cut = bool(self._background)
        for connection in list(self._connections):
            cut = not connection.loses_nothing
            self._was_cut = self._was_cut or cut
            connection.expired(RULES["drain" if cut else "idle"], late)
