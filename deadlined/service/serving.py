"""The command `deadlined serve`: listen, start the application, serve, drain."""

from __future__ import annotations

import os
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

from ..asgi import App, AsgiHandler, Lifespan, LifespanFailed
from ..http import Exchange, HttpServer, head_parser
from ..net import Listener
from ..runtime import current_host, current_time, open_group, require_loop, run
from ..timing import after_func
from .access import AccessLog
from .certificates import server_context
from .config import ServeConfig
from .errors import FAILED, WRONG_ARGUMENTS, StartupError
from .garbage import GarbageWatch, tune_gc, watch_garbage
from .hints import LoopHint, hinting
from .link import Link
from .listening import listen, url, with_chosen_ports
from .loading import load_app
from .logs import Log, configure
from .output import guard_standard_streams, write_last_lines_to
from .page import LivePage
from .stalls import StallWatch
from .stopping import Stopper

# seconds that the application's shutdown may take even if the drain has used up its time
_LEAST_GRACE = 1.0


def serve(config: ServeConfig) -> int:
    """Do what `deadlined.service.serve` does."""
    if config.factory and config.app is None:
        raise StartupError("--factory needs APP", WRONG_ARGUMENTS)
    out = guard_standard_streams()
    access = AccessLog(out, after_func) if config.access_log else None
    unordered = configure(config.log_level, out)
    log = _after(access, unordered)
    link: Link | None = None
    if config.workers > 1:
        # most have one process, and need not load this
        from .workers import Supervisor, free_port

        config = with_chosen_ports(config, free_port)
        role = Supervisor(config.workers, config.timeouts.drain, log).run()
        if isinstance(role, int):
            return role
        link = role
    elif config.reload:
        from .reloading import Reloader

        reloaded = Reloader(config, log).run()
        if isinstance(reloaded, int):
            return reloaded
        config = reloaded
    page = LivePage()
    if config.app_dir is not None:
        _search(config.app_dir)
    app: App = page if config.app is None else load_app(config.app, factory=config.factory)
    context = _ssl_context(config)
    _require_parser(config.http)
    _require_loop(config.loop)
    os.environ["DEADLINED_QUEUE"] = config.queue
    os.environ["DEADLINED_PRECISE"] = "1" if config.precise else "0"
    _raise_file_limit()
    try:
        with hinting(config.loop, log) as hint:
            run(config.loop, _Service(config, log, unordered, access, link, out, hint).run, app, page, context)
    except* StartupError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        # Ctrl-C before the Stopper had the signals, in whichever task it arrived
        raise KeyboardInterrupt from None
    return 0


def _after(access: AccessLog | None, log: Log) -> Log:
    """Return `log`, made to write what the access log keeps first."""
    if access is None:
        return log
    flush = access.flush

    def ordered(event: str, **fields: object) -> None:
        flush()
        log(event, **fields)

    return ordered


class _Service:
    """One serving process. `thread_log` may be called in other threads. `access` is None without an access log, `link`
    without a supervisor."""

    def __init__(
        self,
        config: ServeConfig,
        log: Log,
        thread_log: Log,
        access: AccessLog | None,
        link: Link | None,
        out: TextIO,
        hint: LoopHint,
    ) -> None:
        self._config = config
        self._log = log
        self._thread_log = thread_log
        self._access = access
        self._link = link
        self._out = out
        self._hint = hint

    async def run(self, app: App, page: LivePage, context: ssl.SSLContext | None) -> None:
        """Listen, start the application, serve, drain, end the application."""
        with watch_garbage() as garbage:
            await self._run(app, page, context, garbage)

    async def _run(self, app: App, page: LivePage, context: ssl.SSLContext | None, garbage: GarbageWatch) -> None:
        listeners = await listen(self._config)
        lifespan = Lifespan(app)
        try:
            async with lifespan as state:
                if lifespan.error is not None:
                    self._hint.search(lifespan.error)
                tune_gc()
                handler = garbage.watching(self._handler(app, state))
                server = page.server = self._server(handler, context)
                ended = await self._serve_until_drained(server, listeners)
                lifespan.grace = max(ended - current_time(), _LEAST_GRACE)
        except LifespanFailed as error:
            # frameworks send a whole traceback, whose last line says what is wrong
            *details, why = str(error).strip().splitlines()
            if details:
                self._log("startup failed", message=str(error))
            needs = self._hint.search(error)
            instead = "" if needs is None else f"; {needs}"
            raise StartupError(f"the application failed to start: {why}{instead}", FAILED) from None
        finally:
            write_last_lines_to(self._out)
            if self._access is not None:
                self._access.flush()
            for listener in listeners:
                listener.close()
        statistics = server.statistics()
        self._log("stopped", requests=statistics.requests, reasons=dict(statistics.reasons))

    def _handler(self, app: App, state: dict[str, Any]) -> AsgiHandler:
        trusted = None
        if self._config.trusted_proxies:
            from ..asgi.forwarded import TrustedProxies

            trusted = TrustedProxies(self._config.trusted_proxies)
        return AsgiHandler(app, state, root_path=self._config.root_path, trusted_proxies=trusted)

    def _server(self, handler: Callable[[Exchange], Awaitable[object]], context: ssl.SSLContext | None) -> HttpServer:
        return HttpServer(
            handler,
            timeouts=self._config.timeouts,
            limits=self._config.limits,
            routes=self._config.routes,
            ssl_context=context,
            observer=self._access,
            parser=self._config.http,
            cancel_on_disconnect=self._config.cancel_on_disconnect,
        )

    async def _serve_until_drained(self, server: HttpServer, listeners: list[Listener]) -> float:
        """Serve until a signal has drained the server; return the drain's deadline."""
        drain = self._config.timeouts.drain
        link = self._link
        ends = current_time()

        def begin(name: str) -> None:
            nonlocal ends
            ends = current_time() + drain
            now = server.statistics()
            seconds = None if drain == float("inf") else drain
            self._log("draining", signal=name, open=now.open, background=now.background, seconds=seconds)
            server.shutdown()

        def end() -> None:
            nonlocal ends
            ends = current_time()
            server.cut()

        async with open_group() as group:
            # a worker process is ended by its supervisor, and one that is reloaded by its parent
            alone = link is None and not self._config.reload
            stopper = Stopper(drain, begin, end if alone else None)
            with stopper, StallWatch(current_host(), self._config.stall_log, self._thread_log):
                # logged once signals are handled: a reader of the line may send one at once
                for listener in listeners:
                    self._log("listening", url=url(self._config, listener), loop=self._config.loop, pid=os.getpid())
                if link is not None:
                    link.report_ready()
                    group.start_soon(link.follow, end)
                await server.serve(listeners)
            group.cancel()
        return ends


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
