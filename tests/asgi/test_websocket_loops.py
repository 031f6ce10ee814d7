"""Websockets on each event loop, in real time, with the client of the library `websockets`; and what a handler may do
to its task."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from deadlined import current_time
from deadlined.asgi import App
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason, Timeouts
from deadlined.runtime import LOOPS
from tests.support.on_loops import LOCALHOST, PATIENCE, Site, answer, in_trio, serve_on, sleep, sleep_forever
from tests.support.websocket import HANDSHAKE, TEXT, frame

pytestmark = [
    pytest.mark.parametrize("loop", LOOPS),
    pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:asynchronous generator .* was scheduled after:ResourceWarning"),
]

Act = Callable[[Receive, Send], Awaitable[object]]


class Mess(BaseException):
    """Not an Exception: what nobody expects."""


def app_of(act: Act) -> App:
    """Return an application that answers HTTP, and acts in a websocket that was accepted; on /echo it echoes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await answer(send)
            return
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        await (echo if scope["path"] == "/echo" else act)(receive, send)

    return app


async def echo(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({**message, "type": "websocket.send"})


def dial(site: Site, path: str = "/echo", **options: Any) -> ClientConnection:
    connection: ClientConnection = connect(
        f"ws://{LOCALHOST}:{site.port}{path}", open_timeout=PATIENCE, close_timeout=PATIENCE, **options
    )
    return connection


def assert_serves(site: Site) -> None:
    """The next clients are served."""
    assert site.get("/") == (200, b"fine")
    with dial(site) as client:
        client.send("still here")
        assert client.recv(PATIENCE) == "still here"


@pytest.mark.parametrize("compression", ["deflate", None])
def test_messages_of_many_clients_are_echoed(loop: str, compression: str | None) -> None:
    messages: list[str | bytes] = ["a", b"", "\N{SNOWMAN}" * 1000, bytes(70_000), b"x" * 1_000_000]

    def clients(site: Site) -> None:
        def client() -> None:
            with dial(site, compression=compression, max_size=None) as connection:
                for message in messages * 3:
                    connection.send(message)
                    assert connection.recv(PATIENCE) == message
                connection.send(["in ", "three ", "pieces"])
                assert connection.recv(PATIENCE) == "in three pieces"
                assert connection.ping().wait(PATIENCE)

        failures: list[BaseException] = []

        def guarded() -> None:
            try:
                client()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert_serves(site)
        assert set(site.server.statistics().reasons) == {Reason.DONE}

    serve_on(loop, app_of(echo), clients)


def test_a_message_that_is_larger_than_all_buffers_passes_both_ways(loop: str) -> None:
    message = bytes(range(256)) * 4096 * 12

    def clients(site: Site) -> None:
        with dial(site, compression=None, max_size=None) as client:
            client.send(message)
            assert client.recv(PATIENCE) == message

    serve_on(loop, app_of(echo), clients)


def test_a_broadcast_reaches_everybody(loop: str) -> None:
    members: set[Send] = set()

    async def act(receive: Receive, send: Send) -> None:
        members.add(send)
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                for member in list(members):
                    with suppress(OSError):
                        await member({"type": "websocket.send", "text": message["text"]})
        finally:
            members.discard(send)

    def clients(site: Site) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(dial(site, "/")) for _ in range(20)]
            connections[0].send("who is there?")
            for connection in connections:
                assert connection.recv(PATIENCE) == "who is there?"
            connections[3].send("I")
            assert [connection.recv(PATIENCE) for connection in connections] == ["I"] * 20
        assert_serves(site)

    serve_on(loop, app_of(act), clients)


def test_a_close_of_the_application_and_a_denial(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/no":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4000, "reason": "enough"})

    def clients(site: Site) -> None:
        with dial(site, "/") as client, pytest.raises(ConnectionClosedError) as closed:
            client.recv(PATIENCE)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "enough")
        with pytest.raises(InvalidStatus, match="403"):
            dial(site, "/no")

    serve_on(loop, app, clients)


# what a handler may do


def cancel_yourself() -> None:
    if in_trio():
        import trio

        task = trio.lowlevel.current_task()
        assert task.parent_nursery is not None
        task.parent_nursery.cancel_scope.cancel()
    else:
        task_ = asyncio.current_task()
        assert task_ is not None
        task_.cancel()


async def cancels_itself(receive: Receive, send: Send) -> None:
    cancel_yourself()
    await sleep_forever()


async def exits(receive: Receive, send: Send) -> None:
    raise SystemExit(3)


async def raises_what_nobody_expects(receive: Receive, send: Send) -> None:
    await receive()
    raise Mess


async def leaves_a_scope_open(receive: Receive, send: Send) -> None:
    await anyio.create_task_group().__aenter__()
    await receive()


async def receives_in_a_cancelled_scope(receive: Receive, send: Send) -> None:
    for _ in range(3):
        with anyio.move_on_after(0):
            message = await receive()
            # it was there already
            await send({"type": "websocket.send", "text": message["text"]})
    await echo(receive, send)


MESSES: list[tuple[Act, int]] = [
    (cancels_itself, 1011),
    (exits, 1011),
    (raises_what_nobody_expects, 1011),
    (leaves_a_scope_open, 1000),
]


@pytest.mark.parametrize(("act", "code"), MESSES, ids=[act.__name__ for act, _ in MESSES])
def test_a_handlers_mess_ends_its_own_websocket(
    loop: str, act: Act, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    def clients(site: Site) -> None:
        with dial(site) as bystander:
            for _ in range(2):
                with dial(site, "/") as client, pytest.raises(ConnectionClosed) as closed:
                    client.send("go")
                    client.recv(PATIENCE)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == code
                assert_serves(site)
            bystander.send("unharmed")
            assert bystander.recv(PATIENCE) == "unharmed"

    serve_on(loop, app_of(act), clients)


def test_a_receive_that_was_cancelled_loses_nothing(loop: str) -> None:
    def clients(site: Site) -> None:
        with dial(site, "/") as client:
            for number in range(20):
                client.send(str(number))
            assert [client.recv(PATIENCE) for _ in range(20)] == [str(number) for number in range(20)]

    serve_on(loop, app_of(receives_in_a_cancelled_scope), clients)


def test_a_drain_closes_every_websocket_and_ends(loop: str) -> None:
    with ExitStack() as stack:
        connections: list[ClientConnection] = []

        def clients(site: Site) -> None:
            connections.extend(stack.enter_context(dial(site)) for _ in range(10))

        # drains once the clients are there
        serve_on(loop, app_of(echo), clients)
        for connection in connections:
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv(PATIENCE)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012


def test_a_silent_peer_is_closed(loop: str) -> None:
    """In real time: only that it happens."""

    def clients(site: Site) -> None:
        with socket.create_connection((LOCALHOST, site.port), timeout=PATIENCE) as client:
            client.sendall(
                b"GET /echo HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            received = b""
            while data := client.recv(65536):
                received += data
        frames = received.partition(b"\r\n\r\n")[2]
        assert frames == b"\x89\x00" + b"\x88\x0e\x03\xf3pong_timeout"
        assert_serves(site)
        # by now the server has counted what this thread has seen
        assert site.server.statistics().reasons[Reason.PONG_TIMEOUT] == 1

    serve_on(loop, app_of(echo), clients, Timeouts(ws_ping=0.2, ws_pong=0.2))


def test_receive_and_send_are_coroutine_functions_to_those_who_ask(loop: str) -> None:
    """asgiref asks (Channels' synchronous consumers, WsgiToAsgi), and warns if they are not."""
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend(inspect.iscoroutinefunction(given) for given in (receive, send))
        seen.append((str(inspect.signature(send)), getattr(send, "__name__", "")))
        await answer(send) if scope["type"] == "http" else await send({"type": "websocket.close"})

    def clients(site: Site) -> None:
        assert site.get("/") == (200, b"fine")
        with pytest.raises(InvalidStatus):
            dial(site)

    serve_on(loop, app, clients)
    assert seen == [True, True, ("(message)", "send")] * 2


def test_nothing_can_be_sent_to_a_client_that_has_left(loop: str) -> None:
    """The start of a websocket's response is an error. That of a request's is discarded: it may have been made before
    the application could know."""
    raised: list[tuple[str, bool]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        await receive()
        assert (await receive())["type"] == f"{kind}.disconnect"
        start = {"type": "http.response.start", "status": 200}
        for message in [start, start] if kind == "http" else [{**start, "type": "websocket.http.response.start"}] * 2:
            try:
                await send(message)
            except OSError as error:
                raised.append((kind, "gone" in str(error)))

    def clients(site: Site) -> None:
        for request in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", HANDSHAKE):
            with socket.create_connection((LOCALHOST, site.port)) as client:
                client.sendall(request)

    serve_on(loop, app, clients)
    assert raised == [("websocket", True)] * 2


@pytest.mark.parametrize("closes", [False, True])
def test_a_reset_that_is_read_before_a_flush_leaves_the_handler_its_time(loop: str, closes: bool) -> None:
    """It was told by the protocol. A handler that has closed may go on; another one has 10 s, not 1 s."""
    left: list[float] = []
    client = socket.socket()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await sleep(0)
        await send({"type": "websocket.send", "text": "kept until the end of the turn"})
        if closes:
            await send({"type": "websocket.close"})
        await sleep(0.05)
        left.append(scope["extensions"]["deadlined"].deadline - current_time())

    def clients(site: Site) -> None:
        client.connect((LOCALHOST, site.port))
        client.sendall(HANDSHAKE)
        client.recv(65536)
        client.sendall(frame(TEXT, b"go"))

    serve_on(loop, app, clients)
    ((seconds),) = left
    # where the reset is read in the turn before, nothing is sent
    assert 5 < seconds <= 10 or (closes and seconds == math.inf)
