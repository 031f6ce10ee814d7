"""An ASGI server in the test's own run, a raw client, and the server's records."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import pytest
import trio

from deadlined import open_tcp_listeners
from deadlined.asgi import App, AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import ConnectionRecord, HttpServer, Limits, RequestRecord, Timeouts
from deadlined.http.trusted import TrustedProxies
from tests.support.parsers import Choice

LOCALHOST = "127.0.0.1"
DISCONNECT = {"type": "http.disconnect"}
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
CLOSING_GET = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


def post(length: int, body: bytes = b"", *fields: bytes) -> bytes:
    """Return a POST that announces `length` bytes, and contains `body`."""
    extra = b"".join(field + b"\r\n" for field in fields)
    return b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n%b\r\n%b" % (length, extra, body)


async def say(send: Send, body: bytes = b"", status: int = 200, *, more: bool = False) -> None:
    """Send a response with one piece of body."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def hello(_: Scope, __: Receive, send: Send) -> None:
    """Answer with hello."""
    await say(send, b"hello")


async def whole_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def echo(_: Scope, receive: Receive, send: Send) -> None:
    await say(send, await whole_body(receive))


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records that have a traceback."""
    return [record for record in caplog.records if record.exc_info]


class Answer:
    """A response as a client reads it."""

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Client:
    """One connection of a client that writes raw bytes and reads whole responses."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._rest = b""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive(self) -> bytes:
        """Return the next bytes, b"" at the end."""
        return bytes(await self._stream.receive_some())

    async def answer(self, method: bytes = b"GET") -> Answer:
        """Return the next response. Raises h11.RemoteProtocolError if it is cut short, BrokenResourceError if reset."""
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"a")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(self._rest or await self.receive())
        head: h11.Response | None = None
        body = bytearray()
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await self.receive())
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        self._rest = parser.trailing_data[0]
        assert head is not None
        return Answer(head.status_code, dict(head.headers), bytes(body))

    async def ask(self, request: bytes) -> Answer:
        """Send `request` and return its response."""
        await self.send(request)
        return await self.answer(request.partition(b" ")[0])

    async def at_end(self) -> bool:
        """Return True if the server has closed and sent nothing more."""
        return not self._rest and await self.receive() == b""

    async def aclose(self) -> None:
        await self._stream.aclose()


class Served:
    """A server in this run, what it has told its observer, and its clients."""

    server: HttpServer

    def __init__(self, port: int, tls: bool) -> None:
        self.port = port
        self.url = f"{'https' if tls else 'http'}://{LOCALHOST}:{port}"
        self.requests: list[RequestRecord] = []
        self.connections: list[ConnectionRecord] = []
        self._changed = trio.Event()

    def request(self, record: RequestRecord) -> None:
        self.requests.append(record)

    def connection(self, record: ConnectionRecord) -> None:
        self.connections.append(record)
        self._changed.set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Give a new connection."""
        async with await trio.open_tcp_stream(LOCALHOST, self.port) as stream:
            yield Client(stream)

    async def ask(self, request: bytes) -> Answer:
        """Return the response to `request` on a connection of its own."""
        async with self.client() as client:
            return await client.ask(request)

    async def ended(self) -> ConnectionRecord:
        """Wait until every connection has ended; return the last record."""
        while self.server.statistics().open or not self.connections:
            self._changed = trio.Event()
            await self._changed.wait()
        return self.connections[-1]


@asynccontextmanager
async def serving(
    app: App,
    *,
    state: dict[str, Any] | None = None,
    limits: Limits | None = None,
    ssl_context: ssl.SSLContext | None = None,
    timeouts: Timeouts | None = None,
    cancel_on_disconnect: bool = True,
    trusted_proxies: TrustedProxies | None = None,
    trust_deadline_headers: bool = False,
    root_path: str = "",
) -> AsyncIterator[Served]:
    """Serve `app` on the loopback interface until the block ends."""
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    served = Served(listener.socket.getsockname()[1], ssl_context is not None)
    server = served.server = HttpServer(
        AsgiHandler(
            app,
            state,
            trusted_proxies=trusted_proxies,
            trust_deadline_headers=trust_deadline_headers,
            root_path=root_path,
        ),
        timeouts=timeouts,
        limits=limits,
        ssl_context=ssl_context,
        observer=served,
        parser=Choice.name,
        cancel_on_disconnect=cancel_on_disconnect,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        yield served
        nursery.cancel_scope.cancel()
