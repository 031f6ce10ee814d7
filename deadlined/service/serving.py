"""`deadlined serve`: bind, start the application, serve, drain."""

from __future__ import annotations

import errno
import os
import resource
import ssl
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from ..asgi import App, AsgiHandler, Lifespan, LifespanFailed
from ..http import HttpServer, Limits, Timeouts, head_parser
from ..net import Listener, open_tcp_listeners, open_unix_listener
from ..timing import after_func
from .access import AccessLog
from .collector import tune_gc
from .errors import CANNOT_BIND, FAILED, WRONG_ARGUMENTS, StartupError
from .link import Link
from .loading import load_app
from .logs import Log, configure
from .page import LivePage
from .stopping import Stopper
from .workers import Supervisor, free_port

# seconds that an application's lifespan may take to end even if the drain has used up its time
_LEAST_GRACE = 1.0


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What `deadlined serve` was told."""

    app: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    log_level: str = "info"
    access_log: bool = True
    http: str = "auto"
    queue: str = "heap4"
    precise: bool = False
    workers: int = 1
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)


def serve(config: ServeConfig) -> int:
    """Serve until a signal, then drain; return the exit code. StartupError if it cannot start.

    With several workers this forks, and returns in each of them.
    """
    log = configure(config.log_level)
    link: Link | None = None
    if config.workers > 1:
        config = _with_a_free_port(config)
        role = Supervisor(config.workers, config.timeouts.drain, log).run()
        if isinstance(role, int):
            return role
        link = role
    page = LivePage()
    app: App = page if config.app is None else load_app(config.app)
    context = _ssl_context(config)
    _require_parser(config.http)
    os.environ["DEADLINED_QUEUE"] = config.queue
    os.environ["DEADLINED_PRECISE"] = "1" if config.precise else "0"
    _raise_file_limit()
    try:
        trio.run(_serve, config, app, page, context, log, link)
    except* StartupError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        # Ctrl-C before the signals were ours, in whichever task it fell
        raise KeyboardInterrupt from None
    return 0


def _with_a_free_port(config: ServeConfig) -> ServeConfig:
    """What workers can share. They would share it with strangers, too, so that it is tried alone first."""
    if config.uds is not None:
        raise StartupError("--workers: processes can share a port, but not the unix socket of --uds", WRONG_ARGUMENTS)

    try:
        return replace(config, port=free_port(config.host, config.port))
    except OSError as error:
        raise _cannot_listen(config, error) from None


async def _serve(
    config: ServeConfig, app: App, page: LivePage, context: ssl.SSLContext | None, say: Log, link: Link | None
) -> None:
    access = AccessLog(sys.stdout, after_func) if config.access_log else None

    def log(event: str, **fields: object) -> None:
        if access is not None:
            access.flush()
        say(event, **fields)

    listeners = await _listen(config)
    lifespan = Lifespan(app)
    try:
        async with lifespan as state:
            server = page.server = HttpServer(
                AsgiHandler(app, state),
                timeouts=config.timeouts,
                limits=config.limits,
                ssl_context=context,
                observer=access,
                parser=config.http,
            )
            tune_gc()
            ended = await _serve_until_drained(server, listeners, config, log, link)
            lifespan.grace = max(ended - trio.current_time(), _LEAST_GRACE)
    except LifespanFailed as error:
        # frameworks give a whole traceback, which ends with what is wrong
        *details, why = str(error).strip().splitlines()
        if details:
            log("startup failed", message=str(error))
        raise StartupError(f"the application failed to start: {why}", FAILED) from None
    finally:
        if access is not None:
            access.flush()
        with trio.CancelScope(shield=True):
            for listener in listeners:
                await listener.aclose()
    log("stopped", requests=server.statistics().requests, reasons=dict(server.statistics().reasons))


async def _serve_until_drained(
    server: HttpServer, listeners: list[Listener], config: ServeConfig, log: Log, link: Link | None
) -> float:
    """Serve until a signal has drained the server; return the drain's deadline."""
    drain = config.timeouts.drain
    ends = trio.current_time()

    def begin(name: str) -> None:
        nonlocal ends
        ends = trio.current_time() + drain
        now = server.statistics()
        seconds = None if drain == float("inf") else drain
        log("draining", signal=name, open=now.open, background=now.background, seconds=seconds)
        server.shutdown()

    def end() -> None:
        nonlocal ends
        ends = trio.current_time()
        everything.cancel()

    async with trio.open_nursery() as nursery:
        everything = nursery.cancel_scope
        # a worker is ended by its supervisor
        with Stopper(drain, begin, end if link is None else None):
            # said only now: who reads it may send a signal at once
            for listener in listeners:
                log("listening", url=_url(config, listener), pid=os.getpid())
            if link is not None:
                link.tell_ready()
                nursery.start_soon(link.follow, end)
            await server.serve(listeners)
        everything.cancel()
    return ends


async def _listen(config: ServeConfig) -> list[Listener]:
    try:
        if config.uds is not None:
            return [await open_unix_listener(config.uds)]
        return await open_tcp_listeners(config.port, host=config.host or None, reuse_port=config.workers > 1)
    except OSError as error:
        raise _cannot_listen(config, error) from None


def _cannot_listen(config: ServeConfig, error: OSError) -> StartupError:
    where = config.uds or f"{config.host}:{config.port}"
    option = "--port" if config.uds is None else "--uds"
    hint = f"; another process has it, choose another {option}" if error.errno == errno.EADDRINUSE else ""
    return StartupError(f"cannot listen on {where}: {error.strerror or error}{hint}", CANNOT_BIND)


def _require_parser(name: str) -> None:
    try:
        head_parser(name)
    except ImportError:
        hint = "pip install 'deadlined[fast]', or choose --http h11"
        raise StartupError(f"--http {name}: {name} is not installed; {hint}", WRONG_ARGUMENTS) from None


def _ssl_context(config: ServeConfig) -> ssl.SSLContext | None:
    if config.certfile is None:
        if config.keyfile is not None:
            raise StartupError("--keyfile needs --certfile", WRONG_ARGUMENTS)
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(config.certfile, config.keyfile)
    except OSError as error:
        files = " and ".join(str(Path(name)) for name in (config.certfile, config.keyfile) if name)
        raise StartupError(f"cannot use the certificate in {files}: {error}", WRONG_ARGUMENTS) from None
    return context


def _url(config: ServeConfig, listener: Listener) -> str:
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = listener.socket.getsockname()[:2]
    scheme = "http" if config.certfile is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _raise_file_limit() -> None:
    """A connection is a descriptor, and the usual soft limit is 1024: take what the machine allows, as Go does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _first(group: BaseExceptionGroup[StartupError]) -> StartupError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
