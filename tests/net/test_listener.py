"""Listeners: what they listen on, what accept(2) throws at them, and serving with them."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
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
    open_unix_listener,
    open_unix_stream,
    serve_tcp,
)
from deadlined.net.listener import _SKIPPED as SKIPPED
from deadlined.poll import PollDesc
from deadlined.runtime import Pump, current_pump
from tests.support.net import (
    INF,
    LOCALHOST,
    Attempt,
    after,
    count_sleeps,
    fails_at_its_deadline,
    local_listener,
    needs_ipv6,
    past,
)

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM]
BACKOFF = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def port_of(listener: Listener) -> int:
    port = listener.socket.getsockname()[1]
    assert isinstance(port, int)
    return port


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


@needs_ipv6
async def test_all_interfaces_can_share_one_port_number() -> None:
    """Over IPv6 a listener keeps to IPv6, so that the IPv4 one has the number, too."""
    (first,) = await open_tcp_listeners(0, host="::")
    port = port_of(first)
    await first.aclose()
    listeners = await open_tcp_listeners(port)
    try:
        assert [port_of(listener) for listener in listeners] == [port, port]
    finally:
        await close_all(listeners)


async def test_a_port_is_an_int() -> None:
    with pytest.raises(TypeError, match="port"):
        await open_tcp_listeners("http")  # type: ignore[arg-type]


@needs_ipv6
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
async def test_a_port_in_use_is_an_error_and_nothing_stays_open(family: socket.AddressFamily, host: str) -> None:
    """Over the other family the port is free: in one of the two cases it is listened on first, and must be let go."""
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as caught:
            await open_tcp_listeners(port)
        assert caught.value.errno == errno.EADDRINUSE
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


# what accept(2) throws


class Troubled(socket.socket):
    """A listening socket whose first accepts fail with the given errors, and which notes the time of each."""

    def __init__(self, *troubles: int) -> None:
        super().__init__()
        self.bind((LOCALHOST, 0))
        self.listen()
        self.troubles = list(troubles)
        self.calls: list[float] = []

    def accept(self) -> tuple[socket.socket, object]:
        self.calls.append(trio.current_time())
        if self.troubles:
            number = self.troubles.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()

    async def connect_to_it(self) -> Conn:
        return await open_tcp_stream(*self.getsockname())


@pytest.mark.parametrize("number", sorted(SKIPPED), ids=errno.errorcode.get)
async def test_an_error_of_one_connection_is_skipped_at_once(number: int, autojump_clock: MockClock) -> None:
    troubled = Troubled(number, number, number)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it(), await listener.accept():
        assert troubled.calls == [0.0] * 4


class AlwaysTroubled(Troubled):
    """Fails for ever, which `accept` must survive, and others beside it."""

    def accept(self) -> tuple[socket.socket, object]:
        if len(self.calls) > 10_000:
            pytest.fail("spins, and nobody else runs")
        self.troubles = [errno.ECONNABORTED]
        return super().accept()


@pytest.mark.parametrize("how", ["deadline", "close", "cancel"])
async def test_an_error_that_persists_starves_nobody(how: str) -> None:
    troubled = AlwaysTroubled()
    async with Listener.from_socket(troubled) as listener:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                accept = Attempt(nursery, listener.accept)
                while len(troubled.calls) < 10:
                    await trio.lowlevel.checkpoint()
                if how == "deadline":
                    listener.set_deadline(past())
                elif how == "close":
                    await listener.aclose()
                else:
                    scope.cancel()
        assert scope.cancelled_caught == (how == "cancel")
        if how != "cancel":
            assert accept.raised(DeadlineExceeded if how == "deadline" else trio.ClosedResourceError)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("way", ["accept", "try_accept"])
async def test_a_connection_that_the_event_queue_does_not_take_is_closed(
    way: str, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As over fs.epoll.max_user_watches: the listener goes on with the next."""
    async with (
        local_listener() as (listener, port),
        await open_tcp_stream(LOCALHOST, port) as refused,
        await open_tcp_stream(LOCALHOST, port) as served,
    ):
        watch = Pump.open
        failures = [number]

        def open_(pump: Pump, fd: int) -> PollDesc:
            if failures:
                raise OSError(failures.pop(), "the event queue is full")
            return watch(pump, fd)

        monkeypatch.setattr(Pump, "open", open_)
        descriptors = current_pump().statistics().poller.descriptors
        if way == "try_accept":
            assert listener.try_accept() is None
        async with await listener.accept() as server:
            assert server.socket.getpeername() == served.socket.getsockname()
            assert current_pump().statistics().poller.descriptors == descriptors + 1
        assert await refused.receive_some() == b""
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "the event queue is full" in record.getMessage()


@pytest.mark.parametrize("way", ["accept", "try_accept"])
async def test_a_connection_is_closed_whatever_setting_it_up_raises(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_(pump: Pump, fd: int) -> PollDesc:
        raise ZeroDivisionError("not foreseen")

    async with local_listener() as (listener, port), await open_tcp_stream(LOCALHOST, port) as client:
        monkeypatch.setattr(Pump, "open", open_)
        with pytest.raises(ZeroDivisionError) as caught:
            listener.try_accept() if way == "try_accept" else await listener.accept()
        # kept alive by its frames until here: the end comes from a close, not from the collector
        assert await client.receive_some() == b""
        del caught


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
async def test_a_shortage_is_waited_out_longer_and_longer(
    number: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    troubled = Troubled(*[number] * len(BACKOFF))
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it(), await listener.accept():
        waits = [later - sooner for sooner, later in zip(troubled.calls, troubled.calls[1:], strict=False)]
        assert waits == pytest.approx(BACKOFF)
        assert len(caplog.records) == len(BACKOFF)
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        assert os.strerror(number) in caplog.text


async def test_the_next_shortage_begins_with_the_shortest_wait(autojump_clock: MockClock) -> None:
    troubled = Troubled(errno.EMFILE, errno.EMFILE, errno.EAGAIN, errno.EMFILE)
    async with Listener.from_socket(troubled) as listener, trio.open_nursery() as nursery:
        accept = Attempt(nursery, listener.accept)
        await trio.sleep(1.0)
        assert troubled.calls == pytest.approx([0.0, 0.005, 0.015])
        async with await troubled.connect_to_it():
            await accept.done()
            assert troubled.calls[3:] == pytest.approx([1.0, 1.005])
            assert accept.result is not None
            await accept.result.aclose()


async def test_connections_that_come_in_a_shortage_do_not_cut_the_wait_short(autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 9)
    async with Listener.from_socket(troubled) as listener, AsyncExitStack() as stack, trio.open_nursery() as nursery:
        accept = Attempt(nursery, listener.accept)
        await trio.sleep(1.5)  # within the first wait of a second
        before = len(troubled.calls)
        for _ in range(10):
            await stack.enter_async_context(await troubled.connect_to_it())
            await trio.sleep(0.01)
        assert len(troubled.calls) == before
        await accept.done()
        assert accept.result is not None
        await accept.result.aclose()
        for _ in range(9):
            await stack.enter_async_context(await listener.accept())


async def test_the_deadline_holds_in_a_shortage(autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 20)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        listener.set_deadline(1.5)
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 1.5


@pytest.mark.parametrize("how", ["deadline", "close", "cancel"])
async def test_a_wait_in_a_shortage_can_be_ended_at_once(how: str, autojump_clock: MockClock) -> None:
    troubled = Troubled(*[errno.EMFILE] * 20)
    async with Listener.from_socket(troubled) as listener, await troubled.connect_to_it():
        async with trio.open_nursery() as nursery:
            accept = Attempt(nursery, listener.accept)
            await trio.sleep(1.5)
            if how == "deadline":
                listener.set_deadline(past())
            elif how == "close":
                await listener.aclose()
            else:
                nursery.cancel_scope.cancel()
        assert accept.ended == 1.5
        if how != "cancel":
            assert accept.raised(DeadlineExceeded if how == "deadline" else trio.ClosedResourceError)


async def test_an_unforeseen_error_comes_out() -> None:
    troubled = Troubled(errno.EINVAL)
    async with Listener.from_socket(troubled) as listener:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await listener.accept()
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EINVAL


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """The process cannot open anything: its limit is at the first free number."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_out_of_descriptors_it_backs_off_and_loses_no_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_listener() as (listener, port), AsyncExitStack() as stack, trio.open_nursery() as nursery:
        clients = [await stack.enter_async_context(await open_tcp_stream(LOCALHOST, port)) for _ in range(3)]
        with no_free_descriptor():
            accept = Attempt(nursery, listener.accept)
            await trio.sleep(10.0)
            assert accept.pending
            # eight waits that double, then one each second
            assert len(caplog.records) == 17
            assert os.strerror(errno.EMFILE) in caplog.text
        await accept.done()
        assert accept.result is not None
        servers = [await stack.enter_async_context(accept.result)]
        servers += [await stack.enter_async_context(await listener.accept()) for _ in range(2)]
        peers = {server.socket.getpeername() for server in servers}
        assert peers == {client.socket.getsockname() for client in clients}


# unix sockets


async def test_a_unix_listener_makes_its_path_and_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for given in (path, str(path)):
        async with await open_unix_listener(given) as listener:
            assert path.is_socket()
            async with await open_unix_stream(path) as client, await listener.accept() as server:
                await client.send_all(b"x")
                assert await server.receive_some() == b"x"
        assert not path.exists()


async def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.is_socket()
    async with await open_unix_listener(path) as listener, await open_unix_stream(path), await listener.accept():
        pass


@pytest.mark.parametrize("full", [False, True], ids=["idle", "queue full"])
async def test_a_unix_socket_that_somebody_listens_on_is_not_taken_away(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "s"
    backlog = 0 if full else 2
    async with await open_unix_listener(path, backlog=backlog) as listener, AsyncExitStack() as stack:
        if full:
            await stack.enter_async_context(await open_unix_stream(path))
        with pytest.raises(OSError, match="in use"):
            await open_unix_listener(path)
        assert path.is_socket()
        if not full:
            await stack.enter_async_context(await open_unix_stream(path))
        # the second opener's own attempt to find out may be in the queue, too
        await stack.enter_async_context(await listener.accept())


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data", encoding="ascii")
    with pytest.raises(FileExistsError, match="is not a socket") as caught:
        await open_unix_listener(path)
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="ascii") == "data"


@pytest.mark.parametrize("kind", ["directory", "dangling link"])
async def test_whatever_else_is_at_the_path_is_told_from_a_socket_in_use(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "taken"
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError, match="is not a socket"):
        await open_unix_listener(path)


async def test_the_close_leaves_a_successors_socket_alone(tmp_path: Path) -> None:
    """Another process has replaced the socket while this one still listened."""
    path = tmp_path / "s"
    first = await open_unix_listener(path)
    path.unlink()
    async with await open_unix_listener(path) as second:
        await first.aclose()
        assert path.is_socket()
        async with await open_unix_stream(path), await second.accept():
            pass
    assert not path.exists()


async def test_a_relative_path_is_removed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_unix_listener("s"):
        monkeypatch.chdir("/")
    assert not (tmp_path / "s").exists()


async def test_a_path_that_cannot_be_removed_does_not_keep_the_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "not yours any more")

    listener = await open_unix_listener(tmp_path / "s")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        await listener.aclose()
    assert listener.socket.fileno() == -1
    await listener.aclose()


@pytest.mark.parametrize(
    ("umask", "mode", "bits"), [(0o077, 0o660, 0o660), (0o000, 0o600, 0o600), (0o027, None, 0o750)]
)
async def test_the_mode_of_a_unix_socket(tmp_path: Path, umask: int, mode: int | None, bits: int) -> None:
    path = tmp_path / "s"
    before = os.umask(umask)
    try:
        async with await open_unix_listener(path, mode=mode):
            assert stat.S_IMODE(path.stat().st_mode) == bits
            assert os.umask(umask) == umask
    finally:
        os.umask(before)


async def test_the_mode_is_set_before_anybody_can_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    set_mode = Path.chmod
    refused: list[bool] = []

    def chmod(file: Path, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(str(path))
        refused.append(True)
        set_mode(file, mode)

    monkeypatch.setattr(Path, "chmod", chmod)
    async with await open_unix_listener(path, mode=0o600):
        assert refused == [True]


async def test_a_unix_listener_that_cannot_be_opened_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "not allowed")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(PermissionError):
        await open_unix_listener(tmp_path / "s", mode=0o600)
    assert not (tmp_path / "s").exists()


async def test_closing_again_does_not_remove_a_successors_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = await open_unix_listener(path)
    await first.aclose()
    async with await open_unix_listener(path):
        await first.aclose()
        assert path.is_socket()


async def test_a_path_that_is_gone_already_does_not_hinder_the_close(tmp_path: Path) -> None:
    async with await open_unix_listener(tmp_path / "s"):
        (tmp_path / "s").unlink()


async def test_a_unix_listener_has_deadlines_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with await open_unix_listener(tmp_path / "s") as listener:
        listener.set_deadline(1.0)
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 1.0


# serving


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


async def test_serve_tcp_accepts_all_that_wait_in_one_turn(nursery: trio.Nursery) -> None:
    """One per turn would let newcomers starve beside busy handlers."""
    served: list[int] = []

    async def count(conn: Conn) -> None:
        served.append(current_pump().statistics().poller.descriptors)

    async def serve(task_status: trio.TaskStatus[list[Listener]]) -> None:
        await serve_tcp(count, 0, host=LOCALHOST, task_status=task_status)

    (listener,) = await nursery.start(serve)
    before = current_pump().statistics().poller.descriptors
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
