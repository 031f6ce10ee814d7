"""`TlsConn`: the streams' contract, deadlines at every step, half-closes, ends, and real peers in threads."""

from __future__ import annotations

import array
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import trio
from trio.testing import MockClock, check_half_closeable_stream, check_two_way_stream, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded, TlsConn, open_tcp_listeners, open_tls_stream
from deadlined.net.tls import BATCH
from deadlined.runtime import current_host
from tests.support.net import INF, LOCALHOST, SERVER_NAME, certificates, port_of, tcp_pair, tcp_sockets, unix_pair
from tests.support.tls import ByHand, only_tls_12, shake_hands, tls_pair

MEGABYTE = 1 << 20

both_versions = pytest.mark.parametrize("context", [None, only_tls_12], ids=["TLS 1.3", "TLS 1.2"])
ContextMaker = Callable[[], ssl.SSLContext] | None


async def pair() -> Any:
    """Return both ends, as what trio's checks ask for; the class is registered as such a stream."""
    one, other = tcp_sockets()
    client = TlsConn(Conn.from_socket(one), certificates().client, server_hostname=SERVER_NAME)
    server = TlsConn(Conn.from_socket(other), certificates().server, server_side=True)
    await shake_hands(client, server)
    return client, server


async def clogged_pair() -> Any:
    """A pair of which neither can send a byte more until the other one receives."""
    both = await pair()
    for stream in both:
        before = -1
        # what the kernel has taken reaches the peer's buffer a moment later, which makes room
        while stream.handed_over > before:
            before = stream.handed_over
            stream.try_send(bytes(MEGABYTE))
            await trio.sleep(0.05)
    return both


async def test_it_keeps_the_contract_of_a_half_closeable_stream() -> None:
    await check_two_way_stream(pair, None)
    await check_half_closeable_stream(pair, clogged_pair)


async def test_it_is_a_stream_for_those_who_ask() -> None:
    async with tls_pair() as (client, server):
        assert isinstance(client, trio.abc.HalfCloseableStream)
        assert client.socket is client.conn.socket
        assert (client.ssl_object.version(), server.ssl_object.version()) == ("TLSv1.3", "TLSv1.3")


@both_versions
async def test_large_pieces_cross_in_both_directions(context: ContextMaker) -> None:
    data = bytes(range(256)) * 8192
    async with tls_pair(client_context=context and context()) as (client, server), trio.open_nursery() as nursery:

        async def send(stream: TlsConn) -> None:
            await stream.send_all(memoryview(data))
            await stream.send_all(b"")
            await stream.send_eof()

        async def receive(stream: TlsConn, size: int) -> None:
            assert b"".join([piece async for piece in _pieces(stream, size)]) == data

        for stream, size in ((client, 1000), (server, MEGABYTE)):
            nursery.start_soon(send, stream)
            nursery.start_soon(receive, stream, size)


async def _pieces(stream: TlsConn, size: int) -> AsyncIterator[bytes]:
    while piece := await stream.receive_some(size):
        assert len(piece) <= size
        yield piece


async def test_the_first_operation_does_the_handshake_and_a_second_task_is_refused() -> None:
    async with tls_pair(shaken=False) as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"hello")
        assert await server.receive_some() == b"hello"
        async with tls_pair(shaken=False) as (silent, _):
            nursery.start_soon(fails_as_closed, silent.do_handshake)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await silent.receive_some()
            # before its peer is, whose end it would notice
            silent.close()


async def fails_as_closed(operation: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await operation()


# deadlines


async def exceeds(operation: Callable[[], Awaitable[object]], op: str, when: float) -> DeadlineExceeded:
    with pytest.raises(DeadlineExceeded) as raised:
        await operation()
    assert (raised.value.op, raised.value.deadline, trio.current_time()) == (op, when, max(when, 0.0))
    return raised.value


@both_versions
async def test_a_handshake_goes_on_after_deadlines_at_any_byte(
    context: ContextMaker, autojump_clock: MockClock
) -> None:
    async with tcp_pair() as (near, far):
        client = ByHand(near)
        if context:
            client.core = type(client.core)(context(), False, SERVER_NAME)
        server = TlsConn(far, certificates().server, server_side=True)
        hello, when = client.hello(), 0.0
        for start in range(0, len(hello) - 1, 50):
            await near.send_all(hello[start : min(start + 50, len(hello) - 1)])
            when += 1.0
            server.set_deadline(when)
            await exceeds(server.do_handshake, "read", when)
        server.set_deadline(INF)
        await near.send_all(hello[-1:])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.finish()
        await client.send(b"hello")
        assert await server.receive_some() == b"hello"


async def test_an_expired_deadline_fails_even_if_bytes_are_here(autojump_clock: MockClock) -> None:
    async with tls_pair() as (client, server):
        await client.send_all(b"ab")
        assert await server.receive_some(1) == b"a"
        assert server.holds_bytes
        server.set_read_deadline(-1.0)
        await exceeds(server.receive_some, "read", -1.0)
        with pytest.raises(DeadlineExceeded):
            server.try_receive()
        server.set_read_deadline(INF)
        assert server.try_receive() == b"b"
        assert server.try_receive() is None


async def test_an_expired_write_deadline_encrypts_nothing(autojump_clock: MockClock) -> None:
    async with tls_pair() as (client, server):
        client.set_timeout(-1)
        operations: list[Callable[[], Awaitable[None]]] = [
            lambda: client.send_all(b"lost"),
            client.send_eof,
            client.wait_send_all_might_not_block,
        ]
        for operation in operations:
            with pytest.raises(DeadlineExceeded):
                await operation()
        client.set_deadline(INF)
        await client.send_all(b"hello")
        assert await server.receive_some() == b"hello"


async def test_a_receive_goes_on_after_a_deadline_in_the_middle_of_a_record(autojump_clock: MockClock) -> None:
    async with unix_pair() as (near, far):
        client = ByHand(near)
        server = TlsConn(far, certificates().server, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.shake_hands()
        client.core.write(b"in two pieces")
        record = client.core.data_to_send()
        for split in range(1, 8):
            await near.send_all(record[split - 1 : split])
            server.set_read_timeout(1.0)
            await exceeds(server.receive_some, "read", float(split))
        server.set_read_deadline(INF)
        await near.send_all(record[7:])
        assert await server.receive_some() == b"in two pieces"


async def drain_into(stream: TlsConn, received: bytearray) -> None:
    async for piece in stream:
        received += piece


async def test_a_send_goes_on_after_deadlines_in_the_middle_of_it(autojump_clock: MockClock) -> None:
    data = bytes(range(256)) * (32 * 1024)
    received = bytearray()
    async with tls_pair() as (client, server):
        client.set_write_deadline(1.0)
        first = await exceeds(lambda: client.send_all(data), "write", 1.0)
        assert 0 < first.sent < len(data)
        assert client.unsent
        client.set_write_deadline(2.0)
        second = await exceeds(lambda: client.send_all(data[first.sent :]), "write", 2.0)
        assert second.sent == 0
        client.set_write_deadline(INF)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain_into, server, received)
            await client.send_all(data[first.sent :])
            assert not client.unsent
            await client.send_eof()
        assert bytes(received) == data


async def test_a_view_of_wide_items_is_sent_by_its_bytes(autojump_clock: MockClock) -> None:
    items = array.array("I", range(100_000))
    received = bytearray()
    async with tls_pair() as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(drain_into, server, received)
        for size in (10, 40_000):
            begun = client.try_send(memoryview(items)[:size])
            await client.send_all(items[:size].tobytes()[begun:])
        await client.send_all(memoryview(items))
        # one of bytes, in rows
        assert client.try_send(memoryview(b"abcdef").cast("B", (2, 3))) == 6
        await client.send_eof()
    assert bytes(received) == items[:10].tobytes() + items[:40_000].tobytes() + items.tobytes() + b"abcdef"


async def test_a_cancelled_send_leaves_the_stream_whole(autojump_clock: MockClock) -> None:
    received = bytearray()
    async with tls_pair() as (client, server):
        with trio.move_on_after(1) as scope:
            await client.send_all(b"a" * (8 * MEGABYTE))
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain_into, server, received)
            await client.send_all(b"then this")
            await client.send_eof()
        assert bytes(received).strip(b"a") == b"then this"
        # the other direction has not suffered
        await server.send_all(b"back")
        assert await client.receive_some() == b"back"


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async with tls_pair() as (client, server):
        await client.send_all(b"hello")
        with trio.CancelScope() as scope:
            scope.cancel()
            await server.receive_some()
        assert scope.cancelled_caught
        assert await server.receive_some() == b"hello"


# ends


@both_versions
async def test_a_close_is_told_by_a_close_notify(context: ContextMaker) -> None:
    async with tls_pair(client_context=context and context()) as (client, server):
        await client.aclose()
        assert await server.receive_some() == b""
        assert not server.truncated
        assert await server.receive_some() == b""
        await client.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_some()
        with pytest.raises(trio.ClosedResourceError):
            await client.send_all(b"x")


@pytest.mark.parametrize("before", [b"", b"hello"])
@pytest.mark.parametrize("https_compatible", [False, True])
async def test_an_end_without_close_notify_is_told_apart(before: bytes, https_compatible: bool) -> None:
    async with tls_pair(https_compatible=https_compatible) as (client, server):
        if before:
            await client.send_all(before)
            assert await server.receive_some() == before
        await client.conn.send_eof()
        if https_compatible:
            assert await server.receive_some() == b""
        else:
            with pytest.raises(trio.BrokenResourceError, match="without TLS's close_notify"):
                await server.receive_some()
        assert server.truncated
        # it is a half-close all the same
        await server.send_all(b"still")
        assert await client.receive_some() == b"still"


async def test_half_closes_cross() -> None:
    async with tls_pair() as (client, server):
        await client.send_all(b"question")
        assert await server.receive_some(1) == b"q"
        # bytes lie in TLS while the close_notify is made
        await server.send_eof()
        await server.send_eof()
        assert await client.receive_some() == b""
        await client.send_all(b", more")
        with pytest.raises(trio.ClosedResourceError, match="send_eof"):
            await server.send_all(b"x")
        await client.send_eof()
        assert b"".join([piece async for piece in server]) == b"uestion, more"
        assert not server.truncated


async def test_a_client_that_reads_nothing_can_say_something_and_leave() -> None:
    """Session tickets that lie unread in its socket would make its close a reset."""
    async with tcp_pair() as (near, far):
        client = ByHand(near)
        server = TlsConn(far, certificates().server, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.shake_hands()
        await client.send(b"goodbye")
        client.core.end()
        await near.send_all(client.core.data_to_send())
        await near.aclose()
        assert [piece async for piece in server] == [b"goodbye"]


async def test_session_tickets_come_with_the_first_bytes() -> None:
    async with tcp_pair() as (near, far):
        client = ByHand(near)
        server = TlsConn(far, certificates().server, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.shake_hands()
        assert client.core.ssl_object.session is None or not client.core.ssl_object.session.has_ticket
        await server.send_all(b"hello")
        assert await client.receive() == b"hello"
        session = client.core.ssl_object.session
        assert session is not None
        assert session.has_ticket


async def test_a_reset_breaks_both_directions() -> None:
    async with tls_pair() as (client, server):
        client.abort()
        with pytest.raises(trio.BrokenResourceError) as raised:
            await server.receive_some()
        assert isinstance(raised.value, ConnectionError)
        with pytest.raises(trio.BrokenResourceError):
            await server.send_all(b"x")


async def test_a_buffer_can_be_emptied_while_the_error_of_its_send_is_handled() -> None:
    for size in (10, 100_000):
        async with tls_pair() as (client, server):
            client.abort()
            await server.conn.wait_readable()
            data = bytearray(size)
            with pytest.raises(trio.BrokenResourceError) as raised:
                await server.send_all(data)
            data.clear()
            assert raised.value.__traceback__ is not None


@pytest.mark.parametrize("https_compatible", [False, True])
async def test_a_reset_that_a_send_was_told_is_no_end(https_compatible: bool) -> None:
    """A protocol that ends its messages itself would take the end for the peer's."""
    async with tls_pair(https_compatible=https_compatible) as (client, server):
        await client.send_all(b"part")
        client.abort()
        with pytest.raises(trio.BrokenResourceError):
            await server.send_all(b"x")
        assert await server.receive_some() == b"part"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError, match="reset"):
                await server.receive_some()
        assert not server.truncated


async def test_a_peer_that_leaves_in_the_handshake_is_noticed() -> None:
    async with tcp_pair() as (near, far):
        server = TlsConn(far, certificates().server, server_side=True)
        await near.send_all(ByHand(near).hello()[:100])
        await near.send_eof()
        with pytest.raises(trio.BrokenResourceError, match="middle of the TLS handshake"):
            await server.do_handshake()


async def test_a_refused_handshake_tells_the_peer_why() -> None:
    async with tcp_pair() as (near, far):
        client = TlsConn(near, ssl.create_default_context(), server_hostname=SERVER_NAME)
        server = TlsConn(far, certificates().server, server_side=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, client, "certificate is not accepted")
            nursery.start_soon(refused, server, "the peer refuses it: unknown ca")


async def refused(stream: TlsConn, words: str) -> None:
    with pytest.raises(trio.BrokenResourceError, match=words) as raised:
        await stream.do_handshake()
    assert isinstance(raised.value.__cause__, ssl.SSLError)


async def test_nothing_is_left_in_the_event_queue() -> None:
    before = len(current_host().poller._descs)
    for end in ("aclose", "close", "abort"):
        async with tls_pair() as (client, server):
            for stream in (client, server):
                closing = getattr(stream, end)()
                if closing is not None:
                    await closing
    assert len(current_host().poller._descs) == before


async def test_bytes_that_were_read_before_are_given_to_tls() -> None:
    async with tcp_pair() as (near, far):
        client = ByHand(near)
        server = TlsConn(far, certificates().server, server_side=True, received=client.hello())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.do_handshake)
            await client.finish()
        await server.send_all(b"hello")
        assert await client.receive() == b"hello"


async def test_a_size_that_is_none_is_refused() -> None:
    async with tls_pair() as (client, _):
        with pytest.raises(ValueError, match="max_bytes"):
            await client.receive_some(0)


# Python's own ssl on the other side, in a thread


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
    assert not thread.is_alive()
    assert failures == []


@both_versions
async def test_a_blocking_client_of_python(context: ContextMaker) -> None:
    near, far = tcp_sockets()

    def client() -> None:
        with (context() if context else certificates().client).wrap_socket(near, server_hostname=SERVER_NAME) as tls:
            tls.sendall(b"x" * MEGABYTE)
            assert tls.read(5) == b"hello"
            tls.unwrap().close()

    async with TlsConn(Conn.from_socket(far), certificates().server, server_side=True) as server:
        with in_thread(client):
            received = 0
            while received < MEGABYTE:
                received += len(await server.receive_some())
            await server.send_all(b"hello")
            assert await server.receive_some() == b""
            await server.send_eof()


@both_versions
async def test_a_blocking_server_of_python(context: ContextMaker) -> None:
    near, far = tcp_sockets()

    def serve() -> None:
        with certificates().server.wrap_socket(far, server_side=True) as tls:
            tls.sendall(tls.read(5).upper())
            tls.unwrap().close()

    chosen = context() if context else certificates().client
    async with TlsConn(Conn.from_socket(near), chosen, server_hostname=SERVER_NAME) as client:
        with in_thread(serve):
            await client.send_all(b"hello")
            assert await client.receive_some() == b"HELLO"
            assert await client.receive_some() == b""
            await client.send_eof()


# dialing


@pytest.mark.parametrize("name", [SERVER_NAME, f"{SERVER_NAME}."])
async def test_open_tls_stream_sets_up_all_and_leaves_no_deadline(name: str, autojump_clock: MockClock) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with listener, trio.open_nursery() as nursery:

        async def serve() -> None:
            async with TlsConn(await listener.accept(), certificates().server, server_side=True) as server:
                await server.send_all(b"hello")
                await server.receive_some()

        nursery.start_soon(serve)
        async with await open_tls_stream(
            LOCALHOST, port_of(listener), ssl_context=certificates().client, server_hostname=name, deadline=10
        ) as client:
            assert client.ssl_object.server_hostname == SERVER_NAME
            assert await client.receive_some() == b"hello"
            assert (client.read_deadline, client.write_deadline) == (INF, INF)


async def test_open_tls_stream_ends_a_silent_handshake(autojump_clock: MockClock) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with listener:
        with pytest.raises(DeadlineExceeded) as raised:
            await open_tls_stream(LOCALHOST, port_of(listener), deadline=5.0)
        assert (raised.value.op, trio.current_time()) == ("connect", 5.0)
        (await listener.accept()).close()


async def test_open_tls_stream_verifies_the_name(autojump_clock: MockClock) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with listener, trio.open_nursery() as nursery:

        async def serve() -> None:
            async with TlsConn(await listener.accept(), certificates().server, server_side=True) as server:
                await refused(server, "the peer refuses it")

        nursery.start_soon(serve)
        with pytest.raises(trio.BrokenResourceError, match="certificate is not accepted"):
            await open_tls_stream(LOCALHOST, port_of(listener), ssl_context=certificates().client)


async def test_a_peer_that_does_not_read_the_answers_of_tls_is_given_up() -> None:
    """The answers to key updates, which Python cannot ask for: here the kernel is full, and the sum stands for them."""
    client, server = await clogged_pair()
    async with client, server:
        server._unsent += bytes(4 * BATCH)
        server._core._outgoing.write(b"another answer")
        with pytest.raises(trio.BrokenResourceError, match="does not read the answers"):
            server.receive_ready()
