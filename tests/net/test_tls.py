"""`trio.SSLStream` over a `Conn`: the deadlines hold through it, and what is left of TLS when one has passed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from deadlined import Conn, DeadlineExceeded
from tests.support.net import (
    INF,
    PairMaker,
    certificates,
    fails_at_its_deadline,
    over_tcp_and_unix,
    tcp_pair,
    unix_pair,
)
from tests.support.tls import shake_hands


@over_tcp_and_unix
async def test_tls_goes_on_after_a_read_deadline(pair: PairMaker, autojump_clock: MockClock) -> None:
    async with pair() as (client, server):
        client_tls, server_tls = certificates().wrap(client, server)
        await shake_hands(client_tls, server_tls)
        for when in (1.0, 2.0):
            client.set_read_deadline(when)
            await fails_at_its_deadline(client_tls.receive_some)
            assert trio.current_time() == when
        client.set_read_deadline(INF)
        await server_tls.send_all(b"still whole")
        assert await client_tls.receive_some() == b"still whole"
        await client_tls.send_all(b"both ways")
        assert await server_tls.receive_some() == b"both ways"


async def test_tls_goes_on_after_a_read_deadline_in_the_middle_of_a_record(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with unix_pair() as (client, far), unix_pair() as (near, server):
        client_tls, server_tls = certificates().wrap(client, server)
        nursery.start_soon(relay, far, near)
        async with trio.open_nursery() as untouched:
            untouched.start_soon(relay, near, far)
            await shake_hands(client_tls, server_tls)
            # the first message brings the session tickets along
            await server_tls.send_all(b"whole")
            assert await client_tls.receive_some() == b"whole"
            untouched.cancel_scope.cancel()
        await server_tls.send_all(b"in two pieces")
        record = await near.receive_some()
        await far.send_all(record[:10])
        client.set_read_deadline(1.0)
        await fails_at_its_deadline(client_tls.receive_some)
        client.set_read_deadline(INF)
        await far.send_all(record[10:])
        assert await client_tls.receive_some() == b"in two pieces"
        nursery.cancel_scope.cancel()


async def relay(source: Conn, target: Conn) -> None:
    while data := await source.receive_some():
        await target.send_all(data)


async def test_a_write_deadline_leaves_tls_broken(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server):
        client_tls, server_tls = certificates().wrap(client, server)
        await shake_hands(client_tls, server_tls)
        client.set_write_deadline(1.0)
        with pytest.raises(DeadlineExceeded):
            while True:
                await client_tls.send_all(bytes(65536))
        assert trio.current_time() == 1.0
        client.set_write_deadline(INF)
        with pytest.raises(trio.BrokenResourceError):
            await client_tls.send_all(b"x")


async def test_a_silent_peer_cannot_hold_up_a_handshake(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, server):
        _, server_tls = certificates().wrap(client, server)
        server.set_deadline(10.0)
        error = await fails_at_its_deadline(server_tls.do_handshake)
        assert (error.op, trio.current_time()) == ("read", 10.0)
        # trio gives up a handshake that failed in any way; so does whoever waits for one
        server.set_deadline(INF)
        with pytest.raises(trio.BrokenResourceError):
            await server_tls.receive_some()
