"""Trio's own suites for streams, run on a `Conn`: over TCP, over unix sockets, and beneath TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import check_half_closeable_stream, check_two_way_stream

from deadlined import Conn, open_tcp_listeners, open_tcp_stream, open_unix_listener, open_unix_stream
from tests.support.net import certificates, clog, unix_sockets

Maker = Callable[[], Awaitable[tuple[Conn, Conn]]]


async def tcp() -> tuple[Conn, Conn]:
    """Through the library's own doors, not the test helpers'."""
    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        return client, await listener.accept()


async def socketpair() -> tuple[Conn, Conn]:
    one, other = unix_sockets()
    return Conn.from_socket(one), Conn.from_socket(other)


def clogged(maker: Maker) -> Maker:
    """Pairs of which neither can send a byte more until the other one receives."""

    async def make() -> tuple[Conn, Conn]:
        one, other = await maker()
        await clog(one)
        await clog(other)
        return one, other

    return make


@pytest.mark.parametrize("maker", [tcp, socketpair])
async def test_a_conn_keeps_the_contract_of_a_half_closeable_stream(maker: Maker) -> None:
    await check_half_closeable_stream(maker, clogged(maker))


async def test_a_conn_over_a_named_unix_socket_keeps_it_too(tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    async with await open_unix_listener(path) as listener:

        async def named_unix() -> tuple[Conn, Conn]:
            return await open_unix_stream(path), await listener.accept()

        await check_half_closeable_stream(named_unix, clogged(named_unix))


@pytest.mark.parametrize("https_compatible", [False, True])
@pytest.mark.parametrize("maker", [tcp, socketpair])
async def test_tls_over_a_conn_keeps_the_contract_of_a_stream(maker: Maker, https_compatible: bool) -> None:
    async def make() -> tuple[trio.SSLStream[Conn], trio.SSLStream[Conn]]:
        client, server = await maker()
        return certificates().wrap(client, server, https_compatible=https_compatible)

    # clogging a TLS stream from outside would break its records; test_tls_conn.py does it from inside
    await check_two_way_stream(make, None)
