"""An ASGI application whose client leaves, or does not read, while `send` waits: what it sends from is not broken off
at a `yield`, and nothing is logged as an error."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from deadlined import BrokenResourceError
from deadlined.asgi import App, AsgiHandler
from deadlined.asgi.handler import Message, Receive, Scope, Send
from deadlined.http import Disconnected, Phase
from tests.support.conformance import Loop, on_asyncio, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client

# trio warns of a generator behind a middleware, which it must close itself
pytestmark = pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted:ResourceWarning")

# bytes that the kernel takes of the server, and for a client that does not read, about
NARROW = 2048

# seconds for which a client may not read
GRACE = 5.0

BIG = bytes(1024 * 1024)

START: Message = {"type": "http.response.start", "status": 200}
PIECE: Message = {"type": "http.response.body", "body": bytes(100_000), "more_body": True}
LAST: Message = {"type": "http.response.body", "body": BIG}

Leave = Callable[[Client], object]


def reset(client: Client) -> None:
    client.reset()


def close(client: Client) -> None:
    client.conn.close()


def stall(client: Client) -> None:
    """Stay, and do not read."""


def end_side(client: Client) -> None:
    """Stay, send nothing more, and do not read."""
    # in real time the server may have reset it already, on a busy machine
    with suppress(BrokenResourceError):
        client.conn.shutdown_write()


each_way = pytest.mark.parametrize("leave", [reset, close, stall, end_side])
in_each_mode = pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "left_alone"])


class PassesOn(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def serving(endpoint: Callable[[Request], Awaitable[Response]], *middleware: Middleware) -> App:
    return cast(App, Starlette(routes=[Route("/", endpoint)], middleware=middleware))


class Stream:
    """How the pieces that are sent have ended: by what, where, and in which task."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def pieces(self) -> AsyncIterator[bytes]:
        task = anyio.get_current_task().id
        where = "before"
        try:
            with anyio.fail_after(3600):
                while True:
                    where = "in its own wait"
                    await anyio.sleep(0.001)
                    where = "in a send"
                    yield bytes(100_000)
        except BaseException as error:
            cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            elsewhere = "" if anyio.get_current_task().id == task else " of another task"
            self.ends.append(f"{'cancelled' if cancelled else type(error).__name__} {where}{elsewhere}")
            raise


async def left(loop: Loop, app: App, leave: Leave, *, cancels: bool = True) -> None:
    """Ask, leave while a send waits, and wait until the application has ended."""
    grace: dict[str, Any] = {"write_grace": GRACE, "write_min_rate": math.inf}
    handler = AsgiHandler(app)
    async with site_of(loop, handler, send_buffer=NARROW, cancel_on_disconnect=cancels, **grace) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        if leave is not stall:
            await site.until(lambda: [info.phase for info in site.server.connections()] == [Phase.WRITE])
        leave(client)
        await site.reason()
        await site.until(lambda: not runs(site))


def runs(site: Site) -> bool:
    return bool(site.server.open_connections or site.server.statistics().background)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@on_each_loop
@in_each_mode
@each_way
async def test_a_generator_is_cancelled_in_a_wait_of_its_own(
    loop: Loop, leave: Leave, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream()

    async def endpoint(_: Request) -> Response:
        return StreamingResponse(stream.pieces())

    await left(loop, serving(endpoint), leave, cancels=cancels)
    assert (stream.ends, errors(caplog)) == (["cancelled in its own wait"], [])


@on_each_loop
@in_each_mode
@each_way
async def test_behind_a_middleware_nothing_fails(
    loop: Loop, leave: Leave, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            await anyio.sleep(0.001)
            yield bytes(100_000)

    async def endpoint(_: Request) -> Response:
        return StreamingResponse(pieces())

    await left(loop, serving(endpoint, Middleware(PassesOn)), leave, cancels=cancels)
    assert errors(caplog) == []


@on_each_loop
@each_way
async def test_a_child_task_is_cancelled_in_a_wait_of_its_own(
    loop: Loop, leave: Leave, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream()

    async def send_all(send: Send) -> None:
        await send(START)
        async for _ in stream.pieces():
            await send(PIECE)

    async def app(_: Scope, __: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(send_all, send)

    await left(loop, app, leave)
    assert (stream.ends, errors(caplog)) == (["cancelled in its own wait"], [])


@on_each_loop
@in_each_mode
async def test_a_send_may_come_before_the_cancellation(
    loop: Loop, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A generator that waits for a step only: its next piece may come before it meets the cancellation."""
    ends: list[str] = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            with anyio.fail_after(3600):
                while True:
                    await anyio.lowlevel.checkpoint()
                    yield bytes(100)
        except BaseException as error:
            ends.append("cancelled" if isinstance(error, anyio.get_cancelled_exc_class()) else repr(error))
            raise

    async def endpoint(_: Request) -> Response:
        return StreamingResponse(pieces())

    async with site_of(loop, AsgiHandler(serving(endpoint)), cancel_on_disconnect=cancels) as (site, _):
        for _ in range(20):
            client = await site.connect()
            await client.send(GET)
            await client.receive()
            client.reset()
            await site.until(lambda: not runs(site))
    assert (ends, errors(caplog)) == (["cancelled"] * 20, [])


@on_each_loop
@in_each_mode
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "does_not_wait"])
@each_way
async def test_one_whose_framework_watches_the_client_is_cancelled_by_it(
    loop: Loop, leave: Leave, waits: bool, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As Django, Litestar and sse-starlette do: a task receives, and upon the disconnect cancels the one that sends."""
    ends: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        await send(START)
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                while True:
                    if waits:
                        await anyio.lowlevel.checkpoint()
                    await send(PIECE)
            except BaseException as error:
                ends.append("cancelled" if isinstance(error, anyio.get_cancelled_exc_class()) else repr(error))
                raise

    await left(loop, app, leave, cancels=cancels)
    assert (ends, errors(caplog)) == (["cancelled"], [])


@on_each_loop
@in_each_mode
async def test_a_plain_endpoint_may_answer_a_client_that_has_left_meanwhile(
    loop: Loop, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def endpoint(_: Request) -> Response:
        begun.set()
        go_on.wait()
        return Response("an answer")

    async def failed(_: Request, error: Exception) -> Response:
        failures.append(error)
        return Response("a failure", 500)

    app = Starlette(routes=[Route("/", endpoint)], exception_handlers={Exception: failed})
    async with site_of(loop, AsgiHandler(cast(App, app)), cancel_on_disconnect=cancels) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await anyio.to_thread.run_sync(begun.wait)
        client.reset()
        if cancels:
            await site.until(lambda: site.server.statistics().background == 1)
        go_on.set()
        await site.until(lambda: not runs(site))
    assert (failures, errors(caplog)) == ([], [])


@on_each_loop
@each_way
async def test_one_that_waits_in_its_sends_only_is_cancelled_in_a_later_one(
    loop: Loop, leave: Leave, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send(START)
        try:
            while True:
                await send(PIECE)
                told.append(None)
        except anyio.get_cancelled_exc_class():
            told.append("cancelled")
            raise

    await left(loop, app, leave)
    # the send that waits returns
    assert (told[-2:], errors(caplog)) == ([None, "cancelled"], [])


@on_each_loop
@each_way
async def test_one_that_goes_on_sending_all_the_same_is_told(
    loop: Loop, leave: Leave, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        with anyio.CancelScope(shield=True):
            await send(START)
            try:
                while True:
                    await send(PIECE)
            except OSError as error:
                told.append(type(error))
                raise

    await left(loop, app, leave)
    assert (told, errors(caplog)) == ([Disconnected], [])


@on_asyncio
async def test_a_task_that_the_handler_has_left_behind_is_told_at_once(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """Django and Quart run a view in a task of its own, which their cancellation in `asyncio.wait` leaves behind."""
    told: list[Any] = []

    async def stream(send: Send) -> None:
        try:
            await send(START)
            while True:
                await send(PIECE)
                told.append(None)
                await asyncio.sleep(0.01)
        except OSError as error:
            told.append(type(error))

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await asyncio.wait([asyncio.create_task(stream(send))])

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await client.receive()
        client.reset()
        await site.until(lambda: told and told[-1])
        sent = len(told)
        await site.until(lambda: not runs(site))
    assert (told[-1], sent < 16, errors(caplog)) == (Disconnected, True, [])


@on_asyncio
async def test_one_that_cannot_be_cancelled_yet_is_told_after_a_second(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that a thread makes, as that of a WSGI application in Starlette: anyio shields the thread."""
    go_on = threading.Event()
    told: list[Any] = []

    async def stream(send: Send) -> None:
        await send(START)
        try:
            while True:
                await send(PIECE)
                told.append(None)
                await asyncio.sleep(0.3)
        except OSError as error:
            told.append(type(error))

    async def app(_: Scope, __: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(stream, send)
            await anyio.to_thread.run_sync(go_on.wait)

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await client.receive()
        client.reset()
        await site.until(lambda: told[-1])
        go_on.set()
        await site.until(lambda: not runs(site))
    assert (told[-1], len(told) < 16, errors(caplog)) == (Disconnected, True, [])


@on_each_loop
@in_each_mode
@each_way
async def test_one_that_has_given_its_last_piece_runs_to_its_end(
    loop: Loop, leave: Leave, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[None] = []

    async def work() -> None:
        await loop.sleep(20)
        ended.append(None)

    async def endpoint(_: Request) -> Response:
        return Response(BIG, background=BackgroundTask(work))

    await left(loop, serving(endpoint), leave, cancels=cancels)
    assert (len(ended), errors(caplog)) == (1, [])


@on_each_loop
@pytest.mark.parametrize("more", [True, False], ids=["more", "last"])
async def test_a_send_that_finds_the_client_gone_raises_nothing(
    loop: Loop, more: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    clients: list[Client] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send(START)
        # the server cannot know of it yet
        clients[0].reset()
        try:
            await send(PIECE if more else LAST)
            told.append("returned")
            await loop.sleep(20)
            told.append("ran on")
        except anyio.get_cancelled_exc_class():
            told.append("cancelled")
            raise

    async with site_of(loop, AsgiHandler(app), send_buffer=NARROW) as (site, _):
        clients.append(await site.connect())
        await clients[0].send(GET)
        await site.until(lambda: told and not runs(site))
    assert (told, errors(caplog)) == (["returned", "cancelled" if more else "ran on"], [])
