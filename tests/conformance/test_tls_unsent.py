"""What a `TlsConn` has encrypted and not sent when a send or a handshake ends early: it goes out all the same."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import token_hex

import pytest
import trustme

from deadlined import BrokenResourceError, BusyResourceError, Conn, DeadlineExceeded, TlsConn
from tests.support.conformance import Loop, Operation, Running, on_each_loop
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.net import SERVER_NAME, certificates, tcp_sockets, unix_sockets

INF = float("inf")

# less than the stream encrypts at once, and more than the kernel takes for a peer that does not read
REQUEST = bytes(range(200)) * 250


def narrow(sockets: tuple[socket.socket, socket.socket]) -> tuple[socket.socket, socket.socket]:
    """Let the kernel take little of what the first one sends."""
    sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sockets[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return sockets


@asynccontextmanager
async def narrow_pair(
    loop: Loop, sockets: tuple[socket.socket, socket.socket] | None = None, *, https_compatible: bool = False
) -> AsyncIterator[tuple[TlsConn, TlsConn]]:
    """Give a client and a server after the handshake."""
    one, other = map(Conn.from_socket, narrow(sockets or unix_sockets()))
    async with one, other, loop.tasks() as tasks:
        client = TlsConn(one, certificates().client, server_hostname=SERVER_NAME, https_compatible=https_compatible)
        server = TlsConn(other, certificates().server, server_side=True)
        shaking = tasks.start(server.do_handshake)
        await client.do_handshake()
        await shaking.succeeds()
        server.set_deadline(loop.after(3600))
        yield client, server


async def receive_whole(stream: TlsConn, size: int) -> bytes:
    """Receive `size` bytes."""
    received = bytearray()
    while len(received) < size:
        received += await stream.receive_some(size - len(received))
    return bytes(received)


async def answer(server: TlsConn) -> None:
    """Read the request, and answer it."""
    assert await receive_whole(server, len(REQUEST)) == REQUEST
    await server.send_all(b"answer")


async def expires(loop: Loop, client: TlsConn, operation: Operation, *args: object) -> DeadlineExceeded:
    """Let the write deadline of an operation come when it has sent what it can."""
    async with loop.tasks() as tasks:
        running = tasks.start(operation, *args)
        await loop.settle()
        client.set_write_deadline(loop.after(-1))
        late: DeadlineExceeded = await running.fails_with(DeadlineExceeded)
    assert client.unsent
    return late


async def send_until_the_deadline(loop: Loop, client: TlsConn) -> None:
    """Encrypt the whole request, of which a part is sent."""
    assert (await expires(loop, client, client.send_all, REQUEST)).sent == len(REQUEST)


async def send_until_cancelled(loop: Loop, sending: Running) -> None:
    """Cancel a send that waits."""
    await loop.settle()
    assert sending.pending
    sending.cancel()
    await sending.wait()


@on_each_loop
@pytest.mark.parametrize("is_moved", [False, True])
async def test_the_answer_comes_to_a_request_whose_send_had_a_deadline(loop: Loop, is_moved: bool) -> None:
    async with narrow_pair(loop) as (client, server), loop.tasks() as tasks:
        await send_until_the_deadline(loop, client)
        if is_moved:
            client.set_write_deadline(INF)
        answering = tasks.start(answer, server)
        client.set_read_deadline(loop.after(3600))
        assert await client.receive_some() == b"answer"
        await answering.succeeds()


@on_each_loop
async def test_the_answer_comes_to_a_task_that_received_before(loop: Loop) -> None:
    async with narrow_pair(loop) as (client, server), loop.tasks() as tasks:
        client.set_read_deadline(loop.after(3600))
        receiving = tasks.start(client.receive_some)
        await send_until_cancelled(loop, tasks.start(client.send_all, REQUEST))
        answering = tasks.start(answer, server)
        assert await receiving.succeeds() == b"answer"
        await answering.succeeds()


@on_each_loop
async def test_it_goes_out_though_the_stream_is_not_used(loop: Loop) -> None:
    async with narrow_pair(loop) as (client, server):
        await send_until_the_deadline(loop, client)
        # each ends the poller's wait as well
        client.set_write_deadline(loop.after(-1))
        client.set_write_deadline(loop.after(1))
        await loop.sleep(2)
        assert await receive_whole(server, len(REQUEST)) == REQUEST
        assert not client.unsent


@on_each_loop
async def test_a_later_send_goes_on_after_it(loop: Loop) -> None:
    async with narrow_pair(loop) as (client, server), loop.tasks() as tasks:
        await send_until_the_deadline(loop, client)
        client.set_write_deadline(INF)
        sending = tasks.start(client.send_all, REQUEST)
        await loop.settle()
        waiting = tasks.start(client.receive_some)
        await loop.settle()
        await send_until_cancelled(loop, sending)
        assert await receive_whole(server, len(REQUEST)) == REQUEST
        ending = tasks.start(client.send_eof)
        # nothing of the cancelled send was encrypted
        assert await server.receive_some() == b""
        await ending.succeeds()
        assert waiting.pending


@on_each_loop
async def test_a_second_sender_is_refused_and_the_first_one_goes_on(loop: Loop) -> None:
    async with narrow_pair(loop) as (client, server), loop.tasks() as tasks:
        sending = tasks.start(client.send_all, REQUEST)
        await loop.settle()
        with pytest.raises(BusyResourceError):
            await client.send_all(b"x")
        for wait in (client.wait_writable, client.wait_send_all_might_not_block):
            with pytest.raises(BusyResourceError):
                await wait()
        assert await receive_whole(server, len(REQUEST)) == REQUEST
        await sending.succeeds()


@on_each_loop
async def test_a_close_notify_that_had_a_deadline_goes_out(loop: Loop) -> None:
    async with narrow_pair(loop) as (client, server):
        await send_until_the_deadline(loop, client)
        client.set_write_deadline(INF)
        await expires(loop, client, client.send_eof)
        assert await receive_whole(server, len(REQUEST)) == REQUEST
        assert await server.receive_some() == b""


@on_each_loop
@pytest.mark.parametrize("end", ["close", "abort"])
async def test_nothing_is_sent_after_a_close(loop: Loop, end: str) -> None:
    async with narrow_pair(loop) as (client, server):
        await send_until_the_deadline(loop, client)
        handed_over = client.handed_over
        getattr(client, end)()
        with pytest.raises(BrokenResourceError):
            await receive_whole(server, len(REQUEST))
        assert client.handed_over == handed_over


@on_each_loop
async def test_a_reset_is_no_end_though_the_poller_has_met_it(loop: Loop) -> None:
    async with narrow_pair(loop, tcp_sockets(), https_compatible=True) as (client, server):
        # over TCP the kernel takes more at first than its buffer has room for
        await expires(loop, client, client.send_all, bytes(2**20))
        server.abort()
        await loop.sleep(10)
        for _ in range(2):
            with pytest.raises(BrokenResourceError):
                await client.receive_some()
        client.set_write_deadline(INF)
        with pytest.raises(BrokenResourceError):
            await client.send_all(b"x")


def contexts_with_a_long_certificate() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a client's context, with a certificate that the kernel does not take at once, and a server's. Newer
    versions of OpenSSL compress certificates (RFC 8879), so its names are random."""
    authority = trustme.CA()
    client = ssl.create_default_context()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    long = [f"{token_hex(31)}.{token_hex(31)}.example" for _ in range(200)]
    for context, names in ((client, long), (server, [SERVER_NAME])):
        authority.configure_trust(context)
        authority.issue_cert(*names).configure_cert(context)
    return client, server


@on_each_loop
async def test_a_handshake_that_had_a_deadline_is_ended(loop: Loop) -> None:
    client_context, server_context = contexts_with_a_long_certificate()
    one, other = map(Conn.from_socket, narrow(unix_sockets()))
    async with one, other, loop.tasks() as tasks:
        client = TlsConn(one, client_context, server_hostname=SERVER_NAME)
        server = TlsConn(other, server_context, server_side=True)
        assert not client.shake_ready()
        await server.conn.wait_readable()
        assert not server.shake_ready()
        await expires(loop, client, client.do_handshake)
        greeting = tasks.start(server.send_all, b"hello")
        client.set_read_deadline(loop.after(3600))
        assert await client.receive_some() == b"hello"
        await greeting.succeeds()


@on_each_loop
async def test_the_error_of_a_late_send_does_not_keep_what_was_sent(loop: Loop) -> None:
    """In a cycle, which only the garbage collector frees."""
    async with narrow_pair(loop) as (client, _):

        async def send() -> None:
            client.set_write_deadline(loop.after(1))
            with suppress(DeadlineExceeded):
                await client.send_all(REQUEST)

        await assert_leaves_no_garbage(send)
