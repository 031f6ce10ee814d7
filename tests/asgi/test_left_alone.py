"""Without `cancel_on_disconnect` an application runs to its end, and what it sends to nobody is discarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import pytest
import trio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from trio.testing import MockClock

from deadlined import current_time, open_tcp_listeners, open_tcp_stream
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import App, Message, Receive, Scope, Send
from deadlined.http import HttpServer, Reason, Timeouts
from deadlined.runtime import LOOPS, Event, open_group, run
from tests.support.http import only
from tests.support.net import LOCALHOST
from tests.support.serving import GET, failures, serving

# seconds of real time: by then, or something is broken
SURELY = 30.0

START: Message = {"type": "http.response.start", "status": 200}
PIECE: Message = {"type": "http.response.body", "body": bytes(65536), "more_body": True}
END: Message = {"type": "http.response.body"}


class Bridge:
    """An application in the manner of those that run WSGI: one task makes the response, another one sends it. The first
    waits while ten messages are queued, for ever if the second has ended."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self.began = Event()
        self.ended = Event()
        self.left = Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        into, out = anyio.create_memory_object_stream[Message](10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_all, out, send)
            await self._make_all(into)

    async def _make_all(self, into: ObjectSendStream[Message]) -> None:
        async with into:
            await into.send(START)
            await into.send(PIECE)
            self.began.set()
            await self.left.wait()
            for _ in range(self._pieces):
                await into.send(PIECE)
            await into.send(END)
        self.ended.set()

    async def _send_all(self, out: ObjectReceiveStream[Message], send: Send) -> None:
        async with out:
            async for message in out:
                await send(message)


async def leave(app: App, began: Event, left: Event, ended: Event) -> None:
    """Ask, leave once the application is at work, and wait until it has ended by itself."""
    server = HttpServer(AsgiHandler(app), cancel_on_disconnect=False)
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with open_group() as group:
        group.start_soon(server.serve, [listener])
        client = await open_tcp_stream(LOCALHOST, listener.socket.getsockname()[1])
        await client.send_all(GET)
        assert await began.wait_until(current_time() + SURELY)
        client.abort()
        left.set()
        assert await ended.wait_until(current_time() + SURELY)
        server.shutdown()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_bridge_to_other_code_gives_all_of_its_response(loop: str) -> None:
    async def main() -> None:
        bridge = Bridge(100)
        await leave(bridge, bridge.began, bridge.left, bridge.ended)

    run(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_background_task_of_an_endless_stream_runs_when_its_client_leaves(loop: str) -> None:
    async def main() -> None:
        began, left, ended = Event(), Event(), Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            began.set()
            await left.wait()
            while True:
                yield b"more"

        async def after() -> None:
            ended.set()

        async def stream(_: Request) -> Response:
            return StreamingResponse(pieces(), background=BackgroundTask(after))

        await leave(cast(App, Starlette(routes=[Route("/", stream)])), began, left, ended)

    run(loop, main)


async def test_the_scope_says_that_such_a_send_does_nothing() -> None:
    versions: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        versions.append(scope["asgi"]["spec_version"])
        await send(START)
        await send(END)

    for cancels in (True, False):
        async with serving(app, cancel_on_disconnect=cancels) as served:
            assert (await served.ask(GET)).status == 200
    assert versions == ["2.5", "2.3"]


async def test_an_application_may_begin_its_response_after_its_client_has_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = trio.Event()
    sent: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await left.wait()
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        for message in (START, PIECE, END):
            await send(message)
            sent.append(message)

    async with serving(app, cancel_on_disconnect=False) as served:
        async with served.client() as client:
            await client.send(GET)
        left.set()
        assert (await served.ended()).reason is Reason.CLIENT_CLOSED
    assert (len(sent), failures(caplog)) == (3, [])


@pytest.mark.parametrize("cancels", [False, True])
async def test_what_an_application_raises_after_its_client_has_left_is_logged_if_it_was_left_alone(
    cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        raise LookupError("no such order")

    async with serving(app, cancel_on_disconnect=cancels) as served:
        async with served.client() as client:
            await client.send(GET)
        await served.ended()
    assert [type(record.exc_info[1]) for record in failures(caplog) if record.exc_info] == (
        [] if cancels else [LookupError]
    )


async def test_an_upload_that_its_client_breaks_off_is_no_failure_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def upload(request: Request) -> Response:
        return Response(await request.body())

    app = cast(App, Starlette(routes=[Route("/", upload, methods=["POST"])]))
    async with serving(app, cancel_on_disconnect=False) as served:
        async with served.client() as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        await served.ended()
    assert failures(caplog) == []


async def test_a_client_that_does_not_read_is_reset_and_the_application_goes_on(autojump_clock: MockClock) -> None:
    sent: list[Any] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for _number in range(300):
            await send(PIECE)
        await trio.sleep(3600)
        await send(END)
        sent.append(trio.current_time())

    timeouts: Timeouts = only(write_grace=10, write_min_rate=float("inf"))
    async with serving(app, timeouts=timeouts, cancel_on_disconnect=False) as served, served.client() as client:
        await client.send(GET)
        assert (await served.ended()).reason is Reason.WRITE_TIMEOUT
        assert trio.current_time() == 10
        await trio.sleep(3601)
    assert sent == [3610]
