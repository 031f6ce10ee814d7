"""`try_receive` and `try_send`, and waiting for another attempt."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn
from tests.support.net import (
    Attempt,
    clog,
    count_sleeps,
    fails_at_its_deadline,
    past,
    receive_exactly,
    tcp_pair,
    unix_pair,
)


async def test_attempts_and_waits_make_a_receive(nursery: trio.Nursery) -> None:
    async with unix_pair() as (client, server):

        async def receive() -> bytes:
            while (data := client.try_receive()) is None:
                await client.wait_readable()
            return data

        read = Attempt(nursery, receive)
        await wait_all_tasks_blocked()
        assert read.pending
        await server.send_all(b"x")
        await read.done()
        assert read.result == b"x"


async def test_parts_are_sent_one_after_another_as_far_as_there_is_room() -> None:
    parts: list[bytes | bytearray | memoryview] = [
        b"head",
        memoryview(bytes(range(251)) * 30_000)[3:],
        b"",
        bytearray(b"end"),
    ]
    whole = b"".join(parts)
    async with tcp_pair() as (client, server):
        taken = client.try_send_parts(parts)
        assert 0 < taken < len(whole)
        while client.try_send(b"x"):
            pass
        assert client.try_send_parts(parts) == 0
        received = await receive_exactly(server, taken)
        assert received == whole[:taken]
        client.abort()
        server.abort()


async def test_parts_for_a_peer_that_has_gone_are_refused() -> None:
    async with tcp_pair() as (client, server):
        server.abort()
        await client.wait_readable()
        with pytest.raises(trio.BrokenResourceError):
            client.try_send_parts([b"a", b"b"])


async def test_attempts_and_waits_make_a_send(nursery: trio.Nursery) -> None:
    data = bytes(range(251)) * 8_000
    async with tcp_pair() as (client, server):

        async def send() -> int:
            sent = waits = 0
            while sent < len(data):
                taken = client.try_send(data[sent:])
                sent += taken
                if not taken:
                    waits += 1
                    await client.wait_writable()
            return waits

        clogged = await clog(client)
        write = Attempt(nursery, send)
        await wait_all_tasks_blocked()
        assert write.pending
        received = await receive_exactly(server, clogged + len(data))
        await write.done()
        assert received[clogged:] == data
        assert write.result is not None
        assert write.result > 0


async def test_waiting_for_an_attempt_ends_by_the_deadline(autojump_clock: MockClock) -> None:
    async with tcp_pair() as (client, _):
        assert client.try_receive() is None
        client.set_read_deadline(1.0)
        assert (await fails_at_its_deadline(client.wait_readable)).op == "read"
        assert trio.current_time() == 1.0
        await clog(client)
        client.set_write_deadline(2.0)
        assert (await fails_at_its_deadline(client.wait_writable)).op == "write"
        assert trio.current_time() == 2.0


async def with_a_remembered_edge(conn: Conn, peer: Conn) -> None:
    """`conn` found nothing, and something came before it waited."""
    assert conn.try_receive() is None
    await peer.send_all(b"x")
    await wait_all_tasks_blocked()
    assert conn._desc.read.ready


async def test_waiting_gives_way_once_even_if_readiness_is_remembered() -> None:
    async with unix_pair() as (client, server):
        await with_a_remembered_edge(client, server)
        assert await count_sleeps(client.wait_readable) == 1
        assert client.try_receive() == b"x"


async def test_waiting_hears_of_a_cancellation_even_if_readiness_is_remembered() -> None:
    async with unix_pair() as (client, server):
        await with_a_remembered_edge(client, server)
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.wait_readable()
        assert scope.cancelled_caught
        # and the edge is not lost by it
        with trio.fail_after(30.0):
            await client.wait_readable()
        assert client.try_receive() == b"x"


async def test_waiting_past_the_deadline_is_a_checkpoint_too() -> None:
    async with unix_pair() as (client, _):
        client.set_read_deadline(past())
        assert await count_sleeps(lambda: fails_at_its_deadline(client.wait_readable)) == 1


async def test_a_readable_conn_is_also_one_whose_peer_has_gone(nursery: trio.Nursery) -> None:
    async with unix_pair() as (client, server):
        assert client.try_receive() is None
        wait = Attempt(nursery, client.wait_readable)
        await wait_all_tasks_blocked()
        assert wait.pending
        await server.aclose()
        await wait.done()
        assert client.try_receive() == b""
