"""Datagrams with deadlines: both ways, whole or not at all, and a refusal is not the end."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import DeadlineExceeded, PacketConn, open_udp
from tests.support.net import INF, LOCALHOST, Attempt, count_sleeps, fails_at_its_deadline, needs_ipv6, past

LARGEST = 65507  # bytes; what is left of 64 KiB beneath the headers of IPv4 and UDP

Operation = Callable[[], Awaitable[object]]


@asynccontextmanager
async def udp_pair() -> AsyncIterator[tuple[PacketConn, PacketConn]]:
    """A client that is connected to a server that is not."""
    async with await open_udp(LOCALHOST) as server, await open_udp(remote=server.socket.getsockname()) as client:
        yield client, server


@asynccontextmanager
async def full_pair() -> AsyncIterator[tuple[PacketConn, PacketConn, int]]:
    """Unix datagrams: their senders wait for room, which UDP's on the loopback interface never do. Already full."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    async with PacketConn(one) as client, PacketConn(other) as server:
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                one.send(b"fill")
                sent += 1
        yield client, server, sent


async def test_datagrams_go_both_ways() -> None:
    async with udp_pair() as (client, server):
        await client.send_to(b"question")
        question, address = await server.receive_from()
        assert (question, address) == (b"question", client.socket.getsockname())
        await server.send_to(b"answer", address)
        assert await client.receive_from() == (b"answer", server.socket.getsockname())


@needs_ipv6
async def test_datagrams_over_ipv6() -> None:
    async with await open_udp("::1") as server, await open_udp("::1") as client:
        await client.send_to(b"x", server.socket.getsockname())
        data, address = await server.receive_from()
        assert (data, address) == (b"x", client.socket.getsockname())


async def test_without_a_host_all_interfaces_are_served() -> None:
    async with await open_udp() as server:
        port = server.socket.getsockname()[1]
        async with await open_udp(remote=("localhost", port)) as client:
            await client.send_to(b"x")
            assert (await server.receive_from())[0] == b"x"


async def test_a_connected_socket_can_be_bound_as_well() -> None:
    async with await open_udp(LOCALHOST) as server:
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.bind((LOCALHOST, 0))
            port = probe.getsockname()[1]
        async with await open_udp(LOCALHOST, port, remote=server.socket.getsockname()) as client:
            assert client.socket.getsockname() == (LOCALHOST, port)
            assert client.socket.getpeername() == server.socket.getsockname()


async def test_a_port_in_use_is_an_error() -> None:
    async with await open_udp(LOCALHOST) as taken:
        with pytest.raises(OSError, match="in use"):
            await open_udp(*taken.socket.getsockname())


# sizes


@pytest.mark.parametrize("size", [0, 1, 1500, LARGEST])
async def test_a_datagram_arrives_whole(size: int) -> None:
    data = (bytes(range(256)) * 256)[:size]
    async with udp_pair() as (client, server):
        await client.send_to(data)
        assert (await server.receive_from())[0] == data


async def test_one_that_is_too_long_is_refused_and_the_next_one_goes() -> None:
    async with udp_pair() as (client, server):
        with pytest.raises(OSError, match="too long") as caught:
            await client.send_to(bytes(LARGEST + 1))
        assert caught.value.errno == errno.EMSGSIZE
        await client.send_to(b"x")
        assert (await server.receive_from())[0] == b"x"


async def test_a_small_buffer_cuts_the_datagram_and_not_the_next_one() -> None:
    async with udp_pair() as (client, server):
        await client.send_to(b"abcdef")
        await client.send_to(b"next")
        assert (await server.receive_from(3))[0] == b"abc"
        assert (await server.receive_from())[0] == b"next"


async def test_an_unconnected_socket_needs_an_address() -> None:
    async with await open_udp(LOCALHOST) as conn:
        with pytest.raises(OSError, match="address required") as caught:
            await conn.send_to(b"x")
        assert caught.value.errno == errno.EDESTADDRREQ


# errors of the peer


async def test_a_refusal_is_told_and_the_socket_can_be_used_on(nursery: trio.Nursery) -> None:
    async with udp_pair() as (client, server):
        address = server.socket.getsockname()
        await server.aclose()
        await client.send_to(b"to nobody")
        with pytest.raises(ConnectionRefusedError):
            await client.receive_from()
        async with await open_udp(*address) as server_again:
            receive = Attempt(nursery, client.receive_from)
            await wait_all_tasks_blocked()
            await server_again.send_to(b"x", client.socket.getsockname())
            await receive.done()
            assert receive.result == (b"x", address)


async def test_a_refusal_wakes_a_pending_receive(nursery: trio.Nursery) -> None:
    async with udp_pair() as (client, server):
        await server.aclose()
        receive = Attempt(nursery, client.receive_from)
        await wait_all_tasks_blocked()
        await client.send_to(b"to nobody")
        await receive.done()
        assert receive.raised(ConnectionRefusedError)


# deadlines


async def test_a_pending_receive_ends_by_its_deadline(autojump_clock: MockClock) -> None:
    async with udp_pair() as (_, server):
        server.set_read_deadline(1.5)
        error = await fails_at_its_deadline(server.receive_from)
        assert (error.op, error.deadline, trio.current_time()) == ("read", 1.5, 1.5)


async def test_an_expired_receive_loses_nothing() -> None:
    async with udp_pair() as (client, server):
        await client.send_to(b"kept")
        server.set_read_deadline(past())
        for _ in range(2):
            await fails_at_its_deadline(server.receive_from)
        server.set_read_deadline(INF)
        assert (await server.receive_from())[0] == b"kept"


async def test_an_expired_send_sends_nothing() -> None:
    async with udp_pair() as (client, server):
        client.set_write_deadline(past())
        error = await fails_at_its_deadline(lambda: client.send_to(b"never"))
        assert (error.op, error.sent) == ("write", 0)
        client.set_write_deadline(INF)
        await client.send_to(b"later")
        assert (await server.receive_from())[0] == b"later"


async def test_a_pending_send_ends_by_its_deadline_and_can_be_tried_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with full_pair() as (client, server, sent):
        client.set_write_deadline(1.0)
        await fails_at_its_deadline(lambda: client.send_to(b"last"))
        assert trio.current_time() == 1.0
        client.set_write_deadline(INF)
        send = Attempt(nursery, lambda: client.send_to(b"last"))
        await wait_all_tasks_blocked()
        assert send.pending
        received = [(await server.receive_from())[0] for _ in range(sent + 1)]
        await send.done()
        assert send.error is None
        assert received == [b"fill"] * sent + [b"last"]


async def test_one_deadline_for_both_directions(autojump_clock: MockClock) -> None:
    async with full_pair() as (client, _, _):
        client.set_deadline(1.0)
        async with trio.open_nursery() as nursery:
            receive = Attempt(nursery, client.receive_from)
            send = Attempt(nursery, lambda: client.send_to(b"x"))
        assert receive.raised(DeadlineExceeded)
        assert send.raised(DeadlineExceeded)
        assert receive.ended == send.ended == 1.0


async def test_nan_is_no_deadline() -> None:
    async with await open_udp(LOCALHOST) as conn:
        for set_deadline in (conn.set_deadline, conn.set_read_deadline, conn.set_write_deadline):
            with pytest.raises(ValueError, match="NaN"):
                set_deadline(math.nan)


# trio's contracts


async def test_every_operation_is_one_checkpoint(nursery: trio.Nursery) -> None:
    async with udp_pair() as (client, server):
        assert await count_sleeps(lambda: client.send_to(b"x")) == 1
        assert await count_sleeps(server.receive_from) == 1

        async def send_later() -> None:
            await wait_all_tasks_blocked()
            await client.send_to(b"x")

        nursery.start_soon(send_later)
        assert await count_sleeps(server.receive_from) == 1
        assert await count_sleeps(client.aclose) == 1
        assert await count_sleeps(client.aclose) == 1


async def test_a_cancelled_operation_does_nothing() -> None:
    async with udp_pair() as (client, server):
        await client.send_to(b"kept")
        operations: list[Operation] = [server.receive_from, lambda: client.send_to(b"never")]
        for operation in operations:
            with trio.CancelScope() as scope:
                scope.cancel()
                await operation()
            assert scope.cancelled_caught
        await client.send_to(b"later")
        assert [(await server.receive_from())[0] for _ in range(2)] == [b"kept", b"later"]


async def test_a_second_task_in_one_direction_is_told_so(nursery: trio.Nursery) -> None:
    async with full_pair() as (client, _, _):
        receive, send = Attempt(nursery, client.receive_from), Attempt(nursery, lambda: client.send_to(b"x"))
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await client.receive_from()
        with pytest.raises(trio.BusyResourceError):
            await client.send_to(b"y")
        await client.aclose()
        for attempt in (receive, send):
            await attempt.done()
            assert attempt.raised(trio.ClosedResourceError)


async def test_a_closed_one_stays_closed() -> None:
    async with udp_pair() as (client, _):
        await client.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_from()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_to(b"x")
        for set_deadline in (client.set_read_deadline, client.set_write_deadline, client.set_deadline):
            with pytest.raises(trio.ClosedResourceError):
                set_deadline(INF)
