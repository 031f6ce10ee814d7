"""What a `Conn` promises beyond trio's contract and Go's tests: its deadlines to the bit, its errors, its close."""

from __future__ import annotations

import array
import errno
import math
import pickle
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from pathlib import Path
from typing import assert_type

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded, Listener, open_tcp_stream, open_unix_stream
from deadlined.net.sockets import LINGER_ZERO
from tests.support.net import (
    HOUR,
    INF,
    LOCALHOST,
    SERVER_NAME,
    Attempt,
    Operation,
    PairMaker,
    after,
    certificates,
    clog,
    fails_at_its_deadline,
    over_tcp_and_unix,
    past,
    receive_exactly,
    tcp_pair,
    tcp_sockets,
    unix_pair,
    unix_sockets,
)
from tests.support.poll import refuse_to_watch

# a deadline is a field of the connection


@over_tcp_and_unix
async def test_a_new_conn_has_no_deadline(pair: PairMaker) -> None:
    async with pair() as (client, _):
        assert client.read_deadline == client.write_deadline == INF


async def test_a_deadline_can_be_read_back_before_and_after_it_has_passed(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, _):
        client.set_read_deadline(0.1 + 0.2)
        client.set_write_deadline(-7.0)
        assert (client.read_deadline, client.write_deadline) == (0.1 + 0.2, -7.0)
        await fails_at_its_deadline(client.receive_some)
        assert (client.read_deadline, client.write_deadline) == (0.1 + 0.2, -7.0)
        client.set_deadline(9.0)
        assert (client.read_deadline, client.write_deadline) == (9.0, 9.0)


async def test_nan_is_refused_and_changes_nothing() -> None:
    async with unix_pair() as (client, _):
        client.set_deadline(after(HOUR))
        before = client.read_deadline, client.write_deadline
        for set_deadline in (client.set_deadline, client.set_read_deadline, client.set_write_deadline):
            with pytest.raises(ValueError, match="NaN"):
                set_deadline(math.nan)
        assert (client.read_deadline, client.write_deadline) == before


@pytest.mark.parametrize("first", [1.0, 3.0, INF])
@pytest.mark.parametrize("then", [0.75, 2.0, 5.0])
async def test_a_pending_read_obeys_the_deadline_as_it_was_last_set(
    first: float, then: float, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with unix_pair() as (client, _):
        client.set_read_deadline(first)
        read = Attempt(nursery, client.receive_some)
        await trio.sleep(0.5)
        client.set_read_deadline(then)
        await read.done()
        assert read.ended == then
        assert isinstance(read.error, DeadlineExceeded)
        assert read.error.deadline == then


async def test_a_deadline_moved_by_every_message_is_an_idle_timeout(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server), trio.open_nursery() as nursery:

        async def send_now_and_then() -> None:
            for _ in range(10):
                await trio.sleep(0.75)
                await server.send_all(b"x")

        nursery.start_soon(send_now_and_then)
        received = b""
        with pytest.raises(DeadlineExceeded):
            while True:
                client.set_read_deadline(after(1.0))
                received += await client.receive_some()
        assert received == b"x" * 10
        assert trio.current_time() == 8.5


@over_tcp_and_unix
async def test_an_expired_read_loses_nothing(pair: PairMaker) -> None:
    async with pair() as (client, server):
        await server.send_all(b"waiting")
        client.set_read_deadline(past())
        await fails_at_its_deadline(client.receive_some)
        client.set_read_deadline(after(HOUR))
        assert await client.receive_some() == b"waiting"


async def test_an_expired_deadline_is_sticky_until_it_is_moved(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server):
        client.set_deadline(1.0)
        await trio.sleep(2.0)
        operations: list[Operation] = [
            client.receive_some,
            lambda: client.send_all(b"x"),
            lambda: client.send_all(b""),
            client.wait_send_all_might_not_block,
            client.wait_readable,
            client.wait_writable,
        ]
        for operation in operations * 2:
            error = await fails_at_its_deadline(operation)
            assert error.deadline == 1.0
        for attempt in (client.try_receive, lambda: client.try_send(b"x"), lambda: client.try_send_parts([b"x"])):
            with pytest.raises(DeadlineExceeded):
                attempt()
        client.set_deadline(INF)
        await client.send_all(b"x")
        assert await server.receive_some() == b"x"


async def test_the_directions_expire_apart(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server):
        client.set_read_deadline(past())
        await client.send_all(b"x")
        client.set_read_deadline(INF)
        client.set_write_deadline(past())
        await server.send_all(b"y")
        assert await client.receive_some() == b"y"


async def test_an_expired_conn_can_still_end_its_side() -> None:
    async with unix_pair() as (client, server):
        client.set_deadline(past())
        await client.send_eof()
        assert await server.receive_some() == b""


# what the error carries


@over_tcp_and_unix
async def test_sent_counts_what_the_kernel_took_and_the_rest_can_follow(
    pair: PairMaker, autojump_clock: MockClock
) -> None:
    data = bytes(range(251)) * 80_000
    async with pair() as (client, server), trio.open_nursery() as nursery:
        client.set_write_deadline(1.5)
        error = await fails_at_its_deadline(lambda: client.send_all(data))
        assert (error.op, error.deadline) == ("write", 1.5)
        assert trio.current_time() == 1.5
        assert 0 < error.sent < len(data)
        assert str(error.sent) in str(error)
        received = Attempt(nursery, lambda: receive_exactly(server, len(data)))
        client.set_write_deadline(INF)
        await client.send_all(data[error.sent :])
        await received.done()
        assert received.result == data


async def test_sent_begins_anew_with_each_operation(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, _):
        client.set_write_deadline(1.0)
        first = await fails_at_its_deadline(lambda: client.send_all(bytes(10_000_000)))
        second = await fails_at_its_deadline(lambda: client.send_all(bytes(10_000_000)))
        client.set_write_deadline(2.0)
        third = await fails_at_its_deadline(client.wait_send_all_might_not_block)
        assert first.sent > 0
        assert second.sent == third.sent == 0


async def test_the_error_of_a_real_read_can_be_pickled(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, _):
        client.set_read_deadline(0.1)
        error = await fails_at_its_deadline(client.receive_some)
        again = pickle.loads(pickle.dumps(error))
        assert (again.op, again.deadline, again.sent, str(again)) == ("read", 0.1, 0, str(error))


# the end of a connection


async def test_abort_resets_the_connection_and_throws_away_what_is_unsent() -> None:
    async with tcp_pair() as (client, server):
        sent = await clog(client)
        client.abort()
        received = 0
        with pytest.raises(trio.BrokenResourceError) as caught:
            while data := await server.receive_some():
                received += len(data)
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        assert received < sent


async def test_close_delivers_what_was_sent() -> None:
    async with tcp_pair() as (client, server):
        sent = await clog(client)
        await client.aclose()
        assert len(await receive_exactly(server, sent + 1)) == sent


async def test_abort_of_a_unix_socket_is_a_close() -> None:
    async with unix_pair() as (client, server):
        await client.send_all(b"x")
        client.abort()
        assert await receive_exactly(server, 2) == b"x"


@over_tcp_and_unix
@pytest.mark.parametrize("end", [Conn.close, Conn.abort])
async def test_what_is_closed_stays_closed_and_says_so(pair: PairMaker, end: Callable[[Conn], None]) -> None:
    async with pair() as (client, _):
        end(client)
        assert client.socket.fileno() == -1
        client.abort()
        client.close()
        await client.aclose()
        operations: list[Operation] = [
            client.receive_some,
            lambda: client.send_all(b""),
            client.send_eof,
            client.wait_send_all_might_not_block,
            client.wait_readable,
            client.wait_writable,
        ]
        for operation in operations:
            with pytest.raises(trio.ClosedResourceError):
                await operation()
        for attempt in (client.try_receive, lambda: client.try_send(b""), lambda: client.try_send_parts([b""])):
            with pytest.raises(trio.ClosedResourceError):
                attempt()
        for set_deadline in (client.set_deadline, client.set_read_deadline, client.set_write_deadline):
            for when in (past(), after(1.0), INF):
                with pytest.raises(trio.ClosedResourceError):
                    set_deadline(when)


@over_tcp_and_unix
async def test_closed_beats_expired(pair: PairMaker) -> None:
    async with pair() as (client, _):
        client.set_deadline(past())
        client.close()
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_some()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_all(b"x")


@pytest.mark.parametrize("end", [Conn.close, Conn.abort])
async def test_both_pending_directions_hear_of_a_close(end: Callable[[Conn], None], nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, _):
        await clog(client)
        client.set_deadline(after(HOUR))
        read, write = Attempt(nursery, client.receive_some), Attempt(nursery, lambda: client.send_all(b"x"))
        await wait_all_tasks_blocked()
        assert read.pending
        assert write.pending
        end(client)
        for attempt in (read, write):
            await attempt.done()
            assert attempt.raised(trio.ClosedResourceError)


def test_a_conn_can_be_closed_after_its_run() -> None:
    async def make() -> tuple[Conn, socket.socket]:
        one, other = unix_sockets()
        return Conn.from_socket(one), other

    conn, other = trio.run(make)
    with other:
        conn.close()
        assert other.recv(1) == b""
    with pytest.raises(trio.ClosedResourceError):
        conn.set_deadline(0.0)


async def test_a_pending_write_hears_of_a_reset(nursery: trio.Nursery) -> None:
    async with tcp_pair() as (client, server):
        await clog(client)
        write = Attempt(nursery, lambda: client.send_all(b"x"))
        await wait_all_tasks_blocked()
        assert write.pending
        server.abort()
        await write.done()
        assert write.raised(trio.BrokenResourceError)


async def test_our_end_once_ended_takes_nothing_more_but_still_receives() -> None:
    async with tcp_pair() as (client, server):
        await client.send_eof()
        await client.send_eof()
        with pytest.raises(trio.ClosedResourceError, match="send_eof"):
            await client.send_all(b"x")
        with pytest.raises(trio.ClosedResourceError, match="send_eof"):
            client.try_send(b"x")
        with pytest.raises(trio.ClosedResourceError, match="send_eof"):
            client.try_send_parts([b"x"])
        assert await server.receive_some() == b""
        assert await server.receive_some() == b"", "the end of a stream stays"
        await server.send_all(b"answer")
        assert await client.receive_some() == b"answer"


async def test_ending_a_side_of_a_connection_that_is_gone_is_a_broken_resource() -> None:
    async with tcp_pair() as (client, server):
        server.abort()
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await client.send_eof()


# one task in each direction


async def test_a_second_reader_is_told_so_and_the_first_one_goes_on(nursery: trio.Nursery) -> None:
    async with unix_pair() as (client, server):
        read = Attempt(nursery, client.receive_some)
        await wait_all_tasks_blocked()
        for operation in (client.receive_some, client.wait_readable):
            with pytest.raises(trio.BusyResourceError):
                await operation()
        with pytest.raises(trio.BusyResourceError):
            client.try_receive()
        await client.send_all(b"the other direction is free")
        await server.send_all(b"x")
        await read.done()
        assert read.result == b"x"


async def test_a_second_writer_is_told_so_and_the_first_one_goes_on(nursery: trio.Nursery) -> None:
    async with unix_pair() as (client, server):
        sent = await clog(client)
        write = Attempt(nursery, lambda: client.send_all(b"x"))
        await wait_all_tasks_blocked()
        operations: list[Operation] = [
            lambda: client.send_all(b"y"),
            client.wait_send_all_might_not_block,
            client.wait_writable,
            client.send_eof,
        ]
        for operation in operations:
            with pytest.raises(trio.BusyResourceError):
                await operation()
        with pytest.raises(trio.BusyResourceError):
            client.try_send(b"y")
        await server.send_all(b"the other direction is free")
        received = await receive_exactly(server, sent + 1)
        await write.done()
        assert write.error is None
        assert received.endswith(b"x")


async def test_a_failed_operation_leaves_the_direction_free(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server):
        client.set_deadline(past())
        await fails_at_its_deadline(client.receive_some)
        await fails_at_its_deadline(lambda: client.send_all(b"x"))
        client.set_deadline(INF)
        with trio.move_on_after(1.0) as scope:
            await client.receive_some()
        assert scope.cancelled_caught
        with pytest.raises(TypeError):
            await client.send_all("text")  # type: ignore[arg-type]
        await client.send_all(b"x")
        await server.send_all(b"y")
        assert await client.receive_some() == b"y"


# what may be sent


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
@over_tcp_and_unix
async def test_any_buffer_can_be_sent(pair: PairMaker, kind: type) -> None:
    data = bytes(range(256)) * 20_000
    async with pair() as (client, server), trio.open_nursery() as nursery:
        received = Attempt(nursery, lambda: receive_exactly(server, len(data)))
        await client.send_all(kind(data))
        await received.done()
        assert received.result == data


async def test_a_view_of_wide_items_is_sent_by_its_bytes(nursery: trio.Nursery) -> None:
    items = array.array("I", range(1_000_000))
    async with unix_pair() as (client, server):
        received = Attempt(nursery, lambda: receive_exactly(server, len(items) * items.itemsize))
        await client.send_all(memoryview(items))
        await client.send_eof()
        await received.done()
        assert received.result == items.tobytes()


async def test_a_buffer_is_free_again_after_the_operation(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, _):
        data = bytearray(10_000_000)
        client.set_write_deadline(1.0)
        error = await fails_at_its_deadline(lambda: client.send_all(data))
        del data[: error.sent]  # a BufferError while somebody exports it
        assert len(data) == 10_000_000 - error.sent


# taking over a socket


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "the event queue is full")


async def test_from_socket_wants_a_stream_and_leaves_another_socket_alone() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        with pytest.raises(ValueError, match="SOCK_STREAM"):
            Conn.from_socket(datagrams)
        assert datagrams.fileno() >= 0


async def test_from_socket_refuses_what_belongs_to_an_event_loop_or_speaks_tls() -> None:
    context = certificates().client
    for taker in (Conn, Listener):
        with socket.socket() as plain, pytest.raises(TypeError, match=r"socket\.socket, not TransportSocket"):
            taker.from_socket(TransportSocket(plain))  # type: ignore[arg-type]
        with trio.socket.socket() as trios, pytest.raises(TypeError, match=r"socket\.socket, not _SocketType"):
            taker.from_socket(trios)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"socket\.socket, not int"):
            taker.from_socket(1)  # type: ignore[arg-type]
        wrapped = context.wrap_socket(socket.socket(), server_hostname=SERVER_NAME)
        with wrapped, pytest.raises(TypeError, match="not an SSLSocket: TlsConn"):
            taker.from_socket(wrapped)


async def test_a_socket_that_cannot_be_watched_stays_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = unix_sockets()
    with one, other, monkeypatch.context() as broken:
        refuse_to_watch(broken, no_room())
        with pytest.raises(OSError, match="the event queue is full"):
            Conn.from_socket(one)
        broken.undo()
        async with Conn.from_socket(one) as conn, Conn.from_socket(other) as peer:
            await peer.send_all(b"x")
            assert await conn.receive_some() == b"x"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_dialled_connection_that_cannot_be_watched_is_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as listening:
        listening.bind(("127.0.0.1", 0) if kind == "tcp" else str(tmp_path / "s"))
        listening.listen()
        refuse_to_watch(monkeypatch, no_room())
        with pytest.raises(OSError, match="the event queue is full") as caught:
            if kind == "tcp":
                await open_tcp_stream(*listening.getsockname())
            else:
                await open_unix_stream(tmp_path / "s")
        # the error's frames keep the socket from the collector
        with listening.accept()[0] as peer:
            peer.settimeout(30)
            assert peer.recv(1) == b""
        del caught


@over_tcp_and_unix
async def test_a_conn_is_an_iterator_of_bytes(pair: PairMaker, nursery: trio.Nursery) -> None:
    async with pair() as (client, server):
        await server.send_all(b"one")
        received = []
        async for data in client:
            # what the type checker sees, too
            assert_type(data, bytes)
            assert type(data) is bytes
            received.append(data)
            if len(received) == 1:
                await server.send_all(b"two")
            else:
                await server.send_eof()
        assert received == [b"one", b"two"]
        with pytest.raises(StopAsyncIteration):
            await anext(client)
        client.set_read_timeout(0.0)
        with pytest.raises(DeadlineExceeded):
            await anext(client)


async def test_from_socket_of_a_closed_one_is_an_error() -> None:
    one, other = unix_sockets()
    with other:
        one.close()
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            Conn.from_socket(one)
        assert caught.value.errno == errno.EBADF


def test_from_socket_needs_a_run() -> None:
    one, other = unix_sockets()
    with one, other, pytest.raises(RuntimeError):
        Conn.from_socket(one)


async def test_from_socket_makes_it_non_blocking_and_without_delay() -> None:
    one, other = tcp_sockets()
    async with Conn.from_socket(one) as client, Conn.from_socket(other):
        assert client.socket is one
        assert not one.getblocking()
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_one_that_is_made_without_from_socket_does_not_block_the_loop_either() -> None:
    one, other = unix_sockets()
    with socket.create_server((LOCALHOST, 0)) as listening:
        async with Conn(one), Conn(other), Listener(listening):
            assert not any(each.getblocking() for each in (one, other, listening))


async def test_a_socket_that_the_caller_closed_behind_our_back_ends_in_an_error_not_a_hang() -> None:
    async with unix_pair() as (client, _):
        client.socket.close()
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_some()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_all(b"x")


# its repr


async def test_it_shows_its_peer_its_state_and_its_deadlines() -> None:
    async with tcp_pair() as (client, server):
        host, port = client.socket.getpeername()
        open_one = f"peer={host}:{port} read_deadline=12.5 write_deadline=inf>"
        client.set_read_deadline(12.5)
        assert repr(client) == f"<Conn open {open_one}"
        await client.send_eof()
        assert repr(client) == f"<Conn eof sent {open_one}"
        client.close()
        # its descriptor's number may be another socket's
        with socket.socket():
            assert repr(client) == "<Conn closed>"
        server.abort()
        assert repr(server) == "<Conn closed>"


async def test_it_shows_what_it_knows_of_other_peers() -> None:
    one, other = socket.socketpair()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener, other:
        async with Conn.from_socket(one) as pair, await open_tcp_stream("::1", listener.getsockname()[1]) as client:
            assert f" peer=[::1]:{listener.getsockname()[1]} " in repr(client)
            assert " peer='' " in repr(pair)
            accepted, _ = listener.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
            accepted.close()
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()
            # the kernel does not know it any more
            assert " peer=None " in repr(client)
