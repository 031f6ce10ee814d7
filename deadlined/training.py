"""A short run of what servers, streams and timers do most, by whose counts the package is compiled.

    python -m deadlined.training

A compiler that knows how often each line runs lays the lines that run side by side, and the others out of their way.
So setup.py compiles twice: first modules that count, which this program runs, and then, by the counts, the ones to
keep. The run takes half a minute, and needs nothing but the package and the loopback interface.

What runs often here is taken to matter most: lines beyond those that make up 99 % of the run are compiled to be small
instead of fast.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import ceil
from typing import Any

import trio

from .asgi import AsgiHandler
from .http import HttpServer
from .net import Conn, Listener, open_tcp_listeners, open_tcp_stream
from .proxy import Address, Proxy
from .runtime import current_time, open_group, run
from .timers import SCHEMES, Timer, Timers

LOOPS = ("trio", "asyncio")

# connections that ask side by side, and how many seconds each waits for an answer
CONNECTIONS = 32
PATIENCE = 60.0

# the pieces of a streamed response: how many, which, and how many seconds pass between two
PIECES = 20
STREAMS = {"/pieces": (b"a piece of a response", 0.0), "/events": (b"event: count\ndata: 1\n\n", 0.001)}

JSON = b'{"message":"Hello, World!","id":42}'
LARGE = bytes(100_000) + b"end"
LAST_CHUNK = b"0\r\n\r\n"

BROWSER = (
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    b"Accept-Language: en-US,en;q=0.5\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\n"
    b"Connection: keep-alive\r\n"
    b"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n"
    b"Upgrade-Insecure-Requests: 1\r\n"
    b"Priority: u=0, i\r\n"
)


@dataclass(frozen=True)
class Case:
    """A request, the end of its answer, and how often each connection sends it."""

    request: bytes
    answer_ends: bytes
    rounds: int
    closing: bool = False


def request(path: bytes, fields: bytes = b"", body: bytes = b"") -> bytes:
    """Return a request as it is sent."""
    method, length = (b"POST", b"Content-Length: %d\r\n" % len(body)) if body else (b"GET", b"")
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s" % (method, path, fields, length, body)


CASES = [
    Case(request(b"/json"), JSON, 300),
    Case(request(b"/json?page=2&sort=name", BROWSER), JSON, 100),
    Case(request(b"/json", b"Connection: close\r\n"), JSON, 40, closing=True),
    Case(request(b"/pieces"), LAST_CHUNK, 30),
    Case(request(b"/events"), LAST_CHUNK, 15),
    Case(request(b"/sleep"), JSON, 60),
    Case(request(b"/large"), LARGE[-10:], 40),
    Case(request(b"/up", body=bytes(10_000)), JSON, 60),
]


class Application:
    """An ASGI application, with the sleep of its event loop."""

    def __init__(self, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._sleep = sleep

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as the path says."""
        path = scope["path"]
        if path in STREAMS:
            await self._stream(send, *STREAMS[path])
        else:
            await self._prepare(path, receive)
            await _respond(send, LARGE if path == "/large" else JSON)

    async def _prepare(self, path: str, receive: Any) -> None:
        if path == "/sleep":
            await self._sleep(0.01)
        elif path == "/up":
            while (await receive())["more_body"]:
                pass

    async def _stream(self, send: Any, piece: bytes, pause: float) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(PIECES):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if pause:
                await self._sleep(pause)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _respond(send: Any, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


Connect = Callable[[], socket.socket]


def visit(connect: Connect, share: float, presence: socket.socket) -> int:
    """Ask for `share` of the rounds of all cases, then close `presence`, for which the server waits. Return the number
    of answers."""
    with presence:
        return sum(ask(connect, case, ceil(case.rounds * share)) for case in CASES)


def ask(connect: Connect, case: Case, rounds: int) -> int:
    """Ask `rounds` times on each of CONNECTIONS connections, again once all answers have come. Return the number of
    answers."""
    visits = rounds if case.closing else 1
    for _ in range(visits):
        with ExitStack() as stack:
            clients = [stack.enter_context(connect()) for _ in range(CONNECTIONS)]
            for _ in range(rounds // visits):
                _ask_once(clients, case)
    return rounds * CONNECTIONS


def _ask_once(clients: list[socket.socket], case: Case) -> None:
    for client in clients:
        client.sendall(case.request)
    for client in clients:
        read_answer(client, case.answer_ends)


def read_answer(client: socket.socket, end: bytes) -> None:
    """Read to the end of an answer; EOFError if the connection ends before, TimeoutError after PATIENCE seconds."""
    answer = b""
    while not answer.endswith(end):
        piece = client.recv(65_536)
        if not piece:
            raise EOFError(f"the connection ended in an answer, after {answer[-200:]!r}")
        answer += piece


async def serve(loop: str, parser: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None, share: float) -> int:
    """Serve `share` of all cases to clients in a thread, through TLS if there are contexts for a server and a client.
    Return the number of requests."""
    [listener] = await open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    server = HttpServer(_handler(loop), parser=parser, ssl_context=contexts and contexts[0])

    def connect() -> socket.socket:
        plain = socket.create_connection(address, timeout=PATIENCE)
        return contexts[1].wrap_socket(plain) if contexts else plain

    return await _serve_visitors(server, listener, connect, share)


async def guard(loop: str, share: float) -> int:
    """Serve `share` of all cases through a proxy. Return the number of requests."""
    [listener] = await open_tcp_listeners(0, host="127.0.0.1")
    [behind] = await open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    upstream = HttpServer(_handler(loop))
    proxy = Proxy([Address(*behind.socket.getsockname()[:2])])
    front = HttpServer(proxy, respond=proxy.respond)
    async with open_group() as group:
        group.start_soon(upstream.serve, [behind])
        connect = partial(socket.create_connection, address, PATIENCE)
        try:
            return await _serve_visitors(front, listener, connect, share)
        finally:
            proxy.close()
            upstream.shutdown(0.0)


def _handler(loop: str) -> AsgiHandler:
    return AsgiHandler(Application(trio.sleep if loop == "trio" else asyncio.sleep))


async def _serve_visitors(server: HttpServer, listener: Listener, connect: Connect, share: float) -> int:
    """Serve a visitor in a thread, and shut down when it has gone."""
    present, presence = socket.socketpair()
    with ThreadPoolExecutor(max_workers=1) as pool:
        answers = pool.submit(visit, connect, share, presence)
        async with open_group() as group:
            group.start_soon(_serve_until_gone, server, Conn(present))
            await server.serve([listener])
        return answers.result()


async def _serve_until_gone(server: HttpServer, clients: Conn) -> None:
    with closing(clients):
        await clients.receive_some(1)
    server.shutdown(0.0)


def without_certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return contexts of a server and a client that need no certificate, because neither proves its identity. Data
    takes the same path as with any other cipher."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    for context in (server, client):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
    return server, client


async def echo(share: float) -> None:
    """Send small messages to and fro on a few connections, under deadlines that move with each."""
    [listener] = await open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with open_group() as group:
        for _ in range(8):
            group.start_soon(_talk, port, ceil(1_000 * share))
            group.start_soon(_answer, await listener.accept())
    listener.close()


async def _talk(port: int, messages: int) -> None:
    with closing(await open_tcp_stream("127.0.0.1", port)) as stream:
        for _ in range(messages):
            stream.set_deadline(current_time() + PATIENCE)
            await stream.send_all(b"ping")
            await stream.receive_some(4096)


async def _answer(stream: Conn) -> None:
    with closing(stream):
        while True:
            stream.set_read_deadline(current_time() + PATIENCE)
            received = await stream.receive_some(4096)
            if not received:
                return
            stream.set_write_deadline(current_time() + PATIENCE)
            await stream.send_all(received)


def turn(queue: str, share: float) -> None:
    """Move, stop and check the timers of many connections."""
    chance, now = random.Random(queue), 0.0
    timers, all_timers = Timers(queue), [Timer(_fired) for _ in range(500)]
    for _ in range(ceil(10_000 * share)):
        now += 0.001
        timer = chance.choice(all_timers)
        if chance.random() < 0.2:
            timers.stop(timer)
        else:
            timers.modify(timer, now + chance.choice((0.01, 0.5, 5.0, 60.0)))
        if timers.wake_time() <= now:
            timers.check(now)


def _fired(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: what a timer calls is not the package's."""


def train(share: float = 1.0) -> int:
    """Run everything on each event loop, and return the number of requests. A `share` of the rounds below 1 shows only
    that it works. Raises what went wrong."""
    faster = ["httptools"] if find_spec("httptools") else []
    requests = 0
    for loop in LOOPS:
        for parser in ["h11", *faster]:
            requests += run(loop, serve, loop, parser, None, share)
        requests += run(loop, serve, loop, "auto", without_certificates(), share / 4)
        requests += run(loop, guard, loop, share / 2)
        run(loop, echo, share)
    for queue in SCHEMES:
        turn(queue, share)
    return requests


if __name__ == "__main__":
    print(f"{train()} requests")
