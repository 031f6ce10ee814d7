"""Datagrams with deadlines: both ways, whole or not at all, and a refusal is not the end."""

from __future__ import annotations

import errno
import math
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import DeadlineExceeded, PacketConn, open_udp, statistics
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
    async with PacketConn.from_socket(one) as client, PacketConn.from_socket(other) as server:
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


class Names(trio.abc.HostnameResolver):
    """A resolver for names of the tests; the standard library's own, which would block, must not be asked for them."""

    def __init__(self, **addresses: list[tuple[int, str]]) -> None:
        self._addresses = addresses
        self.asked: list[str | None] = []

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002, the name of the interface
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        name = None if host is None else host.decode()
        self.asked.append(name)
        if name is None:
            return [
                (socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("0.0.0.0", int(port or 0))),
                (socket.AF_INET6, socket.SOCK_DGRAM, 0, "", ("::", int(port or 0))),
            ]
        return [
            (socket.AddressFamily(family), socket.SOCK_DGRAM, 0, "", (address, int(port or 0)))
            for family, address in self._addresses[name]
        ]

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        raise NotImplementedError


V4, V6 = socket.AF_INET, socket.AF_INET6


@needs_ipv6
@pytest.mark.parametrize(
    ("local", "remote", "family"),
    [
        ([(V4, LOCALHOST)], [(V4, LOCALHOST)], V4),
        ([(V4, LOCALHOST)], [(V6, "::1"), (V4, LOCALHOST)], V4),
        ([(V6, "::1")], [(V4, LOCALHOST), (V6, "::1")], V6),
        ([(V4, LOCALHOST), (V6, "::1")], [(V6, "::1"), (V4, LOCALHOST)], V6),
        (None, [(V6, "::1"), (V4, LOCALHOST)], V6),
        (None, [(V4, LOCALHOST)], V4),
    ],
)
async def test_both_ends_have_one_family(
    local: list[tuple[int, str]] | None, remote: list[tuple[int, str]], family: socket.AddressFamily
) -> None:
    """Neither name is known to the standard library, so that a look-up of its own would fail, and block before."""
    names = Names(local=local or [], remote=remote)
    trio.socket.set_custom_hostname_resolver(names)
    host = None if local is None else "local"
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        loopback = "::1" if family == V6 else LOCALHOST
        peer.bind((loopback, 0))
        port = peer.getsockname()[1]
        async with await open_udp(host, remote=("remote", port)) as conn:
            assert conn.socket.family == family
            assert conn.socket.getpeername()[:2] == (loopback, port)
            assert conn.socket.getsockname()[0] == loopback
        own = free_port(family)
        async with await open_udp(host, own, remote=("remote", port)) as conn:
            assert conn.socket.family == family
            assert conn.socket.getsockname()[:2] == (loopback, own)


def free_port(family: socket.AddressFamily) -> int:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


async def test_ends_without_a_family_in_common_are_an_error() -> None:
    trio.socket.set_custom_hostname_resolver(Names(local=[(V4, LOCALHOST)], remote=[(V6, "::1")]))
    with pytest.raises(OSError, match="no address family in common") as caught:
        await open_udp("local", remote=("remote", 9))
    assert caught.value.errno == errno.EAFNOSUPPORT


async def test_an_empty_host_is_all_interfaces() -> None:
    async with await open_udp("") as conn:
        assert conn.socket.getsockname()[0] in ("0.0.0.0", "::")


async def test_without_a_host_all_interfaces_are_served() -> None:
    async with await open_udp() as server:
        port = server.socket.getsockname()[1]
        async with await open_udp(remote=("localhost", port)) as client:
            await client.send_to(b"x")
            assert (await server.receive_from())[0] == b"x"


@needs_ipv6
@pytest.mark.skipif(sys.platform != "linux", reason="what Linux prefers, and its default of IPV6_V6ONLY")
@pytest.mark.parametrize(
    ("host", "remote", "clients"),
    [
        (None, None, {LOCALHOST: LOCALHOST}),
        (None, ("::1", 9), {}),
        ("::", None, {LOCALHOST: f"::ffff:{LOCALHOST}", "::1": "::1"}),
    ],
)
async def test_all_interfaces_are_those_of_one_family(
    host: str | None, remote: tuple[str, int] | None, clients: dict[str, str]
) -> None:
    async with await open_udp(host, remote=remote) as server:
        family = server.socket.family
        assert family == (V6 if host or remote else V4)
        port = server.socket.getsockname()[1]
        for address, seen in clients.items():
            async with await open_udp(remote=(address, port)) as client:
                await client.send_to(b"question")
                _, (came_from, *_) = await server.receive_from()
                assert came_from == seen
                await server.send_to(b"answer", (seen, client.socket.getsockname()[1]))
                assert (await client.receive_from())[0] == b"answer"
        if family == V4:
            with pytest.raises(OSError, match="family"):
                await server.send_to(b"x", ("::1", port))


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
        for setter in setters(conn):
            with pytest.raises(ValueError, match="NaN"):
                setter(math.nan)


def setters(conn: PacketConn) -> list[Callable[[float], None]]:
    return [
        conn.set_deadline,
        conn.set_read_deadline,
        conn.set_write_deadline,
        conn.set_timeout,
        conn.set_read_timeout,
        conn.set_write_timeout,
    ]


@pytest.mark.parametrize("direction", ["read", "write", "both"])
async def test_a_timeout_is_a_deadline_from_now(direction: str, autojump_clock: MockClock) -> None:
    async with full_pair() as (client, _, _):
        await trio.sleep(5.0)
        setter = {"read": client.set_read_timeout, "write": client.set_write_timeout, "both": client.set_timeout}
        setter[direction](2.0)
        async with trio.open_nursery() as nursery:
            receive = Attempt(nursery, client.receive_from)
            send = Attempt(nursery, lambda: client.send_to(b"x"))
            await trio.sleep(3.0)
            assert receive.pending == (direction == "write")
            assert send.pending == (direction == "read")
            setter[direction](INF)
            client.set_timeout(0.0)
        assert receive.ended == (8.0 if direction == "write" else 7.0)
        assert send.ended == (8.0 if direction == "read" else 7.0)


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


async def test_opening_is_a_checkpoint_for_an_address_too() -> None:
    opened: list[PacketConn] = []

    async def open_one() -> None:
        opened.append(await open_udp(LOCALHOST))

    assert await count_sleeps(open_one) == 1
    await opened[0].aclose()


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


async def test_a_second_task_that_receives_is_told_so(nursery: trio.Nursery) -> None:
    async with udp_pair() as (client, _):
        receive = Attempt(nursery, client.receive_from)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await client.receive_from()
        await client.aclose()
        await receive.done()
        assert receive.raised(trio.ClosedResourceError)


async def test_a_closed_one_stays_closed() -> None:
    async with udp_pair() as (client, _):
        await client.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_from()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_to(b"x")
        for setter in setters(client):
            with pytest.raises(trio.ClosedResourceError):
                setter(INF)


async def test_the_errors_of_opening_name_the_address() -> None:
    async with await open_udp(LOCALHOST) as first:
        port = first.socket.getsockname()[1]
        with pytest.raises(OSError, match=f"in use: '{LOCALHOST}:{port}'$"):
            await open_udp(LOCALHOST, port)
    with pytest.raises(OSError, match=r": '255\.255\.255\.255:9'$"):
        # a broadcast, for which the socket has no option
        await open_udp(remote=("255.255.255.255", 9))


# sockets of the caller


def test_only_a_datagram_socket_without_an_event_loop_is_taken_over() -> None:
    async def main() -> None:
        with socket.socket() as stream, pytest.raises(ValueError, match="SOCK_DGRAM"):
            PacketConn.from_socket(stream)
        foreign: Any = trio.socket.socket(type=socket.SOCK_DGRAM)
        with foreign, pytest.raises(TypeError, match=r"socket\.socket"):
            PacketConn.from_socket(foreign)

    trio.run(main)


async def test_a_multicast_is_received_by_all_that_share_the_port() -> None:
    group = "239.255.77.77"
    async with AsyncExitStack() as stack:
        members: list[PacketConn] = []
        for _ in range(2):
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind((group, members[0].socket.getsockname()[1] if members else 0))
            membership = socket.inet_aton(group) + socket.inet_aton(LOCALHOST)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            members.append(await stack.enter_async_context(PacketConn.from_socket(own)))
        sender = await stack.enter_async_context(await open_udp(LOCALHOST))
        sender.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOCALHOST))
        await sender.send_to(b"all", members[0].socket.getsockname())
        assert [(await member.receive_from())[0] for member in members] == [b"all", b"all"]


def unix_datagrams(path: Path) -> PacketConn:
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.bind(str(path))
    return PacketConn.from_socket(own)


async def test_the_addresses_of_unix_datagrams_are_paths(tmp_path: Path) -> None:
    async with unix_datagrams(tmp_path / "a") as one, unix_datagrams(tmp_path / "b") as other:
        await one.send_to(b"x", str(tmp_path / "b"))
        assert await other.receive_from() == (b"x", str(tmp_path / "a"))


async def test_a_full_queue_of_another_socket_is_asked_again_from_time_to_time(
    tmp_path: Path, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Each attempt makes an event, on Linux: a sender that waited for events would run all the time."""
    path = str(tmp_path / "full")
    async with (
        unix_datagrams(tmp_path / "full") as full,
        unix_datagrams(tmp_path / "one") as one,
        unix_datagrams(tmp_path / "other") as other,
    ):
        sent = 0
        one.set_write_deadline(10.0)
        with pytest.raises(DeadlineExceeded):
            while True:
                await one.send_to(b"fill", path)
                sent += 1
        assert trio.current_time() == 10.0
        late = Attempt(nursery, lambda: other.send_to(b"late", path))
        await trio.sleep(5.0)
        assert late.pending
        for _ in range(sent):
            assert await full.receive_from() == (b"fill", str(tmp_path / "one"))
        assert await full.receive_from() == (b"late", str(tmp_path / "other"))
        await late.done()
        assert trio.current_time() <= 15.1
    counted = statistics()
    assert counted is not None
    # of 15 seconds with ten attempts in each
    assert counted.poller.events < 500


def test_close_needs_no_event_loop() -> None:
    async def main() -> PacketConn:
        return await open_udp(LOCALHOST)

    left = trio.run(main)
    left.close()
    left.close()
    assert left.socket.fileno() == -1


async def test_it_shows_its_address_and_its_deadlines() -> None:
    async with udp_pair() as (client, server):
        host, port = server.socket.getsockname()
        server.set_read_deadline(12.5)
        assert (server.read_deadline, server.write_deadline) == (12.5, INF)
        assert repr(server) == f"<PacketConn {host}:{port} read_deadline=12.5 write_deadline=inf>"
        client.close()
        # its descriptor's number may be another socket's
        with socket.socket():
            assert repr(client) == "<PacketConn closed>"
