"""Streams, datagrams, and what their errors are, on every event loop."""

from __future__ import annotations

import asyncio
import errno
import math
import socket

import pytest
import trio

from deadlined import (
    BrokenResourceError,
    BusyResourceError,
    ClosedResourceError,
    Conn,
    DeadlineExceeded,
    open_udp,
    statistics,
)
from tests.conformance.test_deadlines import clog_on
from tests.support.conformance import Loop, on_asyncio, on_each_loop
from tests.support.net import LOCALHOST, PairMaker, over_tcp_and_unix, receive_exactly, tcp_pair, unix_pair


@on_each_loop
@over_tcp_and_unix
async def test_a_large_send_arrives_whole(loop: Loop, pair: PairMaker) -> None:
    data = bytes(range(256)) * 2**13
    async with pair() as (conn, peer), loop.tasks() as tasks:
        sending = tasks.start(conn.send_all, data)
        assert await receive_exactly(peer, len(data)) == data
        await sending.succeeds()


@on_each_loop
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_every_kind_of_buffer_is_sent(loop: Loop, kind: type) -> None:
    data = bytes(range(256)) * 2**12
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        sending = tasks.start(conn.send_all, kind(data))
        assert await receive_exactly(peer, len(data)) == data
        await sending.succeeds()


@on_each_loop
async def test_a_stream_is_iterated_until_the_peer_ends_it(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        await peer.send_all(b"all")
        await peer.send_eof()
        assert [data async for data in conn] == [b"all"]
        assert await conn.receive_some() == b""


@on_each_loop
@over_tcp_and_unix
async def test_after_send_eof_the_other_direction_works(loop: Loop, pair: PairMaker) -> None:
    async with pair() as (conn, peer):
        await conn.send_eof()
        await conn.send_eof()
        assert await peer.receive_some() == b""
        with pytest.raises(ClosedResourceError):
            await conn.send_all(b"x")
        await peer.send_all(b"answer")
        assert await conn.receive_some() == b"answer"


@on_each_loop
@over_tcp_and_unix
async def test_the_end_of_the_peer_wakes_a_reader(loop: Loop, pair: PairMaker) -> None:
    async with pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        peer.close()
        assert await reading.succeeds() == b""


@on_each_loop
async def test_an_abort_resets_the_peer(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(peer.receive_some)
        await loop.settle()
        conn.abort()
        error = await reading.fails_with(BrokenResourceError)
        assert error.errno == errno.ECONNRESET
        with pytest.raises(BrokenResourceError):
            await peer.send_all(b"x")


async def send_in_vain(conn: Conn, by: str) -> None:
    """Find out by a call that is no receive that the peer has left."""
    if by == "was_reset":
        assert conn.was_reset
        return
    with pytest.raises(BrokenResourceError):
        for _ in range(2):
            # to a peer that has only ended, the first is taken
            if by == "send_all":
                await conn.send_all(b"x")
            else:
                conn.try_send_parts([b"x"])


@on_each_loop
@pytest.mark.parametrize("by", ["send_all", "try_send_parts", "was_reset"])
async def test_a_stream_that_was_reset_does_not_end_although_a_send_was_told(loop: Loop, by: str) -> None:
    """The kernel tells the error once, and an end after it."""
    async with tcp_pair() as (conn, peer):
        await peer.send_all(b"part")
        await loop.settle()
        peer.abort()
        await send_in_vain(conn, by)
        assert await conn.receive_some() == b"part"
        for _ in range(2):
            with pytest.raises(BrokenResourceError) as broken:
                await conn.receive_some()
            assert broken.value.errno == errno.ECONNRESET
        with pytest.raises(BrokenResourceError):
            conn.try_receive()


@on_each_loop
async def test_a_call_that_the_kernel_refuses_does_not_break_the_stream(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer):
        with pytest.raises(BrokenResourceError) as refused:
            conn.try_send_parts([b"x"] * 5_000)
        assert refused.value.errno == errno.EMSGSIZE
        await peer.send_all(b"all")
        await peer.send_eof()
        await loop.settle()
        assert await conn.receive_some() == b"all"
        assert await conn.receive_some() == b""


@on_each_loop
async def test_a_stream_that_was_reset_stays_so_for_receives(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer):
        peer.abort()
        for _ in range(3):
            with pytest.raises(BrokenResourceError):
                await conn.receive_some()


@on_each_loop
@over_tcp_and_unix
@pytest.mark.parametrize("by", ["send_all", "try_send_parts"])
async def test_a_stream_that_has_ended_ends_although_a_send_has_failed_since(
    loop: Loop, pair: PairMaker, by: str
) -> None:
    """All of it came before its peer refused what it was sent."""
    async with pair() as (conn, peer):
        await peer.send_all(b"all")
        await loop.settle()
        await peer.aclose()
        await send_in_vain(conn, by)
        assert [data async for data in conn] == [b"all"]
        assert await conn.receive_some() == b""


@on_each_loop
@pytest.mark.parametrize("how", ["close", "abort", "aclose"])
async def test_a_close_wakes_reader_and_writer(loop: Loop, how: str) -> None:
    async with tcp_pair() as (conn, _), loop.tasks() as tasks:
        await clog_on(loop, conn)
        reading, writing = tasks.start(conn.receive_some), tasks.start(conn.send_all, bytes(2**20))
        await loop.settle()
        closed = getattr(conn, how)()
        if closed is not None:
            await closed
        await reading.fails_with(ClosedResourceError)
        await writing.fails_with(ClosedResourceError)
        for operation in (conn.receive_some, conn.send_eof, conn.wait_send_all_might_not_block):
            with pytest.raises(ClosedResourceError):
                await operation()
        with pytest.raises(ClosedResourceError):
            conn.set_read_deadline(1.0)


@on_each_loop
async def test_two_tasks_in_one_direction_are_a_mistake_that_harms_neither(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        with pytest.raises(BusyResourceError):
            await conn.receive_some()
        with pytest.raises(BusyResourceError):
            conn.try_receive()
        await peer.send_all(b"for the first")
        assert await reading.succeeds() == b"for the first"
        await peer.send_all(b"again")
        assert await conn.receive_some() == b"again"


@on_each_loop
async def test_waiting_for_room_ends_when_there_is_some(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        await clog_on(loop, conn)
        waiting = tasks.start(conn.wait_send_all_might_not_block)
        await loop.settle()
        assert waiting.pending
        await loop.settle()
        while await peer.receive_some() and waiting.pending:
            await loop.step()
            if not waiting.pending:
                break
        await waiting.succeeds()


@on_each_loop
async def test_a_busy_stream_lets_other_tasks_run(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await loop.step()

        tasks.start(other)
        for _ in range(50):
            await peer.send_all(b"x")
            await conn.receive_some()
        assert turns >= 40


@on_each_loop
async def test_zero_bytes_are_sent_and_zero_bytes_are_not_asked_for(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        await conn.send_all(b"")
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="max_bytes"):
                await peer.receive_some(wrong)


@on_asyncio
async def test_the_errors_are_those_that_programs_of_asyncio_expect(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        busy: type[Exception]
        for busy in (RuntimeError, trio.BusyResourceError):
            with pytest.raises(busy):
                await conn.receive_some()
        peer.abort()
        for kind in (ConnectionError, OSError, trio.BrokenResourceError):
            await reading.fails_with(kind)
        conn.set_read_deadline(loop.after(-1))
        for late in (TimeoutError, OSError):
            with pytest.raises(late):
                await conn.receive_some()
        conn.close()
        for closed in (OSError, trio.ClosedResourceError):
            with pytest.raises(closed) as caught:
                await conn.receive_some()
        assert getattr(caught.value, "errno", None) == errno.EBADF


@on_each_loop
async def test_a_conn_takes_a_socket_over_and_closes_it(loop: Loop) -> None:
    one, other = socket.socketpair()
    with pytest.raises(ValueError, match="SOCK_STREAM"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        Conn.from_socket(udp)
    async with Conn.from_socket(one) as conn:
        other.sendall(b"plain")
        assert await conn.receive_some() == b"plain"
    assert one.fileno() == -1
    assert other.recv(1) == b""
    other.close()


@on_each_loop
async def test_the_statistics_count_descriptors_and_waiters(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        reading = tasks.start(conn.receive_some)
        await loop.settle()
        found = statistics()
        assert found is not None
        assert (found.poller.descriptors, found.poller.parked) == (2, 1)
        reading.cancel()
        await reading.wait()
        found = statistics()
        assert found is not None
        assert found.poller.parked == 0
        await peer.send_all(b"kept")
        assert await conn.receive_some() == b"kept"


@on_each_loop
async def test_a_descriptor_that_was_closed_behind_its_back_harms_nobody_who_gets_its_number(loop: Loop) -> None:
    async with loop.tasks() as tasks:
        one, other = socket.socketpair()
        leaked = Conn.from_socket(one)
        number = one.fileno()
        leaked.set_deadline(loop.after(5))
        reading = tasks.start(leaked.receive_some)
        await loop.settle()
        one.close()
        other.close()
        first, second = socket.socketpair()
        assert number in (first.fileno(), second.fileno())
        async with Conn.from_socket(first) as conn, Conn.from_socket(second) as peer:
            # the registration of the old one was stale
            await reading.fails_with(ClosedResourceError)
            await peer.send_all(b"new")
            assert await conn.receive_some() == b"new"
            await loop.sleep(10)
            leaked.close()
            await conn.send_all(b"still")
            assert await peer.receive_some() == b"still"
            found = statistics()
            assert found is not None
            assert found.poller.descriptors == 2


# datagrams


@on_each_loop
async def test_datagrams_go_and_come_whole(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as server, await open_udp(remote=server.socket.getsockname()) as client:
        await client.send_to(b"question")
        data, sender = await server.receive_from()
        assert data == b"question"
        await server.send_to(b"answer", sender)
        assert (await client.receive_from())[0] == b"answer"


@on_each_loop
async def test_a_datagram_is_awaited_until_the_deadline_and_after_it_is_moved(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as server, await open_udp(LOCALHOST) as client:
        when = loop.after(5)
        server.set_read_deadline(when)
        with pytest.raises(DeadlineExceeded):
            await server.receive_from()
        assert loop.is_at(when)
        await client.send_to(b"late", server.socket.getsockname())
        with pytest.raises(DeadlineExceeded):
            await server.receive_from()
        server.set_read_timeout(loop.seconds(1000))
        assert (await server.receive_from())[0] == b"late"
        client.set_write_deadline(loop.after(-1))
        with pytest.raises(DeadlineExceeded):
            await client.send_to(b"x", server.socket.getsockname())


@on_each_loop
async def test_a_close_wakes_the_receiver_of_datagrams(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as server, loop.tasks() as tasks:
        receiving = tasks.start(server.receive_from)
        await loop.settle()
        with pytest.raises(BusyResourceError):
            await server.receive_from()
        await server.aclose()
        await receiving.fails_with(ClosedResourceError)


@on_each_loop
async def test_a_refused_datagram_is_an_error_of_the_next_receive_only(loop: Loop) -> None:
    async with await open_udp(LOCALHOST) as gone:
        address = gone.socket.getsockname()
    async with await open_udp(remote=address) as client:
        await client.send_to(b"anybody?")
        with pytest.raises(ConnectionRefusedError):
            await client.receive_from()
        client.set_read_deadline(loop.after(1))
        with pytest.raises(DeadlineExceeded):
            await client.receive_from()


@on_asyncio
async def test_a_send_after_a_receive_takes_no_turn_of_the_loop(loop: Loop) -> None:
    """The receive has let the others run. A second send must do that itself."""
    async with unix_pair() as (conn, peer):
        await peer.send_all(b"question")
        await conn.receive_some()
        others: list[str] = []
        asyncio.get_running_loop().call_soon(others.append, "ran")
        await conn.send_all(b"answer")
        assert others == []
        await conn.send_all(b", and more")
        assert others == ["ran"]
        assert await receive_exactly(peer, 16) == b"answer, and more"


@on_each_loop
async def test_a_send_after_a_receive_obeys_its_deadline(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        await peer.send_all(b"question")
        await conn.receive_some()
        conn.set_write_deadline(-math.inf)
        with pytest.raises(DeadlineExceeded):
            await conn.send_all(b"answer")
        conn.set_write_deadline(math.inf)
        await conn.send_all(b"answer")
        assert await peer.receive_some() == b"answer"


@on_each_loop
async def test_a_send_after_a_receive_on_a_closed_stream_is_an_error(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        await peer.send_all(b"question")
        await conn.receive_some()
        conn.close()
        with pytest.raises(ClosedResourceError):
            await conn.send_all(b"answer")
