"""An HTTP server on any event loop, in the test's own run, and its clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from deadlined import Conn, Listener, open_tcp_listeners, open_unix_listener, open_unix_stream
from deadlined.http import ConnectionRecord, Exchange, HttpServer, Limits, Reason, RequestRecord, Route, Timeouts
from deadlined.http.settings import Respond
from tests.support.conformance import Loop, Running, Tasks
from tests.support.http import OFF, Client, dialed
from tests.support.net import LOCALHOST
from tests.support.parsers import Choice

Handler = Callable[[Exchange], Awaitable[object]]


class Site:
    """A server that runs, and what it has told its observer."""

    def __init__(self, loop: Loop, port: int, path: Path | None) -> None:
        self.loop = loop
        self.port = port
        self._path = path
        self.requests: list[RequestRecord] = []
        self.connections: list[ConnectionRecord] = []
        self.server: HttpServer
        # the task of `HttpServer.serve`
        self.serving: Running
        self._conns: list[Conn] = []

    def request(self, record: RequestRecord) -> None:
        self.requests.append(record)

    def connection(self, record: ConnectionRecord) -> None:
        self.connections.append(record)

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        """Return a new client, which is closed with the site."""
        conn = await (open_unix_stream(self._path) if self._path else dialed(self.port, receive_buffer))
        self._conns.append(conn)
        return Client(conn)

    async def reason(self, number: int = 1) -> Reason:
        """Wait for the end of the `number`th connection, and return why it ended."""
        await self.until(lambda: len(self.connections) >= number)
        return self.connections[number - 1].reason

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds."""
        for _ in range(1000):
            if condition():
                return
            await self.loop.sleep(0.1 if self.loop.is_virtual else 1)
        raise AssertionError("it did not happen")

    def hang_up(self) -> None:
        for conn in self._conns:
            conn.close()


@asynccontextmanager
async def site_of(
    loop: Loop,
    handle: Handler,
    /,
    limits: Limits | None = None,
    send_buffer: int | None = None,
    *,
    respond: Respond | None = None,
    raw: bool = False,
    ssl_context: ssl.SSLContext | None = None,
    routes: Sequence[Route] = (),
    cancel_on_disconnect: bool = True,
    before_wait: Callable[[Exchange], object] | None = None,
    path: Path | None = None,
    **timeouts: float,
) -> AsyncIterator[tuple[Site, Tasks]]:
    """Serve `handle` until the block ends. All timeouts are off but those given, in the seconds of a test.

    `respond`: who is asked before `handle`. `send_buffer`: bytes that the kernel takes for a client that does not
    read, about. `path`: where a unix socket is served, in place of a port. The others as for `HttpServer`.
    """
    scaled = {name: value if name.endswith("_rate") else loop.seconds(value) for name, value in timeouts.items()}
    listener = await _listener(path)
    if send_buffer is not None:
        # the accepted sockets inherit it
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    site = Site(loop, 0 if path else listener.socket.getsockname()[1], path)
    settings: dict[str, Any] = {**OFF, **scaled}
    site.server = HttpServer(
        handle,
        timeouts=Timeouts(**settings),
        limits=limits,
        ssl_context=ssl_context,
        observer=site,
        parser=Choice.name,
        raw=raw,
        respond=respond,
        routes=routes,
        cancel_on_disconnect=cancel_on_disconnect,
        before_wait=before_wait,
    )
    async with loop.tasks() as tasks:
        site.serving = tasks.start(site.server.serve, [listener])
        await loop.settle()
        try:
            yield site, tasks
        finally:
            site.hang_up()
            site.serving.cancel()
            await site.serving.wait()


async def _listener(path: Path | None) -> Listener:
    if path is not None:
        return await open_unix_listener(path)
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    return listener


def cancel_workers(loop: Loop) -> int:
    """Cancel all tasks that serve connections, as a program does that cancels all tasks. Return their number."""
    if loop.is_trio:
        root = trio.lowlevel.current_root_task()
        assert root is not None
        workers = [task for task in _with_children(root) if task.name.endswith("run_hooked")]
        for worker in workers:
            assert worker.parent_nursery is not None
            worker.parent_nursery.cancel_scope.cancel()
        return len(workers)
    running = [task for task in asyncio.all_tasks() if "_run" in repr(task.get_coro())]
    for task in running:
        task.cancel()
    return len(running)


def cancel_own_task(loop: Loop) -> None:
    """Cancel the calling task, and on trio the nursery that it runs in."""
    task: Any = trio.lowlevel.current_task() if loop.is_trio else asyncio.current_task()
    (task.parent_nursery.cancel_scope if loop.is_trio else task).cancel()


def _with_children(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task, *(found for child in children for found in _with_children(child))]
