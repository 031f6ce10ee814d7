"""An HTTP server on the loopback interface, its records, and a client that sees bytes and time.

The client reads responses with h11, so that what the server writes is judged by somebody else.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h11
import trio

from deadlined import Conn, open_tcp_listeners, open_tcp_stream
from deadlined.http import (
    ConnectionRecord,
    Disconnected,
    Exchange,
    HttpServer,
    Limits,
    Observer,
    Reason,
    RequestRecord,
    Route,
    Timeouts,
)
from tests.support.net import LOCALHOST, SERVER_NAME, certificates
from tests.support.parsers import Choice

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

# tasks of one worker: the one that serves, and the one around it that contains what ends it
WORKER = 2

# nothing is cut but by what a test sets
OFF = {
    "handshake": math.inf,
    "read_header": math.inf,
    "body_grace": math.inf,
    "write_grace": math.inf,
    "idle": math.inf,
    "request_queue": math.inf,
    "drain": math.inf,
    "ws_ping": math.inf,
    "ws_pong": math.inf,
    "ws_close": math.inf,
}


def only(**timeouts: float) -> Timeouts:
    """Return these timeouts, with all others off."""
    return Timeouts(**{**OFF, **timeouts})


def post(length: int, *fields: bytes) -> bytes:
    """Return the head of a POST with that Content-Length."""
    lines = [b"POST / HTTP/1.1", b"host: x", b"content-length: %d" % length, *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk; b"" is the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED_POST = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def living() -> int:
    """Return how many tasks this run has."""
    return trio.lowlevel.current_statistics().tasks_living


async def answer(exchange: Exchange, body: bytes = b"hello", status: int = 200) -> None:
    """Send a whole response in one piece."""
    exchange.start(status, [(b"content-type", b"text/plain")])
    await exchange.send(body, False)


async def hello(exchange: Exchange) -> None:
    """Answer at once, without reading the body."""
    await answer(exchange)


async def whole_body(exchange: Exchange) -> bytes:
    """Return the request's body."""
    body = b""
    while piece := await exchange.receive():
        body += piece
    return body


async def echo(exchange: Exchange) -> None:
    """Answer with the request's body."""
    await answer(exchange, await whole_body(exchange))


async def endless(exchange: Exchange) -> None:
    """Send for ever."""
    exchange.start(200, [])
    while True:
        await exchange.send(bytes(65536), True)


@dataclass
class Seen:
    """What became of each handler: whether it began, ended, was cancelled or saw the peer leave, and when."""

    began: list[float] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)

    def watch(self, handler: Callable[[Exchange], Awaitable[object]]) -> Callable[[Exchange], Awaitable[None]]:
        """Return `handler`, observed."""

        async def watched(exchange: Exchange) -> None:
            self.began.append(trio.current_time())
            how = "returned"
            try:
                await handler(exchange)
            except Disconnected:
                how = "disconnected"
                raise
            except trio.Cancelled:
                how = "cancelled"
                raise
            except Exception:
                how = "failed"
                raise
            finally:
                self.ended.append((how, trio.current_time()))

        return watched


class Records:
    """An observer that keeps every record."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.connections: list[ConnectionRecord] = []
        self._news = trio.Event()

    def request(self, record: RequestRecord) -> None:
        self.requests.append(record)

    def connection(self, record: ConnectionRecord) -> None:
        self.connections.append(record)
        self._news.set()
        self._news = trio.Event()

    async def ended(self, number: int = 1) -> ConnectionRecord:
        """Return the record of the `number`th connection that ends."""
        while len(self.connections) < number:
            await self._news.wait()
        return self.connections[number - 1]


@dataclass(frozen=True)
class Response:
    """A final response, and the informational ones before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    informational: list[int]

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"


class Client:
    """One connection, in the clear or through TLS."""

    def __init__(self, conn: Conn, tls: trio.SSLStream[Conn] | None = None) -> None:
        self.conn = conn
        self._stream: Conn | trio.SSLStream[Conn] = tls or conn
        self._left = b""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    def push(self, data: bytes) -> None:
        """Send without a checkpoint, so that nothing else runs meanwhile. `data` must fit into the kernel's buffer."""
        if isinstance(self._stream, trio.SSLStream):
            self._stream._ssl_object.write(data)
            data = self._stream._outgoing.read()
        assert self.conn.socket.send(data) == len(data)

    async def send_what_is_taken(self, data: bytes) -> None:
        """Send, and ignore that the server closed before the end, as most clients do."""
        try:
            await self.send(data)
        except trio.BrokenResourceError:
            return

    async def receive(self) -> bytes:
        """Return the next bytes, beginning with those that were read beyond the last response."""
        left, self._left = self._left, b""
        return left or bytes(await self._stream.receive_some(65536))

    async def response(self, method: str = "GET") -> Response:
        """Return the next response. Raises EOFError if the server closes first."""
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        reader.send(h11.EndOfMessage())
        head: h11.Response | None = None
        body = bytearray()
        informational = []
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                data = await self.receive()
                if not data and head is None:
                    raise EOFError("the server ended before it answered")
                reader.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                informational.append(event.status_code)
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                assert head is not None, event
                break
        self._left = reader.trailing_data[0]
        headers = {name.decode("ascii"): value.decode("ascii") for name, value in head.headers}
        return Response(head.status_code, headers, bytes(body), informational)

    async def get(self, request: bytes = GET) -> Response:
        await self.send(request)
        return await self.response()

    async def rest(self) -> bytes:
        """Return all bytes until the server closes. Raises BrokenResourceError if it resets."""
        data = bytearray()
        while piece := await self.receive():
            data += piece
        return bytes(data)

    async def end(self) -> str:
        """Read to the end: "eof" or "reset"."""
        try:
            await self.rest()
        except trio.BrokenResourceError:
            return "reset"
        return "eof"

    def reset(self) -> None:
        """Close with an RST."""
        self.conn.abort()


async def dialed(port: int, receive_buffer: int | None) -> Conn:
    """Connect to this port; with a small buffer, what is not read waits in the server."""
    if receive_buffer is None:
        return await open_tcp_stream(LOCALHOST, port)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect((LOCALHOST, port))
    return Conn.from_socket(client)


class Site:
    """A server that runs."""

    def __init__(self, server: HttpServer, port: int, records: Records, tls: bool, scope: trio.CancelScope) -> None:
        self.server = server
        self.port = port
        self.records = records
        self._tls = tls
        self._scope = scope
        self._clients: list[Conn] = []

    async def connect(self, *, tls: bool | None = None, receive_buffer: int | None = None) -> Client:
        """Return a new client; over TLS if the server speaks it, unless `tls` says otherwise."""
        conn = await self.dial(receive_buffer)
        self._clients.append(conn)
        client = Client(conn)
        return await self.shake_hands(client) if (self._tls if tls is None else tls) else client

    async def shake_hands(self, client: Client) -> Client:
        """Return `client`, which has said nothing yet, over TLS."""
        context = certificates().client
        stream = trio.SSLStream(client.conn, context, server_hostname=SERVER_NAME, https_compatible=True)
        await stream.do_handshake()
        return Client(client.conn, stream)

    async def dial(self, receive_buffer: int | None) -> Conn:
        return await dialed(self.port, receive_buffer)

    async def ended(self, number: int = 1) -> ConnectionRecord:
        return await self.records.ended(number)

    async def reason(self, number: int = 1) -> Reason:
        return (await self.records.ended(number)).reason

    def stop(self) -> None:
        """Cancel the server."""
        self._scope.cancel()

    def hang_up(self) -> None:
        """Close all clients."""
        for conn in self._clients:
            conn.close()


@asynccontextmanager
async def serving(
    handler: Callable[[Exchange], Awaitable[object]] = hello,
    timeouts: Timeouts | None = None,
    limits: Limits | None = None,
    tls: bool = False,
    observer: Observer | None = None,
    cancel_on_disconnect: bool = True,
    ws_compression: bool = True,
    routes: Iterable[Route] = (),
    on_cut: Callable[[], object] | None = None,
) -> AsyncIterator[Site]:
    """Serve `handler` until the block ends; all timeouts are off unless given."""
    context: ssl.SSLContext | None = certificates().server if tls else None
    records = Records()
    server = HttpServer(
        handler,
        timeouts=timeouts or only(),
        limits=limits,
        routes=routes,
        ssl_context=context,
        observer=observer or records,
        parser=Choice.name,
        cancel_on_disconnect=cancel_on_disconnect,
        ws_compression=ws_compression,
        on_cut=on_cut,
    )
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    scope = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await server.serve([listener], task_status=task_status)

    site = Site(server, listener.socket.getsockname()[1], records, tls, scope)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        try:
            yield site
        finally:
            site.hang_up()
            nursery.cancel_scope.cancel()


async def trickle(client: Client, data: bytes, every: float) -> None:
    """Send byte by byte, until the server has had enough."""
    try:
        for i in range(len(data)):
            await client.send(data[i : i + 1])
            await trio.sleep(every)
    except trio.BrokenResourceError:
        return
