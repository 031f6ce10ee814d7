"""An ASGI application as what a service serves: its import, its lifespan, and a hint if it needs another event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from ...asgi import App, AsgiHandler, Lifespan, LifespanFailed
from ...asgi.lifespan import LEAST_GRACE
from ...http import Exchange, HttpServer
from ...http.settings import Handler
from ...runtime import protected_from_interrupts
from ..config import ServeConfig
from ..errors import FAILED, WRONG_ARGUMENTS, StartupError
from ..log.logs import Log
from ..log.style import harmless
from ..log.tracebacks import cut, last_error, place, shown
from .content import Content, trusted_proxies
from .hints import LoopHint, hinting
from .loading import absolute, load_app
from .page import LivePage


class Application(Content):
    """The application of a configuration, or the live page if it names none. StartupError if it cannot be imported.
    `started`, if given, is called when it has started, and must be told to shut down."""

    # from `__aenter__` on
    _handler: AsgiHandler

    def __init__(self, config: ServeConfig, log: Log, started: Callable[[], object] | None = None) -> None:
        self._config = config
        self._log = log
        self._page = LivePage()
        self._ending = ExitStack()
        self.title: str = "the live page of its own connections" if config.app is None else config.app
        self._app = _load(config) or self._page
        self._lifespan = Lifespan(self._app, mode=config.lifespan, started=started)

    # Ctrl-C must not come between the start of the application and the block that ends it
    @protected_from_interrupts
    async def __aenter__(self) -> Handler:
        with ExitStack() as stack:
            hint = stack.enter_context(hinting(self._config.loop, self._log))
            try:
                state = await self._lifespan.__aenter__()
            except LifespanFailed as error:
                raise _startup_failure(error, hint) from None
            if self._lifespan.error is not None:
                hint.search(self._lifespan.error)
            self._ending = stack.pop_all()
        self._handler = AsgiHandler(
            self._app,
            state,
            root_path=self._config.root_path,
            trusted_proxies=trusted_proxies(self._config),
            trust_deadline_headers=self._config.trust_deadline_headers,
            pathsend=self._config.pathsend,
        )
        return self._handler

    @protected_from_interrupts
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        with self._ending:
            return await self._lifespan.__aexit__(kind, error, traceback)

    def before_wait(self, exchange: Exchange) -> None:
        """Apply the deadline headers of the request, if they are trusted."""
        self._handler.before_wait(exchange)

    def served_by(self, server: HttpServer) -> None:
        """Let the live page show the connections of `server`."""
        self._page.server = server

    async def close(self, deadline: Callable[[], float]) -> None:
        """End the application's lifespan."""
        await self._lifespan.shut_down(deadline, LEAST_GRACE)


def _load(config: ServeConfig) -> App | None:
    if config.app_dir is not None:
        _search(config.app_dir)
    if config.app is None:
        return None
    app: App = load_app(config.app, factory=config.factory, directory=config.app_dir)
    return app


def _search(directory: str) -> None:
    """Let imports search `directory` first, then the current one. StartupError if it is not there."""
    path = absolute(directory)
    if not path.is_dir():
        raise StartupError(f"--app-dir {directory}: there is no such directory", WRONG_ARGUMENTS)
    # it may have been removed
    with suppress(OSError):
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
    sys.path.insert(0, str(path))


def _startup_failure(error: LifespanFailed, hint: LoopHint) -> StartupError:
    """Make the error of an application that has reported that it cannot start."""
    # frameworks send a whole traceback
    message = str(error).strip()
    why = harmless(last_error(message)) or "it does not say why"
    cause = error.__cause__
    details = shown(cause) if cause is not None else cut(message) if "\n" in message else ""
    frame = None if cause is None else place(cause)
    where = "" if frame is None else f" ({frame.filename}, line {frame.lineno})"
    needs = hint.search(error)
    instead = "" if needs is None else f"; {needs}"
    return StartupError(f"the application failed to start: {why}{instead}{where}", FAILED, details)
