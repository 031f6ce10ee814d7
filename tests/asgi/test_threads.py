"""What threads of an application do with what it was given, on each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio.from_thread
import anyio.to_thread
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from deadlined import current_time
from deadlined.asgi import App
from deadlined.asgi.handler import Message, Receive, Scope, Send
from deadlined.runtime import LOOPS
from tests.support.on_loops import LOCALHOST, PATIENCE, Site, answer, serve_on

ASYNCIO = [name for name in LOOPS if name != "trio"]

# small and large, of which some must wait
PIECES = [b"%03d" % number + bytes(70_000 if number % 2 else 100) for number in range(40)]
WHOLE = b"".join(PIECES)

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(WHOLE))]}


def piece(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


def frame(data: bytes) -> Message:
    return {"type": "websocket.send", "bytes": data}


def app_of(send_all: Callable[[Send, list[Message]], Any]) -> App:
    """Return an application that has `send_all(send, messages)` send the pieces, as the body of a response or as
    messages of a websocket."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        await send(START if is_http else {"type": "websocket.accept"})
        await send_all(send, [(piece if is_http else frame)(data) for data in PIECES])
        await send({"type": "http.response.body"} if is_http else {"type": "websocket.close"})

    return app


def assert_all_arrives(site: Site) -> None:
    assert site.get("/") == (200, WHOLE)
    received = []
    client = connect(f"ws://{LOCALHOST}:{site.port}/", open_timeout=PATIENCE, max_size=None)
    with client, pytest.raises(ConnectionClosedOK):
        while True:
            received.append(client.recv(PATIENCE))
    assert received == PIECES


@pytest.mark.parametrize("loop", LOOPS)
def test_a_thread_has_the_loop_send(loop: str) -> None:
    def in_thread(send: Any, messages: list[Message]) -> None:
        for message in messages:
            anyio.from_thread.run(send, message)

    async def send_all(send: Send, messages: list[Message]) -> None:
        await anyio.to_thread.run_sync(in_thread, send, messages)

    serve_on(loop, app_of(send_all), assert_all_arrives)


@pytest.mark.parametrize("loop", ASYNCIO)
def test_a_thread_submits_sends_and_waits_later(loop: str) -> None:
    """`run_coroutine_threadsafe(send(message), loop)` calls `send` in the thread."""

    def in_thread(send: Any, messages: list[Message], loop: asyncio.AbstractEventLoop) -> None:
        for submitted in [asyncio.run_coroutine_threadsafe(send(message), loop) for message in messages]:
            submitted.result(PATIENCE)

    async def send_all(send: Send, messages: list[Message]) -> None:
        await asyncio.to_thread(in_thread, send, messages, asyncio.get_running_loop())

    serve_on(loop, app_of(send_all), assert_all_arrives)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_send_of_a_thread_is_done_when_the_loop_awaits_it(loop: str) -> None:
    async def send_all(send: Send, messages: list[Message]) -> None:
        called = await anyio.to_thread.run_sync(lambda: [send(message) for message in reversed(messages)])
        for each in reversed(called):
            await each

    serve_on(loop, app_of(send_all), assert_all_arrives)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_of_another_thread_cannot_send(loop: str) -> None:
    raised: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def elsewhere() -> None:
            await send({"type": "http.response.start", "status": 500})

        try:
            await anyio.to_thread.run_sync(asyncio.run, elsewhere())
        except RuntimeError as error:
            raised.append(str(error))
        await answer(send)

    def clients(site: Site) -> None:
        assert site.get("/") == (200, b"fine")

    serve_on(loop, app, clients)
    assert len(raised) == 1
    assert "the server's event loop" in raised[0]


@pytest.mark.parametrize("name", ["set_read_deadline", "set_write_deadline", "set_handler_deadline"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_thread_has_the_loop_set_a_deadline(loop: str, name: str) -> None:
    raised: list[str] = []
    seen: list[bool] = []

    def in_thread(extension: Any) -> None:
        before = extension.deadline
        try:
            extension[name](before - 1)
        except RuntimeError as error:
            raised.append(str(error))
        seen.append(extension.deadline == before)
        anyio.from_thread.run_sync(extension[name], before + 1)
        seen.append(extension.deadline == before + 1)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        extension = scope["extensions"]["deadlined"]
        extension.set_handler_deadline(current_time() + PATIENCE)
        await anyio.to_thread.run_sync(in_thread, extension)
        await answer(send)

    def clients(site: Site) -> None:
        assert site.get("/") == (200, b"fine")

    serve_on(loop, app, clients)
    assert ["event loop" in error for error in raised] == [True]
    assert seen == [True, name == "set_handler_deadline"]
