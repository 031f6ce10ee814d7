"""The command `deadlined serve`: listen, start the application, serve, drain."""

from __future__ import annotations

import os
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .. import __version__
from ..asgi import App, AsgiHandler, Lifespan, LifespanFailed
from ..http import Exchange, HttpServer, head_parser
from ..net import Listener
from ..runtime import current_host, current_time, open_group, require_loop, run
from ..timing import after_func
from . import expiry
from .access import AccessLog
from .administered import local_service, open_admin, overseer_for
from .certificates import server_context
from .config import ServeConfig
from .drain_report import DrainReport
from .entries import Layout
from .errors import FAILED, WRONG_ARGUMENTS, StartupError
from .garbage import GarbageWatch, tune_gc, watch_garbage
from .greeting import Facts, parser_in_use
from .hints import LoopHint, hinting
from .link import Link
from .listening import listen, url, with_chosen_ports
from .loading import load_app
from .logs import Log, open_log
from .output import guard_standard_streams, write_last_lines_to
from .page import LivePage
from .stalls import StallWatch
from .stopping import Stopper
from .style import harmless
from .tracebacks import cut, last_error, place, shown

if TYPE_CHECKING:
    from .admin.hosting import Admin

# seconds that the application's shutdown may take even if the drain has used up its time
_LEAST_GRACE = 1.0


def serve(config: ServeConfig) -> int:
    """Do what `deadlined.service.serve` does."""
    if config.factory and config.app is None:
        raise StartupError("--factory needs APP", WRONG_ARGUMENTS)
    out = guard_standard_streams()
    layout, unordered = open_log(config.log_format, config.log_level, out)
    admin: Admin | None = None
    link: Link | None = None
    if config.workers > 1:
        # most have one process, and need not load this
        from .workers import Supervisor, free_port

        config = with_chosen_ports(config, free_port)
        admin = open_admin(config.admin, config.admin_token_file, config, unordered)
        overseer = overseer_for(admin, unordered)
        role = Supervisor(config.workers, config.timeouts.drain, unordered, overseer).run()
        if isinstance(role, int):
            return role
        link = role
        layout, unordered = open_log(config.log_format, config.log_level, out, link.number)
    elif config.reload:
        from .reloading import Reloader

        reloaded = Reloader(config, unordered).run()
        if isinstance(reloaded, int):
            return reloaded
        config = reloaded
        layout, unordered = open_log(config.log_format, config.log_level, out)
    access = AccessLog(out, after_func, layout) if config.access_log else None
    log = _after(access, unordered)
    try:
        _serve(config, _Voice(layout, log, unordered, access, out), link, admin)
    except StartupError as error:
        # for those who collect the log; the command says it on stderr
        details = {"exception": error.details} if error.details else {}
        log("startup failed", level="error", why=str(error), exit_code=error.exit_code, **details)
        raise
    return 0


@dataclass(frozen=True)
class _Voice:
    """How a serving process speaks. `thread_log` may be called in other threads. `access` is None without an access
    log."""

    layout: Layout
    log: Log
    thread_log: Log
    access: AccessLog | None
    out: TextIO


def _serve(config: ServeConfig, voice: _Voice, link: Link | None, admin: Admin | None) -> None:
    """Serve in this process until a signal has drained it. A supervisor's `admin` is bound already."""
    page = LivePage()
    if config.app_dir is not None:
        _search(config.app_dir)
    app: App = page if config.app is None else load_app(config.app, factory=config.factory, directory=config.app_dir)
    context = _ssl_context(config)
    if config.certfile is not None and _is_first(link):
        warning = expiry.warning(config.certfile, datetime.now(UTC))
        if warning:
            voice.log(warning, level="warning", file=config.certfile)
    _require_parser(config.http)
    _require_loop(config.loop)
    if link is None:
        admin = open_admin(config.admin, config.admin_token_file, config, voice.log)
    os.environ["DEADLINED_QUEUE"] = config.queue
    os.environ["DEADLINED_PRECISE"] = "1" if config.precise else "0"
    _raise_file_limit()
    try:
        with hinting(config.loop, voice.log) as hint:
            run(config.loop, _Service(config, voice, link, hint, admin).run, app, page, context)
    except* StartupError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        # Ctrl-C before the Stopper had the signals, in whichever task it arrived
        raise KeyboardInterrupt from None


def _after(access: AccessLog | None, log: Log) -> Log:
    """Return `log`, made to write what the access log keeps first."""
    if access is None:
        return log
    flush = access.flush

    def ordered(event: str, **fields: object) -> None:
        flush()
        log(event, **fields)

    return ordered


def _is_first(link: Link | None) -> bool:
    """Return True in the process that speaks for all: the only one, or the first worker process."""
    return link is None or link.first


class _Service:
    """One serving process. `link` is None without a supervisor, `admin` without an admin listener."""

    def __init__(
        self, config: ServeConfig, voice: _Voice, link: Link | None, hint: LoopHint, admin: Admin | None
    ) -> None:
        self._config = config
        self._voice = voice
        self._log = voice.log
        self._link = link
        self._hint = hint
        self._admin = admin
        self._local = local_service(admin, voice.log)

    async def run(self, app: App, page: LivePage, context: ssl.SSLContext | None) -> None:
        """Listen, start the application, serve, drain, end the application."""
        with watch_garbage() as garbage:
            serve = partial(self._run, app, page, context, garbage)
            # of several processes, none serves the listener itself
            if self._admin is None or self._local is None or self._link is not None:
                await serve()
            else:
                await self._admin.beside(self._local, serve)

    async def _run(self, app: App, page: LivePage, context: ssl.SSLContext | None, garbage: GarbageWatch) -> None:
        listeners = await listen(self._config)
        lifespan = Lifespan(app)
        started = current_time()
        try:
            async with lifespan as state:
                if lifespan.error is not None:
                    self._hint.search(lifespan.error)
                tune_gc()
                handler = garbage.watching(self._handler(app, state))
                server = page.server = self._server(handler, context, garbage.note_cut)
                ended = await self._serve_until_drained(server, listeners)
                garbage.end()
                lifespan.grace = max(ended - current_time(), _LEAST_GRACE)
        except LifespanFailed as error:
            raise self._startup_failure(error) from None
        finally:
            write_last_lines_to(self._voice.out)
            if self._voice.access is not None:
                self._voice.access.flush()
            for listener in listeners:
                listener.close()
        statistics = server.statistics()
        self._log(
            "stopped",
            requests=statistics.requests,
            connections=statistics.accepted,
            reasons=dict(statistics.reasons),
            uptime=round(current_time() - started, 3),
        )

    def _startup_failure(self, error: LifespanFailed) -> StartupError:
        """Make the error of an application that has reported that it cannot start."""
        # frameworks send a whole traceback
        message = str(error).strip()
        why = harmless(last_error(message)) or "it does not say why"
        cause = error.__cause__
        details = shown(cause) if cause is not None else cut(message) if "\n" in message else ""
        frame = None if cause is None else place(cause)
        where = "" if frame is None else f" ({frame.filename}, line {frame.lineno})"
        needs = self._hint.search(error)
        instead = "" if needs is None else f"; {needs}"
        return StartupError(f"the application failed to start: {why}{instead}{where}", FAILED, details)

    def _handler(self, app: App, state: dict[str, Any]) -> AsgiHandler:
        trusted = None
        if self._config.trusted_proxies:
            from ..asgi.forwarded import TrustedProxies

            trusted = TrustedProxies(self._config.trusted_proxies)
        return AsgiHandler(
            app,
            state,
            root_path=self._config.root_path,
            trusted_proxies=trusted,
            trust_deadline_headers=self._config.trust_deadline_headers,
        )

    def _server(
        self,
        handler: Callable[[Exchange], Awaitable[object]],
        context: ssl.SSLContext | None,
        on_cut: Callable[[], object],
    ) -> HttpServer:
        return HttpServer(
            handler,
            timeouts=self._config.timeouts,
            limits=self._config.limits,
            routes=self._config.routes,
            ssl_context=context,
            observer=self._voice.access,
            parser=self._config.http,
            cancel_on_disconnect=self._config.cancel_on_disconnect,
            ws_compression=self._config.ws_compression,
            on_cut=on_cut,
        )

    async def _serve_until_drained(self, server: HttpServer, listeners: list[Listener]) -> float:
        """Serve until a signal has drained the server; return the drain's deadline."""
        drain = self._config.timeouts.drain
        link = self._link
        ends = current_time()
        report = DrainReport(server, self._log)

        def begin(name: str) -> None:
            nonlocal ends
            ends = current_time() + drain
            now = server.statistics()
            seconds = None if drain == float("inf") else drain
            self._log("draining", signal=name, open=now.open, background=now.background, seconds=seconds)
            report.begin(ends)
            server.shutdown()
            if self._local is not None:
                self._local.begin_drain()

        def end() -> None:
            nonlocal ends
            ends = current_time()
            server.cut()

        async with open_group() as group:
            # a worker process is ended by its supervisor, and one that is reloaded by its parent
            alone = link is None and not self._config.reload
            stopper = Stopper(drain, begin, end if alone else None)
            with stopper, StallWatch(current_host(), self._config.stall_log, self._voice.thread_log) as stalls:
                # logged once signals are handled: a reader of the line may send one at once
                self._greet([url(self._config, listener) for listener in listeners])
                if self._local is not None:
                    self._local.begin(server, current_host().poller, stalls)
                if link is not None:
                    link.report_ready()
                    group.start_soon(link.follow, end, self._reply)
                await server.serve(listeners)
                if link is not None:
                    link.tell(self._reply(b""))
            report.end()
            group.cancel()
        return ends

    def _greet(self, urls: list[str]) -> None:
        """Say where this process listens, and for all processes once what they serve."""
        config = self._config
        facts = Facts(
            app=config.app,
            urls=urls,
            loop=config.loop,
            http=config.http,
            workers=config.workers,
            timeouts=config.timeouts,
        )
        screen = self._voice.layout.greeting(facts) if _is_first(self._link) else ""
        if screen:
            self._voice.out.write(screen)
            return
        http = parser_in_use(config.http)
        for each in urls:
            self._log("listening", url=each, loop=config.loop, http=http, version=__version__, pid=os.getpid())

    def _reply(self, question: bytes) -> bytes:
        """Answer the supervisor, or tell it the last counts if `question` is empty. b"" if nobody wants to know."""
        if self._local is None or self._link is None:
            return b""
        return self._local.reply(question, self._link.number)


def _search(directory: str) -> None:
    """Let imports search `directory` first, then the current one. StartupError if it is not there."""
    path = Path(directory).absolute()
    if not path.is_dir():
        raise StartupError(f"--app-dir {directory}: there is no such directory", WRONG_ARGUMENTS)
    here = str(Path.cwd())
    sys.path[:0] = [str(path), *([] if here in sys.path else [here])]


def _require_parser(name: str) -> None:
    try:
        head_parser(name)
    except ImportError:
        hint = "pip install 'deadlined[fast]', or choose --http h11"
        raise StartupError(f"--http {name}: {name} is not installed; {hint}", WRONG_ARGUMENTS) from None


def _require_loop(name: str) -> None:
    try:
        require_loop(name)
    except ImportError:
        hint = "pip install 'deadlined[fast]', or choose --loop asyncio"
        raise StartupError(f"--loop {name}: {name} is not installed; {hint}", WRONG_ARGUMENTS) from None


def _ssl_context(config: ServeConfig) -> ssl.SSLContext | None:
    return server_context(
        config.certfile,
        config.keyfile,
        key_password_file=config.key_password_file,
        client_ca=config.client_ca,
        ciphers=config.ciphers,
        tls_min=config.tls_min,
    )


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one, as Go does: each connection is a file, and 1,024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _first(group: BaseExceptionGroup[StartupError]) -> StartupError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
