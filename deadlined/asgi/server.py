"""An ASGI application that is served in a program's own event loop.

Facts      A program ends what runs in it by a cancellation. Trio cancels all tasks below a scope, and each of their
           waits; asyncio one task, once.
Hazard     A cancellation that reaches the requests cuts them. One that reaches the application's lifespan ends what the
           requests still need.
Answer     The server has a task of its own. From the end of the startup on no cancellation reaches it: the first one
           begins the drain, the next one ends it. The lifespan is shut down after the drain, also if a request goes on
           that nothing ends, as one that waits for a thread.
Cost       Two tasks per server, and three groups.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Unpack

from ..http import REUSE_GRACE, HttpServer
from ..http.transport import server_address_of
from ..net import Listener
from ..net.inheritance import closed_in_children
from ..runtime import Event, Group, current_time, open_group, protected_from_interrupts
from .handler import App, AsgiHandler
from .lifespan import LEAST_GRACE, Lifespan, LifespanFailed
from .options import ServerOptions, SortedOptions

# seconds after the drain's deadline for requests to clean up, with all that the application has
OVERDUE: Final = 1.0


class AsgiServer:
    """`async with AsgiServer(app, port=0) as server`: serve `app` beside the block, in the running event loop.

    The options are those of `ServerOptions`. The block begins when the application has started (`lifespan.startup`) and
    connections are accepted; clients that connect earlier wait. Raises LifespanFailed if the application reports that
    it cannot start, OSError if the address cannot be used, TypeError and ValueError for wrong options.

    The end of the block drains, also if an error or a cancellation has ended it: requests that have begun are served,
    for `timeouts.drain` seconds at most, which must not be `inf`; idle connections are closed; then the application
    shuts down (`lifespan.shutdown`), in what is left of that time, or a second if that is more. A cancellation that
    comes meanwhile ends the drain at once; on trio, where a scope cancels once, only Ctrl-C can. It is raised again at
    the end. A request that ignores its own cancellation at the end of the drain holds the block up, but the shutdown of
    the application for a second only.

    An error of the block passes unchanged. If the server fails, the block is cancelled, and an ExceptionGroup raised.
    Signals, the standard streams, the configuration of logging and the garbage collector are left alone. Several
    servers may run in one event loop. One object serves once.
    """

    def __init__(self, app: App, **options: Unpack[ServerOptions]) -> None:
        if not callable(app):
            raise TypeError(f"an AsgiServer needs an ASGI application, not {app!r}: import it, and give the object")
        self._app = app
        self._options = SortedOptions(dict(options))
        self._lifespan = Lifespan(app, mode=self._options.lifespan, started=self._shield)
        self._http: HttpServer | None = None
        self._group: Group | None = None
        # around all that serves
        self._scope: Group | None = None
        self._addresses: tuple[tuple[str, int | None], ...] = ()
        self._failure: LifespanFailed | None = None
        # the application has started: no cancellation reaches the server any more
        self._shielded = False
        # connections are accepted, or will never be
        self._begun = Event()
        self._ended = Event()
        # when the application must have shut down, absolute
        self._ends = math.inf
        # no request runs any more
        self._served = False
        # set when `_ends` or `_served` has changed
        self._changed = Event()

    @property
    def http(self) -> HttpServer:
        """The HTTP server: its statistics, its connections, and `configure`. RuntimeError before the block."""
        if self._http is None:
            raise RuntimeError("the server has not begun: enter it by `async with`")
        return self._http

    @property
    def addresses(self) -> Sequence[tuple[str, int | None]]:
        """Where it listens: host and port, or path and None of a unix socket. Empty before the block."""
        return self._addresses

    @property
    def port(self) -> int:
        """The first TCP port on which it listens. RuntimeError if there is none."""
        for _, port in self._addresses:
            if port is not None:
                return port
        raise RuntimeError("the server listens on no TCP port" if self._addresses else "the server has not begun")

    def shutdown(self, reuse_grace: float = REUSE_GRACE) -> None:
        """Begin the drain, without waiting for its end; `wait_closed` does. `reuse_grace` is how long idle connections
        are kept, as in `HttpServer.shutdown`. Another call can only make that shorter. RuntimeError before the block,
        and outside of the event loop: a thread, or a handler of `signal.signal`, must have the loop call it.
        """
        http = self.http
        if not http.draining:
            self._ends = current_time() + http.timeouts.drain
        http.shutdown(reuse_grace)
        self._changed.set()

    async def wait_closed(self) -> None:
        """Wait until the drain has ended and the application has shut down. A checkpoint."""
        await self._ended.wait()

    # Ctrl-C comes where these wait: it must not leave the group open
    @protected_from_interrupts
    async def __aenter__(self) -> AsgiServer:
        if self._group is not None:
            raise RuntimeError("an AsgiServer serves once: make another one")
        self._group = open_group()
        self._http = self._made()
        listeners = await self._options.listen()
        self._addresses = tuple(filter(None, (server_address_of(each.socket.getsockname) for each in listeners)))
        await self._group.__aenter__()
        self._group.start_soon(self._run, listeners, self._http)
        try:
            await self._begun.wait()
        except BaseException as error:
            # `__aexit__` will not be called
            await self._leave(error)
            raise
        if self._failure is not None:
            await self._leave(None)
            raise self._failure
        return self

    @protected_from_interrupts
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)

    def _made(self) -> HttpServer:
        """Make the HTTP server. TypeError and ValueError for wrong options."""
        handler = AsgiHandler(self._app, self._lifespan.state, **self._options.handler)
        http = HttpServer(handler, before_wait=handler.before_wait, **self._options.http)
        if http.timeouts.drain == math.inf:
            raise ValueError(
                "timeouts.drain is inf: the end of the server waits for it, so give it a number of seconds"
            )
        return http

    @protected_from_interrupts
    async def _run(self, listeners: Sequence[Listener], http: HttpServer) -> None:
        """Serve from the startup to the shutdown, in a task of its own."""
        with ExitStack() as stack:
            stack.callback(self._ended.set)
            stack.callback(self._begun.set)
            for listener in listeners:
                stack.callback(listener.close)
            stack.enter_context(closed_in_children(lambda: [listener.socket for listener in listeners]))
            async with open_group() as self._scope:
                try:
                    async with self._lifespan:
                        # it may have no lifespan
                        self._shield()
                        await self._serve(listeners, http)
                except LifespanFailed as error:
                    self._failure = error

    def _shield(self) -> None:
        """Let no cancellation reach the server any more, nor the application."""
        assert self._scope is not None
        self._scope.shield()
        self._shielded = True

    async def _serve(self, listeners: Sequence[Listener], http: HttpServer) -> None:
        async with open_group() as group:
            group.start_soon(self._shut_down)
            await http.serve(listeners, task_status=SimpleNamespace(started=self._begun.set))
            # `shutdown` of the HTTP server itself has set no end
            self._ends = min(self._ends, current_time() + http.timeouts.drain)
            self._served = True
            self._changed.set()

    @protected_from_interrupts
    async def _shut_down(self) -> None:
        """Shut the application down when no request runs, or OVERDUE seconds after the drain's deadline."""
        while not self._served and current_time() < self._ends + OVERDUE:
            self._changed = Event()
            await self._changed.wait_until(self._ends + OVERDUE)
        await self._lifespan.shut_down(lambda: self._ends, LEAST_GRACE)

    async def _leave(self, cause: BaseException | None) -> None:
        """End the server and leave the group. `cause` has ended the block. Raise what has interrupted this."""
        assert self._group is not None
        if not self._shielded:
            self._group.cancel()
        # after a startup, too, that has come to its end in spite of the cancellation
        self.shutdown(reuse_grace=0.0)
        interruption = await self._wait_ended(cause)
        # without the error of the block, which would come back in a group
        await self._group.__aexit__(None, None, None)
        if interruption is not None:
            raise interruption

    async def _wait_ended(self, cause: BaseException | None) -> BaseException | None:
        """Wait until the server has ended, through all cancellations, of which each one hurries it. Return the last
        one, None if there was none. `cause` is no reason to hurry if it comes again by itself."""
        last = None
        async with open_group() as waiting:
            waiting.shield()
            while not self._ended.is_set():
                try:
                    await self._ended.wait()
                except GeneratorExit:
                    # the event loop is gone
                    raise
                except BaseException as error:
                    if not _repeats(error, last or cause):
                        self._hurry()
                    last = error
        return last

    def _hurry(self) -> None:
        """End the drain and the application's shutdown now, or the startup."""
        assert self._group is not None
        if self._shielded:
            self._ends = min(self._ends, current_time())
            self.http.cut()
            self._changed.set()
        else:
            self._group.cancel()


async def serve(
    app: App,
    *,
    shutdown: Callable[[], Awaitable[object]] | None = None,
    task_status: Any = None,
    **options: Unpack[ServerOptions],
) -> None:
    """Serve `app` in the running event loop until this is cancelled, or until `await shutdown()` returns; then drain.

    `shutdown` is a function, for example the `wait` of an event. `task_status.started` receives the `AsgiServer` once
    connections are accepted: trio and anyio pass it when this is started with `start`. Everything else is as in `async
    with AsgiServer(app, **options)`: the options (`ServerOptions`), the lifespan, the errors and the drain. Returns,
    too, when `AsgiServer.shutdown` has ended the server.
    """
    if shutdown is not None and not callable(shutdown):
        raise TypeError(f"shutdown must be a function to await, as event.wait is, not {type(shutdown).__name__}")
    async with AsgiServer(app, **options) as server:
        if task_status is not None:
            task_status.started(server)
        if shutdown is None:
            await server.wait_closed()
            return
        async with open_group() as group:
            group.start_soon(_shut_down_after, shutdown, server)
            await server.wait_closed()
            group.cancel()


async def _shut_down_after(shutdown: Callable[[], Awaitable[object]], server: AsgiServer) -> None:
    await shutdown()
    server.shutdown()


def _repeats(error: BaseException, before: BaseException | None) -> bool:
    """Return True for a cancellation that comes again by itself: a scope of anyio cancels a task of asyncio in each
    step of the loop, with a text that names the scope."""
    return before is not None and type(error) is type(before) and bool(error.args) and error.args == before.args
