"""One process that serves: begin the content, listen, serve, drain, end the content."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...http import HttpServer, Limits
from ...http.settings import Handler
from ...http.timeouts import INF
from ...net.inheritance import closed_in_children
from ...runtime import checkpoint, current_host, current_time, open_group
from ..config import ServeConfig
from ..config.changing import apply
from ..config.rereading import Configuration, Reloaded, context_of, not_reloaded
from ..content.content import Content
from ..errors import CUT, StartupError
from ..listening.listening import Place, close_all, listen, take_places, url_of
from ..log.logs import enable_loggers
from ..process.allocator import keep_freed_memory
from ..process.file_limit import connections_within, free_descriptors
from ..process.garbage import GarbageWatch, tune_gc, watch_garbage
from ..process.hangup import Hangup
from ..process.notify import Notifier
from ..process.stalls import StallWatch
from ..workers.accepting import Accepting
from ..workers.link import Link, Orders
from ..workers.watchdog import LoopWatchdog
from .administered import local_service
from .closing import Closing
from .drain import ProcessDrain
from .starting import Starting
from .stopping import Stopper, reuse_grace
from .voice import Voice

if TYPE_CHECKING:
    from ..admin.hosting import Admin


def is_first(link: Link | None) -> bool:
    """Return True in the process that speaks for all: the only one, or the first worker process."""
    return link is None or link.first


@dataclass(frozen=True)
class Parent:
    """What a serving process is given by the command that runs it. `link`: from a worker process to its supervisor,
    None in others. `hangup`: the handler of SIGHUP. `notifier`: tells the service manager, or the parent of --reload,
    what the process does. `starting`: the handler of SIGTERM and SIGINT until the process serves."""

    link: Link | None
    hangup: Hangup
    notifier: Notifier
    starting: Starting


@dataclass(frozen=True)
class Live:
    """A process that serves: its server, and the handlers of the signals that end it."""

    server: HttpServer
    stopper: Stopper


class Service:
    """One serving process. `admin` is None without an admin listener of this process. `has_begun`: the event loop has
    called `run`. `exit_code` is that of the process once `run` has returned."""

    def __init__(
        self, configuration: Configuration, voice: Voice, parent: Parent, content: Content, admin: Admin | None
    ) -> None:
        self._configuration = configuration
        self._voice = voice
        self._log = voice.log
        self._link = parent.link
        self._hangup = parent.hangup
        self._notifier = parent.notifier
        self._starting = parent.starting
        self._content = content
        self._admin = admin
        # the parent of --reload would wait for a change
        drain = None if configuration.config.reload else self._drain_on_request
        # a supervisor that has an admin listener asks its worker processes
        self._local = local_service(configuration.config.admin, voice.log, drain, self._reload)
        self._free_descriptors = INF
        # None until it serves
        self._live: Live | None = None
        # the whole service ends, not only this process
        self._service_ends = False
        self.has_begun: bool = False
        self.exit_code: int = 0

    @property
    def _config(self) -> ServeConfig:
        return self._configuration.config

    async def run(self, context: ssl.SSLContext | None) -> None:
        """Begin the content, listen, serve, drain, end the content. `context`: of TLS, None for plain connections."""
        self.has_begun = True
        with self._starting.in_run(), watch_garbage() as garbage:
            serve = partial(self._run, context, garbage)
            if self._admin is None or self._local is None:
                await serve()
            else:
                await self._admin.beside(self._local, serve)

    async def _run(self, context: ssl.SSLContext | None, garbage: GarbageWatch) -> None:
        # a worker process is given its sockets
        places = take_places(self._config) if self._link is None else []
        started = current_time()
        try:
            # an application may have configured logging as it was imported, or does so in its startup
            enable_loggers()
            with closed_in_children(lambda: [each for place in places for each in place.sockets]):
                live = await self._serve_content(places, context, garbage)
        finally:
            self._voice.end()
            close_all(places)
        self.exit_code = CUT if live.server.was_cut else 0
        statistics = live.server.statistics()
        self._log(
            "stopped",
            requests=statistics.requests,
            connections=statistics.accepted,
            reasons=dict(statistics.reasons),
            uptime=round(current_time() - started, 3),
        )
        live.stopper.served(self.exit_code)

    async def _serve_content(self, places: list[Place], context: ssl.SSLContext | None, garbage: GarbageWatch) -> Live:
        """Begin the content, serve, drain, end the content. Return what has served."""
        async with self._content as handler:
            enable_loggers()
            tune_gc()
            keep_freed_memory()
            server = self._server(handler, context, garbage)
            self._content.served_by(server)
            live = await self._serve_until_drained(server, places)
            garbage.end()
        return live

    def _limits(self) -> Limits:
        """Return the limits in use. Without one of connections, they follow from the limit of open files."""
        limits, config = self._config.limits, self._config
        if limits.max_connections < INF:
            return limits
        upstreams = len(config.upstream or config.command[:1])
        upstream = upstreams * config.proxy_limits.upstream_connections if upstreams else 0
        return replace(limits, max_connections=connections_within(self._free_descriptors, upstream))

    def _server(self, handler: Handler, context: ssl.SSLContext | None, garbage: GarbageWatch) -> HttpServer:
        # before the first client has one
        self._free_descriptors = free_descriptors()
        respond = self._content.respond()
        return HttpServer(
            garbage.watching(handler),
            respond=None if respond is None else garbage.watching(respond),
            timeouts=self._config.timeouts,
            limits=self._limits(),
            routes=self._config.routes,
            ssl_context=context,
            observer=self._voice.access,
            recorded_fields=self._config.access_log_fields,
            parser=self._config.http,
            cancel_on_disconnect=self._config.cancel_on_disconnect,
            ws_compression=self._config.ws_compression,
            on_cut=garbage.note_cut,
            before_wait=self._content.before_wait,
            raw=self._config.tcp,
        )

    async def _serve_until_drained(self, server: HttpServer, places: list[Place]) -> Live:
        """Serve until a signal has drained the server, and close the content by the drain's deadline."""
        link = self._link
        drain = ProcessDrain(server, self._log, self._drain_time, self._begin_drain)
        closing = Closing(self._content, drain)
        watchdog = LoopWatchdog(self._notifier)
        async with open_group() as group:
            stopper = self._stopper_of(drain)
            live = self._live = Live(server, stopper)
            with stopper, self._stall_watch() as stalls:
                # a signal from before, which an event loop may keep until its main task waits, is raised here
                await checkpoint()
                self._starting.go_on()
                self._starting.has_served = True

                def started() -> None:
                    self._announce(server, stalls)
                    watchdog.begin()
                    if link is None:
                        self._accepts([url_of(self._config, one.socket) for one in listeners])
                    else:
                        link.report_ready()
                        group.start_soon(link.follow, self._orders(link, server, partial(stopper.end_now, drain.cut)))
                    # not only once it has sockets: a worker process whose supervisor stops is given none
                    self._starting.pass_on()

                listeners = listen(places)
                group.start_soon(self._content.attend)
                group.start_soon(closing.watch)
                await server.serve(listeners, task_status=SimpleNamespace(started=started))
                drain.end()
                await closing.close()
                if link is not None:
                    link.tell(self._last_reply(link))
            watchdog.end()
            group.cancel()
        return live

    def _drain_time(self) -> float:
        """Return the seconds of a drain that begins now."""
        return self._config.timeouts.drain

    def _stopper_of(self, drain: ProcessDrain) -> Stopper:
        # a worker process is ended by its supervisor, and one that is reloaded by its parent
        cut = drain.cut if self._link is None and not self._config.reload else None
        return Stopper(self._drain_time, drain.begin, cut, self._hangup, lambda: self._reload("SIGHUP"))

    def _orders(self, link: Link, server: HttpServer, end: Callable[[], object]) -> Orders:
        note_stop, take_over = partial(self._note_stop, server), partial(self._take_over, server)
        accepting = Accepting(server, partial(self._accepts, link.urls))
        return Orders(note_stop, end, self._reply, accepting.change, take_over)

    def _stall_watch(self) -> StallWatch:
        threshold, log = self._config.stall_log, self._voice.thread_log
        if self._link is None:
            return StallWatch(current_host(), threshold, log)
        return StallWatch(current_host(), threshold, log, self._link.block.note)

    def _announce(self, server: HttpServer, stalls: StallWatch) -> None:
        """Say to the admin listener and the service manager that this process serves."""
        if self._local is not None:
            self._local.begin(server, current_host().poller, stalls, self._content.proxied)
        self._notifier.ready("serving")

    def _drain_on_request(self, by: str) -> None:
        """Drain as at SIGTERM, if the process serves. The request does not count as a signal: the next signal is the
        first."""
        if self._live is not None:
            self._live.stopper.request(by)

    def _begin_drain(self, server: HttpServer, name: str, seconds: float | None) -> None:
        """Accept no more connections, and tell the log, the service manager, the supervisor and the admin listener.
        `name`: the signal's, or what has asked."""
        self._log("draining", signal=name, open=server.open_connections, background=server.background, seconds=seconds)
        self._notifier.stopping(f"{name}: draining, {server.open_connections} connections open")
        server.shutdown(reuse_grace(name, reloads=self._config.reload))
        if self._service_ends:
            server.shutdown()
        if self._link is not None:
            self._link.report_leaving()
        if self._local is not None:
            self._local.begin_drain()

    def _accepts(self, urls: Sequence[str]) -> None:
        """Say that connections are accepted: in a worker process once it has been given its sockets. Signals must be
        handled by now: a reader of the log may send one at once."""
        self._voice.greet(self._config, self._content.title, urls, for_all=is_first(self._link))

    def _reload(self, by: str) -> Reloaded:
        """Read the configuration again, in a process without a supervisor. With --reload the next process would have
        the configuration of the start again."""
        if self._config.reload:
            return not_reloaded("restarting", by, self._log)
        live = self._live
        if live is None or live.server.draining:
            return not_reloaded("starting" if live is None else "draining", by, self._log)
        self._notifier.reloading()
        found = self._configuration.reread(by, self._log)
        if found.status == "reloaded":
            self._apply(live.server)
        self._notifier.ready(f"serving; the latest reload was {found.status}" if found.problems else "serving")
        return found

    def _take_over(self, server: HttpServer, encoded: bytes) -> None:
        """Use the configuration that the supervisor has read again, `encoded` by `changing.encode`."""
        self._configuration.config = apply(self._config, encoded)
        self._apply(server)

    def _apply(self, server: HttpServer) -> None:
        config = self._config
        try:
            context = context_of(config)
        except StartupError as error:
            # the files have changed since they were checked
            self._log("certificate not reloaded", level="error", why=str(error))
            context = None
        server.configure(timeouts=config.timeouts, limits=self._limits(), routes=config.routes, ssl_context=context)
        self._content.configure(config)
        if self._local is not None:
            self._local.configured(config)

    def _note_stop(self, server: HttpServer) -> None:
        """Note that the whole service ends. A process that drains because it was to be replaced keeps idle connections
        for a shorter time from now on: the service waits for its end."""
        self._service_ends = True
        if server.draining:
            server.shutdown()

    async def _reply(self, question: bytes) -> bytes:
        """Answer the supervisor: b"", which says that the process is alive, if there is no admin listener."""
        if self._local is None or self._link is None:
            return b""
        return await self._local.reply(question, self._link.number)

    def _last_reply(self, link: Link) -> bytes:
        """Return the last counts of a worker process; b"" if there is no admin listener."""
        return b"" if self._local is None else self._local.last_reply(link.number)
