"""`serve_tcp`: a task for each connection."""

from __future__ import annotations

import errno
import socket
import types
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import pytest
import trio

from deadlined import Conn, Listener, open_tcp_stream, serve_tcp
from deadlined.runtime import current_host
from tests.support.net import LOCALHOST, Troubled, port_of


async def shout(conn: Conn) -> None:
    async for data in conn:
        await conn.send_all(data.upper())


async def ask(port: int, question: bytes) -> bytes:
    async with await open_tcp_stream(LOCALHOST, port) as conn:
        await conn.send_all(question)
        await conn.send_eof()
        return b"".join([data async for data in conn])


async def test_serve_tcp_starts_and_tells_its_listeners(nursery: trio.Nursery) -> None:
    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(shout, 0, host=LOCALHOST, task_status=task_status)

    (listener,) = await nursery.start(serve)
    assert isinstance(listener, Listener)
    for _ in range(3):
        assert await ask(port_of(listener), b"hello") == b"HELLO"
    nursery.cancel_scope.cancel()


async def test_serve_tcp_closes_a_conn_when_its_handler_returns(nursery: trio.Nursery) -> None:
    seen: list[Conn] = []

    async def look(conn: Conn) -> None:
        seen.append(conn)

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(look, 0, host=LOCALHOST, task_status=task_status)

    (listener,) = await nursery.start(serve)
    assert await ask(port_of(listener), b"") == b""
    assert seen[0].socket.fileno() == -1
    nursery.cancel_scope.cancel()


async def test_serve_tcp_wants_an_async_function(nursery: trio.Nursery) -> None:
    with pytest.raises(TypeError, match="serve_tcp needs an async function, not 8000"):
        await serve_tcp(8000, 0)  # type: ignore[arg-type]

    def plain(conn: Conn) -> None: ...

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(TypeError, match=r"and <function .*plain.* has returned None$")):
            await serve_tcp(plain, 0, host=LOCALHOST, task_status=task_status)  # type: ignore[arg-type]

    (listener,) = await nursery.start(serve)
    assert await ask(port_of(listener), b"") == b""


async def test_serve_tcp_takes_a_coroutine_that_is_a_generator(nursery: trio.Nursery) -> None:
    @types.coroutine
    def greet(conn: Conn) -> Generator[Any, Any, None]:
        yield from conn.send_all(b"hello").__await__()

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(greet, 0, host=LOCALHOST, task_status=task_status)

    (listener,) = await nursery.start(serve)
    assert await ask(port_of(listener), b"") == b"hello"
    nursery.cancel_scope.cancel()


async def test_serve_tcp_accepts_all_that_wait_in_one_turn(nursery: trio.Nursery) -> None:
    """One per turn would let newcomers starve beside busy handlers."""
    served: list[int] = []

    async def count(conn: Conn) -> None:
        served.append(current_host().statistics().poller.descriptors)

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(count, 0, host=LOCALHOST, task_status=task_status)

    (listener,) = await nursery.start(serve)
    before = current_host().statistics().poller.descriptors
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(listener.socket.getsockname()))
        while len(served) < 40:
            await trio.lowlevel.checkpoint()
        # with one connection per turn, the first handlers would be over before the last connections are accepted
        assert max(served) - before >= 32
    nursery.cancel_scope.cancel()


async def test_an_exception_of_a_handler_ends_serve_tcp() -> None:
    class Mishap(Exception):  # noqa: N818, a mishap is no error of the server
        pass

    async def fail(conn: Conn) -> None:
        raise Mishap

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(fail, 0, host=LOCALHOST, task_status=task_status)

    caught: list[BaseException] = []
    listeners: list[Listener] = []
    try:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(serve)
            async with await open_tcp_stream(LOCALHOST, port_of(listeners[0])):
                await trio.sleep_forever()
    except* Mishap as group:
        caught.append(group)
    assert caught
    assert listeners[0].socket.fileno() == -1


async def test_handlers_can_live_in_a_nursery_of_the_callers() -> None:
    """The pattern of a drain: stop listening, let the handlers finish."""
    begun = trio.Event()

    async def slow(conn: Conn) -> None:
        begun.set()
        await shout(conn)

    async with trio.open_nursery() as handlers:

        async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
            await serve_tcp(slow, 0, host=LOCALHOST, handler_nursery=handlers, task_status=task_status)

        async with trio.open_nursery() as server:
            (listener,) = await server.start(serve)
            client = await open_tcp_stream(LOCALHOST, port_of(listener))
            await begun.wait()
            server.cancel_scope.cancel()
        assert listener.socket.fileno() == -1
        async with client:
            await client.send_all(b"late")
            assert await client.receive_some() == b"LATE"


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EMFILE], ids=errno.errorcode.get)
async def test_trio_can_serve_with_our_listener_and_it_survives(number: int, nursery: trio.Nursery) -> None:
    troubled = Troubled(number)
    listener = Listener.from_socket(troubled)

    async def serve() -> None:
        await trio.serve_listeners(shout, [listener])

    nursery.start_soon(serve)
    for _ in range(3):
        assert await ask(troubled.getsockname()[1], b"hello") == b"HELLO"
    assert not troubled.troubles
    nursery.cancel_scope.cancel()
