"""A forked child: what it keeps of its parent's sockets. It may close what it has inherited, and run an event loop of
its own: its parent and the parent's peers notice nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from deadlined import (
    Conn,
    DeadlineExceeded,
    Listener,
    TlsConn,
    current_time,
    open_tcp_listeners,
    open_unix_listener,
    open_unix_stream,
    sleep,
)
from deadlined.asgi import AsgiServer
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Exchange, HttpServer
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import GET, answer
from tests.support.net import LOCALHOST, SERVER_NAME, certificates, tcp_pair
from tests.support.poll import conn_pair
from tests.support.runtime import exit_status_of, forks

CLOSES = [Conn.close, Conn.abort]
TLS_CLOSES = [TlsConn.close, TlsConn.abort]


@on_each_loop
@pytest.mark.parametrize("close", CLOSES)
async def test_of_a_connection(loop: Loop, close: Callable[[Conn], None]) -> None:
    async with tcp_pair() as (conn, peer):
        assert exit_status_of(lambda: close(conn)) == 0
        await conn.send_all(b"hello")
        conn.close()
        assert [piece async for piece in peer] == [b"hello"]


@on_each_loop
@pytest.mark.parametrize("close", TLS_CLOSES)
async def test_of_a_connection_through_tls(loop: Loop, close: Callable[[TlsConn], None]) -> None:
    async with tcp_pair() as (near, far), loop.tasks() as tasks:
        client = TlsConn(near, certificates().client, server_hostname=SERVER_NAME)
        server = TlsConn(far, certificates().server, server_side=True)
        shaking = tasks.start(server.do_handshake)
        await client.do_handshake()
        await shaking.succeeds()
        assert exit_status_of(lambda: close(client)) == 0
        await client.send_all(b"hello")
        assert await server.receive_some() == b"hello"
        await server.send_all(b"answer")
        assert await client.receive_some() == b"answer"
        client.close()
        assert await server.receive_some() == b""


@on_each_loop
async def test_of_a_unix_listener(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "s"

    def close(listener: Listener) -> None:
        listener.close()
        assert listener.socket.fileno() == -1

    async with await open_unix_listener(path) as listener:
        assert exit_status_of(lambda: close(listener)) == 0
        async with await open_unix_stream(path), await listener.accept():
            pass
    assert not path.exists()


async def echo_and_sleep() -> None:
    before = time.monotonic()
    assert before <= current_time() <= time.monotonic()
    async with conn_pair() as (conn, peer):
        await peer.send_all(b"hello")
        assert await conn.receive_some() == b"hello"
        conn.set_read_timeout(0.01)
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
    await sleep(0.01)


@on_each_loop
async def test_the_child_may_run_asyncio(loop: Loop) -> None:
    """In the same thread, as a child of `multiprocessing.Process` does."""
    assert exit_status_of(lambda: asyncio.run(echo_and_sleep())) == 0
    async with conn_pair() as (conn, peer):
        assert exit_status_of(lambda: asyncio.run(echo_and_sleep())) == 0
        await peer.send_all(b"hello")
        assert await conn.receive_some() == b"hello"


# a child keeps a listener, but none of a server


def require(listens: bool, listener: Listener) -> None:
    assert (listener.socket.fileno() >= 0) is listens


@on_each_loop
async def test_keeps_a_listener_that_no_server_has(loop: Loop) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with listener:
        assert exit_status_of(partial(require, True, listener)) == 0


@on_each_loop
async def test_keeps_no_listener_of_a_server_that_listens_while_its_application_starts(loop: Loop) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    statuses: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for kind in ("startup", "shutdown"):
            await receive()
            statuses.append(exit_status_of(partial(require, False, listener)))
            await send({"type": f"lifespan.{kind}.complete"})

    async with AsgiServer(app, listeners=[listener]):
        assert statuses == [0]
        require(True, listener)
    assert statuses == [0, 0]


@on_each_loop
async def test_keeps_no_listener_of_a_server(loop: Loop) -> None:
    first, second = await open_tcp_listeners(0, host=LOCALHOST), await open_tcp_listeners(0, host=LOCALHOST)
    server = HttpServer(unused)
    async with loop.tasks() as tasks:
        serving = tasks.start(server.serve, first)
        await loop.sleep(1)
        server.add_listener(second[0])
        for listener in (*first, *second):
            assert exit_status_of(partial(require, False, listener)) == 0
        server.shutdown()
        await serving.succeeds()


async def unused(exchange: Exchange) -> None:
    """Handle no request."""


# a child that returns into its parent's event loop


@forks
@on_each_loop
async def test_that_returns_from_a_handler_is_ended_and_tells_no_observer(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say again what its parent says, and where it needs the loop fail of something else: asyncio has none in
    a child."""
    statuses: list[int] = []

    async def handler(exchange: Exchange) -> None:
        pid = os.fork()
        if pid:
            statuses.append(status_of(pid))
        else:
            monkeypatch.setattr(site, "request", lambda record: os._exit(7))
        await answer(exchange, b"fine")

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        assert (await client.response()).body == b"fine"
        assert len(site.requests) == 1
    assert statuses == [1]


def status_of(pid: int) -> int:
    """Wait for the end of a child."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
