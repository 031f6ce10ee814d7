"""An application that a test serves in its own event loop, and a client of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from deadlined import (
    Conn,
    open_tcp_stream,
)
from deadlined.asgi import AsgiServer, serve
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.runtime import Event
from tests.support.conformance import Tasks
from tests.support.net import LOCALHOST

GET = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


class App:
    """An application that notes what happens to it. A request waits for `release`, if `holds` is set."""

    def __init__(self, holds: bool = False) -> None:
        self.events: list[str] = []
        self.holds = holds
        self.came = Event()
        self.release = Event()
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
            return
        self.scope = scope
        self.came.set()
        if self.holds:
            await self.release.wait()
        await say(send, b"hello")
        self.events.append("response")

    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        for kind in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{kind}"
            self.events.append(kind)
            scope["state"]["shop"] = "open"
            await send({"type": f"lifespan.{kind}.complete"})


async def say(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Status:
    """A `task_status`: the server that was started."""

    def __init__(self) -> None:
        self._started = Event()
        self._server: AsgiServer | None = None

    def started(self, server: AsgiServer) -> None:
        self._server = server
        self._started.set()

    async def server(self) -> AsgiServer:
        await self._started.wait()
        assert self._server is not None
        return self._server


def begin(tasks: Tasks, app: Any, **options: Any) -> tuple[Any, Status]:
    """Serve in a task of its own: the task, and where the server will be found."""
    status = Status()
    return tasks.start(partial(serve, app, port=0, task_status=status, **options)), status


async def everything(conn: Conn | Any) -> bytes:
    """Return all that comes."""
    received = b""
    while data := await conn.receive_some():
        received += data
    return received


async def ask(port: int, request: bytes = GET) -> bytes:
    """Return the response to a request on a connection of its own."""
    async with await open_tcp_stream(LOCALHOST, port) as conn:
        await conn.send_all(request)
        return await everything(conn)


def body(response: bytes) -> bytes:
    assert response.startswith(b"HTTP/1.1 200 ")
    return response.partition(b"\r\n\r\n")[2]


async def unable(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})
