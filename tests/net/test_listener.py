"""Listeners: what they listen on, what accept(2) throws at them, and serving with them."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import (
    Conn,
    DeadlineExceeded,
    Listener,
    open_tcp_listeners,
    open_tcp_stream,
    open_udp,
    open_unix_listener,
)
from deadlined.net.listen import listening_sockets, sockets_for
from tests.support.net import (
    BACKOFF,
    INF,
    LOCALHOST,
    SHORTAGES,
    Attempt,
    Troubled,
    after,
    count_sleeps,
    fails_at_its_deadline,
    forget_who_listens,
    local_listener,
    needs_ipv6,
    past,
    port_of,
)


async def close_all(listeners: list[Listener]) -> None:
    for listener in listeners:
        await listener.aclose()


# what is listened on


@pytest.mark.parametrize(
    ("host", "families"),
    [
        pytest.param(None, {socket.AF_INET, socket.AF_INET6}, marks=needs_ipv6),
        ("0.0.0.0", {socket.AF_INET}),
        (LOCALHOST, {socket.AF_INET}),
        (b"127.0.0.1", {socket.AF_INET}),
        pytest.param("::1", {socket.AF_INET6}, marks=needs_ipv6),
        pytest.param("::", {socket.AF_INET6}, marks=needs_ipv6),
    ],
)
async def test_a_host_decides_on_the_families(host: str | bytes | None, families: set[int]) -> None:
    listeners = await open_tcp_listeners(0, host=host)
    try:
        assert {listener.socket.family for listener in listeners} == families
        assert len(listeners) == len(families)
        for listener in listeners:
            loopback = "::1" if listener.socket.family == socket.AF_INET6 else LOCALHOST
            async with await open_tcp_stream(loopback, port_of(listener)), await listener.accept() as server:
                assert server.socket.family == listener.socket.family
    finally:
        await close_all(listeners)


def port_free_everywhere() -> int:
    """Return a port that nobody uses over either family: a free one of IPv6 may have a connection of IPv4."""
    while True:
        with socket.create_server(("::", 0), family=socket.AF_INET6) as listening:
            port: int = listening.getsockname()[1]
            with suppress(OSError), socket.create_server(("0.0.0.0", port)):
                return port


@needs_ipv6
async def test_all_interfaces_can_share_one_port_number() -> None:
    """Over IPv6 a listener keeps to IPv6, so that the IPv4 one has the number, too."""
    port = port_free_everywhere()
    listeners = await open_tcp_listeners(port)
    try:
        assert [port_of(listener) for listener in listeners] == [port, port]
    finally:
        await close_all(listeners)


# numbers that no kernel has
UNKNOWN_FAMILY = 1000
UNKNOWN_TYPE = 1000


def listening_at(*kinds: tuple[int, int]) -> Iterator[tuple[socket.socket, object]]:
    """The sockets for addresses of these families and types."""
    return sockets_for([(family, kind, 0, "", ("127.0.0.1", 0)) for family, kind in kinds])


def test_a_family_that_the_kernel_lacks_is_skipped_if_there_is_another() -> None:
    unknown, known = (UNKNOWN_FAMILY, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_STREAM)
    made = [made for made, _ in listening_at(unknown, known)]
    with made[0]:
        assert [made.family for made in made] == [socket.AF_INET]


def test_an_address_that_is_given_twice_is_listened_on_once() -> None:
    """glibc gives one for each line of /etc/hosts that has the name, and the second bind would fail."""
    made = [made for made, _ in listening_at(*[(socket.AF_INET, socket.SOCK_STREAM)] * 2)]
    with made[0]:
        assert [made.family for made in made] == [socket.AF_INET]


@pytest.mark.parametrize("reuse_port", [False, True])
def test_a_name_with_an_address_twice_is_listened_on(reuse_port: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [first, second, first])
    with ExitStack() as stack:
        sockets = listening_sockets(0, "twice.example", reuse_port=reuse_port)
        hosts = [stack.enter_context(listening).getsockname()[0] for listening in sockets]
    assert hosts == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.parametrize(
    ("kinds", "number"),
    [
        ([(UNKNOWN_FAMILY, socket.SOCK_STREAM)], errno.EAFNOSUPPORT),
        ([(UNKNOWN_FAMILY, socket.SOCK_STREAM)] * 2, errno.EAFNOSUPPORT),
        ([(socket.AF_INET, UNKNOWN_TYPE)], errno.EINVAL),
        ([(socket.AF_INET, UNKNOWN_TYPE), (socket.AF_INET, socket.SOCK_STREAM)], errno.EINVAL),
    ],
    ids=["the only family", "of all addresses", "the only address", "another error"],
)
def test_a_socket_that_cannot_be_made_is_an_error_otherwise(kinds: list[tuple[int, int]], number: int) -> None:
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        list(listening_at(*kinds))
    assert caught.value.errno == number


async def test_an_abstract_name_is_no_path_to_listen_at() -> None:
    with pytest.raises(ValueError, match="abstract names cannot be listened on"):
        await open_unix_listener("\0name")


async def test_a_port_is_an_int_from_0_to_65535() -> None:
    with pytest.raises(TypeError, match="port"):
        await open_tcp_listeners("http")  # type: ignore[arg-type]
    for port in (-1, 65536, 99_999):
        for opening in (open_tcp_listeners(port), open_tcp_stream(LOCALHOST, port), open_udp(LOCALHOST, port)):
            with pytest.raises(ValueError, match=f"port must be from 0 to 65535, not {port}"):
                await opening


@needs_ipv6
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
async def test_a_port_in_use_is_an_error_and_nothing_stays_open(family: socket.AddressFamily, host: str) -> None:
    """Over the other family the port is free: in one of the two cases it is listened on first, and must be let go."""
    port = port_free_everywhere()
    with socket.create_server((host, port), family=family):
        with pytest.raises(OSError, match="in use") as caught:
            await open_tcp_listeners(port)
        assert caught.value.errno == errno.EADDRINUSE
        assert caught.value.filename in (f"{host}:{port}", f"[{host}]:{port}")
        with pytest.raises(OSError, match="in use") as caught:
            listening_sockets(port, None)
        assert caught.value.filename in (f"{host}:{port}", f"[{host}]:{port}")
        # a socket whose ResourceWarning is still to come would hold on to the port
        other = "::" if family == socket.AF_INET else "0.0.0.0"
        await close_all(await open_tcp_listeners(port, host=other))


async def test_a_port_can_be_listened_on_again_at_once() -> None:
    """SO_REUSEADDR: connections that we closed last and that linger in TIME_WAIT do not matter."""
    async with local_listener() as (listener, port):
        client = await open_tcp_stream(LOCALHOST, port)
        server = await listener.accept()
        await server.aclose()
        assert await client.receive_some() == b""
        await client.aclose()
    (again,) = await open_tcp_listeners(port, host=LOCALHOST)
    await again.aclose()


async def test_reuse_port_lets_two_listeners_share_a_port() -> None:
    (first,) = await open_tcp_listeners(0, host=LOCALHOST, reuse_port=True)
    async with first:
        port = port_of(first)
        (second,) = await open_tcp_listeners(port, host=LOCALHOST, reuse_port=True)
        async with second:
            assert port_of(second) == port
            accepted = {first: 0, second: 0}
            async with AsyncExitStack() as stack, trio.open_nursery() as nursery:

                async def accept_all(listener: Listener) -> None:
                    while True:
                        await stack.enter_async_context(await listener.accept())
                        accepted[listener] += 1

                nursery.start_soon(accept_all, first)
                nursery.start_soon(accept_all, second)
                for _ in range(64):
                    await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            # the kernel chooses by a hash of the addresses: that one gets all of 64 has a chance of 2 ** -63
            assert sum(accepted.values()) == 64
            assert all(accepted.values())
        with pytest.raises(OSError, match="in use"):
            await open_tcp_listeners(port, host=LOCALHOST)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's answer is read from Linux's tcp_info")
@pytest.mark.parametrize("backlog", [1, 7, None])
async def test_the_backlog_is_what_was_asked_for_or_all_there_is(backlog: int | None) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST, backlog=backlog)
    async with listener:
        # of a listening socket, tcpi_sacked is the length of its queue
        info = listener.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        (granted,) = struct.unpack_from("I", info, 28)
        most = int(await trio.Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii"))
        assert granted == (most if backlog is None else backlog)


# accepting


async def test_accept_is_one_checkpoint_whether_it_waits_or_not() -> None:
    async with local_listener() as (listener, port), trio.open_nursery() as nursery, AsyncExitStack() as stack:

        async def accept() -> None:
            await stack.enter_async_context(await listener.accept())

        async def connect() -> None:
            await wait_all_tasks_blocked()
            await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))

        await connect()
        assert await count_sleeps(accept) == 1
        nursery.start_soon(connect)
        assert await count_sleeps(accept) == 1


async def test_a_cancelled_accept_leaves_the_connection_in_the_queue() -> None:
    async with local_listener() as (listener, port), await open_tcp_stream(LOCALHOST, port) as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            await listener.accept()
        assert scope.cancelled_caught
        async with await listener.accept() as server:
            assert server.socket.getpeername() == client.socket.getsockname()


async def test_an_expired_accept_leaves_the_connection_in_the_queue() -> None:
    async with local_listener() as (listener, port), await open_tcp_stream(LOCALHOST, port) as client:
        listener.set_deadline(past())
        await fails_at_its_deadline(listener.accept)
        listener.set_deadline(INF)
        async with await listener.accept() as server:
            assert server.socket.getpeername() == client.socket.getsockname()


async def test_an_accepted_conn_does_not_inherit_the_deadline() -> None:
    async with local_listener() as (listener, port), await open_tcp_stream(LOCALHOST, port):
        listener.set_deadline(after(60.0))
        async with await listener.accept() as server:
            assert server.read_deadline == server.write_deadline == INF


async def test_an_accepted_conn_sends_at_once_and_holds_little() -> None:
    (ours,) = await open_tcp_listeners(0, host="127.0.0.1")
    # its first connection is there before anybody could set an option
    given = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(given.getsockname()) as early:
        async with ours, Listener.from_socket(given) as theirs:
            with socket.create_connection(ours.socket.getsockname()) as late:
                for listener, client in ((theirs, early), (ours, late)):
                    async with await listener.accept() as conn:
                        assert conn.socket.getpeername() == client.getsockname()
                        assert not conn.socket.getblocking()
                        assert conn.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                        assert conn.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 64 * 1024


async def test_a_second_accept_is_told_so(nursery: trio.Nursery) -> None:
    async with local_listener() as (listener, port):
        accept = Attempt(nursery, listener.accept)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await listener.accept()
        async with await open_tcp_stream(LOCALHOST, port):
            await accept.done()
            assert accept.result is not None
            await accept.result.aclose()


async def test_a_closed_listener_stays_closed() -> None:
    async with local_listener() as (listener, _):
        await listener.aclose()
        await listener.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()
        for setter in (listener.set_deadline, listener.set_timeout):
            with pytest.raises(trio.ClosedResourceError):
                setter(INF)


async def test_nan_is_no_deadline() -> None:
    async with local_listener() as (listener, _):
        for setter in (listener.set_deadline, listener.set_timeout):
            with pytest.raises(ValueError, match="NaN"):
                setter(float("nan"))


async def test_a_timeout_is_a_deadline_from_now(autojump_clock: MockClock) -> None:
    async with local_listener() as (listener, port):
        await trio.sleep(5.0)
        listener.set_timeout(2.0)
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 7.0
        listener.set_timeout(INF)
        async with await open_tcp_stream(LOCALHOST, port), await listener.accept():
            pass
        listener.set_timeout(0.0)
        await fails_at_its_deadline(listener.accept)


async def test_from_socket_wants_a_socket_that_listens() -> None:
    with socket.socket() as idle, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        for unfit in (idle, datagrams):
            with pytest.raises(ValueError, match="listen"):
                Listener.from_socket(unfit)
    async with Listener.from_socket(socket.create_server((LOCALHOST, 0))) as listener:
        assert not listener.socket.getblocking()


async def test_from_socket_believes_that_a_stream_socket_listens_where_the_kernel_cannot_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_who_listens(monkeypatch)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(ValueError, match="listen"):
        Listener.from_socket(datagrams)
    listener = Listener.from_socket(socket.create_server((LOCALHOST, 0)))
    async with listener, await open_tcp_stream(LOCALHOST, port_of(listener)), await listener.accept():
        pass


async def test_from_socket_of_a_closed_one_is_an_error() -> None:
    closed = socket.create_server((LOCALHOST, 0))
    closed.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        Listener.from_socket(closed)


# accepting without waiting


async def try_accept_all(listener: Listener, stack: AsyncExitStack) -> int:
    """Accept until there is nothing more; how many there were."""
    number = 0
    while (conn := listener.try_accept()) is not None:
        await stack.enter_async_context(conn)
        number += 1
    return number


@pytest.mark.parametrize("waiting", [0, 1, 7])
async def test_try_accept_takes_all_that_wait_in_one_turn(waiting: int) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port)) for _ in range(waiting)]
        accepted: list[Conn] = []

        async def accept_all() -> None:
            while (conn := listener.try_accept()) is not None:
                accepted.append(await stack.enter_async_context(conn))

        assert await count_sleeps(accept_all) == 0
        assert [conn.socket.getpeername() for conn in accepted] == [conn.socket.getsockname() for conn in clients]
        for client, server in zip(clients, accepted, strict=True):
            await client.send_all(b"ping")
            assert await server.receive_some() == b"ping"
            await server.send_all(b"pong")
            assert await client.receive_some() == b"pong"


async def test_accept_waits_after_try_accept_has_found_nothing(nursery: trio.Nursery) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))
            await stack.enter_async_context(await listener.accept())
            assert await try_accept_all(listener, stack) == 0
            accept = Attempt(nursery, listener.accept)
            await wait_all_tasks_blocked()
            assert accept.pending
            await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))
            await accept.done()
            assert accept.result is not None
            await stack.enter_async_context(accept.result)


async def test_what_try_accept_leaves_accept_finds(nursery: trio.Nursery) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))
        first = listener.try_accept()
        assert first is not None
        await stack.enter_async_context(first)
        for _ in range(2):
            await stack.enter_async_context(await listener.accept())


async def test_try_accept_keeps_the_rules_of_accept(nursery: trio.Nursery) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack:
        accept = Attempt(nursery, listener.accept)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            listener.try_accept()
        for _ in range(2):
            await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port))
        await accept.done()
        assert accept.result is not None
        await stack.enter_async_context(accept.result)
        listener.set_deadline(past())
        with pytest.raises(DeadlineExceeded) as caught:
            listener.try_accept()
        assert caught.value.op == "accept"
        listener.set_deadline(INF)
        assert await try_accept_all(listener, stack) == 1
        await listener.aclose()
        with pytest.raises(trio.ClosedResourceError):
            listener.try_accept()


@pytest.mark.parametrize("number", [errno.ECONNABORTED, *SHORTAGES], ids=errno.errorcode.get)
async def test_try_accept_leaves_trouble_to_accept(number: int, autojump_clock: MockClock) -> None:
    troubled = Troubled(number, number)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        assert listener.try_accept() is None
        async with await listener.accept():
            pause = BACKOFF[0] if number in SHORTAGES else 0.0
            assert troubled.calls == pytest.approx([0.0, 0.0, pause])


async def test_try_accept_reports_an_unforeseen_error() -> None:
    async with Listener.from_socket(Troubled(errno.EINVAL)) as listener:
        with pytest.raises(trio.BrokenResourceError):
            listener.try_accept()


async def test_it_shows_its_address_and_its_deadline(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with local_listener() as (over_tcp, port), await open_unix_listener(path) as at_path:
        assert over_tcp.deadline == INF
        over_tcp.set_deadline(12.5)
        assert over_tcp.deadline == 12.5
        assert repr(over_tcp) == f"<Listener {LOCALHOST}:{port} deadline=12.5>"
        assert repr(at_path) == f"<Listener {path!r} deadline=inf>"
        over_tcp.close()
        # its descriptor's number may be another socket's
        with socket.socket():
            assert repr(over_tcp) == "<Listener closed>"
