"""`TlsConn` on asyncio and uvloop: the same source, the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any

import pytest

from deadlined import (
    BrokenResourceError,
    Conn,
    DeadlineExceeded,
    TlsConn,
    current_time,
    open_tcp_listeners,
    open_tls_stream,
)
from tests.support.net import LOCALHOST, SERVER_NAME, certificates, port_of, tcp_sockets

Run = Callable[[Coroutine[Any, Any, None]], None]

MEGABYTE = 1 << 20


def run_uvloop(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    uvloop.run(main)


@pytest.fixture(
    params=[
        asyncio.run,
        pytest.param(run_uvloop, marks=pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is missing")),
    ],
    ids=["asyncio", "uvloop"],
)
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


async def pair() -> tuple[TlsConn, TlsConn]:
    one, other = tcp_sockets()
    client = TlsConn(Conn.from_socket(one), certificates().client, server_hostname=SERVER_NAME)
    server = TlsConn(Conn.from_socket(other), certificates().server, server_side=True)
    await asyncio.gather(client.do_handshake(), server.do_handshake())
    return client, server


async def received_by(stream: TlsConn) -> bytes:
    return b"".join([piece async for piece in stream])


def test_large_pieces_cross_and_both_ends_are_told(run: Run) -> None:
    async def main() -> None:
        client, server = await pair()
        data = bytes(range(256)) * 4096
        async with client, server:

            async def send(stream: TlsConn) -> None:
                await stream.send_all(data)
                await stream.send_eof()

            results = await asyncio.gather(send(client), send(server), received_by(client), received_by(server))
            assert list(results[2:]) == [data, data]

    run(main())


def test_a_send_goes_on_after_a_deadline_and_a_cancellation(run: Run) -> None:
    async def main() -> None:
        client, server = await pair()
        data = b"a" * (8 * MEGABYTE)
        async with client, server:
            client.set_write_timeout(0.05)
            with pytest.raises(DeadlineExceeded) as raised:
                await client.send_all(data)
            client.set_write_deadline(float("inf"))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.send_all(data[raised.value.sent :]), 0.05)
            receiving = asyncio.create_task(received_by(server))
            await client.send_all(b"the end")
            await client.send_eof()
            assert (await receiving).strip(b"a") == b"the end"

    run(main())


def test_dialing_and_a_refusal(run: Run) -> None:
    async def main() -> None:
        (listener,) = await open_tcp_listeners(0, host=LOCALHOST)

        async def serve() -> None:
            async with TlsConn(await listener.accept(), certificates().server, server_side=True) as server:
                with pytest.raises(BrokenResourceError, match="the peer refuses it"):
                    await server.do_handshake()

        serving = asyncio.create_task(serve())
        with pytest.raises(BrokenResourceError, match="certificate is not accepted"):
            await open_tls_stream(
                LOCALHOST, port_of(listener), ssl_context=certificates().client, deadline=current_time() + 30
            )
        await serving
        await listener.aclose()

    run(main())


def test_a_receive_goes_on_after_a_deadline(run: Run) -> None:
    async def main() -> None:
        client, server = await pair()
        async with client, server:
            for _ in range(2):
                server.set_read_timeout(0.01)
                with pytest.raises(DeadlineExceeded):
                    await server.receive_some()
            server.set_read_timeout(30)
            await client.send_all(b"hello")
            assert await server.receive_some() == b"hello"

    run(main())
