"""A task of an application listens while another one gives the last piece, as in Starlette, sse-starlette and Django.
The complete response tells the listener, and the application cancels the task that sends: only once its send has
returned. A send that is about to return learns nothing of its client."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import App, Message, Receive, Scope, Send
from deadlined.http import Exchange
from deadlined.http.heads import HOLD
from deadlined.http.output import LIMIT
from tests.support.conformance import Loop, Running, on_asyncio, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import post
from tests.support.websocket import HANDSHAKE

# on trio it is a matter of chance which task goes on first
ROUNDS = 4

# bytes that the kernel takes of the server, and for a client that does not read, about
NARROW = 4096

CLOSE = b"connection: close\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: x\r\n" + CLOSE
HEAD = GET.replace(b"GET", b"HEAD")
OLD = b"GET / HTTP/1.0\r\n\r\n"
POST = post(10, b"connection: close") + b"123"

PIECE = b"piece"
# the kernel takes some of it, and the rest may be pending
LARGE = bytes(LIMIT + 1)
# more than may be pending
HUGE = bytes(6 * LIMIT)


def sending(loop: Loop, kind: str, status: int, length: int | None, pieces: list[bytes], cut: list[bool]) -> App:
    """Return an application that answers with messages whose types begin with `kind`, and notes whether the task that
    sends was cancelled. Its head leaves before the last piece."""
    fields = [] if length is None else [(b"content-length", b"%d" % length)]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        responding: Running

        async def respond() -> None:
            await send({"type": f"{kind}.start", "status": status, "headers": fields})
            await anyio.sleep(2 * HOLD)
            for piece in pieces[:-1]:
                await send({"type": f"{kind}.body", "body": piece, "more_body": True})
            await send({"type": f"{kind}.body", "body": pieces[-1]})

        async def listen() -> None:
            while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
                pass
            responding.cancel()

        await receive()
        async with loop.tasks() as tasks:
            listening = tasks.start(listen)
            responding = tasks.start(respond)
            await listening.wait()
        cut.append(responding.cancelled)

    return app


def in_tasks(app: App) -> App:
    """Return an application each of whose sends is awaited in a task of its own, as by `asyncio.wait_for` before Python
    3.12."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_task(message: Message) -> None:
            sending = send(message)

            async def wait() -> None:
                await sending

            await asyncio.create_task(wait())

        await app(scope, receive, send_in_task)

    return wrapped


async def is_not_cut(loop: Loop, app: App, request: bytes, body: bytes, cut: list[bool]) -> None:
    async with site_of(loop, AsgiHandler(app), send_buffer=NARROW) as (site, _):
        for _ in range(ROUNDS):
            client = await site.connect(receive_buffer=NARROW)
            await client.send(request)
            assert (await client.rest()).partition(b"\r\n\r\n")[2] == body
        await site.until(lambda: len(cut) == ROUNDS)
    assert not any(cut)


each_end = pytest.mark.parametrize(
    ("request_bytes", "status", "length", "pieces", "body"),
    [
        (GET, 200, len(PIECE), [PIECE, b""], PIECE),
        (POST, 200, len(PIECE), [PIECE, b""], PIECE),
        (OLD, 200, None, [PIECE, b""], PIECE),
        (HEAD, 200, len(PIECE), [PIECE], b""),
        (GET, 204, None, [b""], b""),
        (GET, 304, None, [b""], b""),
        (GET, 200, len(LARGE), [LARGE], LARGE),
        (GET, 200, len(HUGE), [HUGE], HUGE),
    ],
    ids=["length reached", "body incomplete", "HTTP/1.0", "HEAD", "204", "304", "some is pending", "waits for client"],
)


@on_each_loop
@each_end
async def test_the_last_send_returns_before_a_listener_is_told(
    loop: Loop, request_bytes: bytes, status: int, length: int | None, pieces: list[bytes], body: bytes
) -> None:
    cut: list[bool] = []
    app = sending(loop, "http.response", status, length, pieces, cut)
    await is_not_cut(loop, app, request_bytes, body, cut)


@on_asyncio
@each_end
async def test_so_does_one_that_is_awaited_in_a_task_of_its_own(
    loop: Loop, request_bytes: bytes, status: int, length: int | None, pieces: list[bytes], body: bytes
) -> None:
    cut: list[bool] = []
    app = in_tasks(sending(loop, "http.response", status, length, pieces, cut))
    await is_not_cut(loop, app, request_bytes, body, cut)


@on_each_loop
@pytest.mark.parametrize(
    ("pieces", "body"),
    [([PIECE, b""], PIECE), ([LARGE], LARGE), ([HUGE], HUGE)],
    ids=["length reached", "some is pending", "waits for the client"],
)
async def test_the_last_send_of_a_denial_returns_before_a_listener_is_told(
    loop: Loop, pieces: list[bytes], body: bytes
) -> None:
    cut: list[bool] = []
    app = sending(loop, "websocket.http.response", 403, len(body), pieces, cut)
    for one in [app] if loop.is_trio else [app, in_tasks(app)]:
        await is_not_cut(loop, one, HANDSHAKE.replace(b"Upgrade\r\n", b"Upgrade, close\r\n"), body, cut)
        cut.clear()


@on_each_loop
async def test_a_client_that_leaves_while_a_send_lets_others_run_ends_the_handler(loop: Loop) -> None:
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        try:
            # each is a checkpoint, because there is nothing to send
            while not exchange.client_has_left:
                await exchange.send(PIECE, True)
            await loop.forever()
        finally:
            ends.append("cancelled")

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(HEAD)
        await client.receive()
        client.conn.close()
        await site.until(lambda: ends)
