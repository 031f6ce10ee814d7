"""A raw connection through the proxy: bytes both ways, half-closes, and every end of it."""

from __future__ import annotations

import logging
import socket
import sys

import pytest
import trio

from deadlined import Conn, TlsConn
from deadlined.http import Phase, Reason
from deadlined.http.output import LIMIT
from tests.support.conformance import Loop, on_each_loop, on_loops
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import Client
from tests.support.net import LOCALHOST, SERVER_NAME, certificates
from tests.support.proxy import Guarded, Peer, end, guarding

# what looks like HTTP, and what does not
GARBAGE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\x00\xff\x16\x03\x01 HTTP/9\r\n" * 3


async def joined(guarded: Guarded) -> tuple[Client, Peer]:
    """Return both ends of a connection, once they are joined."""
    client = await guarded.site.connect()
    peer = await guarded.upstream.accept()
    server = guarded.site.server
    await guarded.site.until(lambda: len(server.connections(Phase.TUNNEL)) == server.open_connections)
    return client, peer


async def secured(guarded: Guarded) -> TlsConn:
    """Return a client that speaks TLS."""
    client = await guarded.site.connect()
    return TlsConn(client.conn, certificates().client, server_hostname=SERVER_NAME)


async def read(client: Client, size: int) -> bytes:
    """Return the next `size` bytes, and fail if there are more."""
    came = bytearray()
    while len(came) < size:
        data = await client.receive()
        assert data, bytes(came[-100:])
        came += data
    assert len(came) == size
    return bytes(came)


@on_each_loop
async def test_bytes_pass_both_ways_and_unchanged(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        client, peer = await joined(guarded)
        await client.send(GARBAGE)
        assert await peer.read(len(GARBAGE)) == GARBAGE
        await peer.send(GARBAGE[::-1])
        assert await read(client, len(GARBAGE)) == GARBAGE[::-1]
        (info,) = guarded.site.server.connections()
        assert (info.phase, info.requests) == (Phase.TUNNEL, 0)


@on_each_loop
async def test_a_server_may_speak_first(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        client, peer = await joined(guarded)
        await peer.send(b"220 mail.example\r\n")
        assert await client.receive() == b"220 mail.example\r\n"


@on_each_loop
async def test_many_connections_are_one_upstream_connection_each(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        pairs = [await joined(guarded) for _ in range(50)]
        for number, (client, _) in enumerate(pairs):
            await client.send(b"%02d" % number)
        came = [await peer.read(2) for _, peer in pairs]
        assert came == [b"%02d" % number for number in range(50)]
        assert guarded.proxy.statistics().upstreams[0].active == 50


# half-closes


@on_each_loop
async def test_an_end_of_the_client_is_passed_on_after_all_before_it(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"idle": 75}) as guarded:
        client, peer = await joined(guarded)
        await client.send(b"all of it")
        await client.conn.send_eof()
        assert await peer.read(9) == b"all of it"
        assert await peer.end() == "eof"
        # far longer than a websocket's tunnel would wait
        await loop.sleep(50)
        await peer.send(b"the answer")
        assert await client.receive() == b"the answer"
        await loop.sleep(50)
        await peer.send(b"the rest")
        await peer.conn.send_eof()
        assert await client.receive() == b"the rest"
        assert await client.end() == "eof"
        assert await guarded.site.reason() is Reason.DONE


@on_each_loop
async def test_an_end_of_the_upstream_is_passed_on_and_the_client_may_go_on_sending(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"idle": 75}) as guarded:
        client, peer = await joined(guarded)
        await peer.send(b"send me all")
        await peer.conn.send_eof()
        assert await client.receive() == b"send me all"
        assert await client.end() == "eof"
        for _ in range(3):
            await loop.sleep(50)
            await client.send(b"more")
            assert await peer.read(4) == b"more"
        await client.conn.send_eof()
        assert await peer.end() == "eof"
        assert await guarded.site.reason() is Reason.DONE
        assert guarded.site.requests == []
        statistics = guarded.site.server.statistics()
        assert (statistics.requests, statistics.answered) == (0, {})


@on_each_loop
async def test_what_an_upstream_has_not_read_when_both_have_ended_is_not_lost(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        # the accepted sockets inherit it: most of what is sent waits in the proxy's kernel
        guarded.upstream._listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client, peer = await joined(guarded)
        await peer.conn.send_eof()
        assert await client.end() == "eof"
        await client.send(bytes(20_000))
        await client.conn.send_eof()
        assert await guarded.site.reason() is Reason.DONE
        assert await peer.read(20_000) == bytes(20_000)
        assert await peer.end() == "eof"


@on_each_loop
async def test_half_closes_are_passed_on_behind_bytes_that_wait(loop: Loop) -> None:
    async with guarding(loop, raw=True, send_buffer=4096) as guarded:
        client, peer = await joined(guarded)
        body = bytes(range(256)) * 8_000
        guarded.tasks.start(_send_and_end, client, body)
        guarded.tasks.start(_send_and_end, peer, body)
        uploaded = guarded.tasks.start(peer.read, len(body))
        assert await read(client, len(body)) == body
        assert await client.end() == "eof"
        assert await uploaded.succeeds() == body
        assert await peer.end() == "eof"
        assert await guarded.site.reason() is Reason.DONE


async def _send_and_end(end: Client | Peer, body: bytes) -> None:
    await end.send(body)
    await end.conn.send_eof()


# back-pressure


@on_each_loop
@pytest.mark.parametrize("slow", ["client", "upstream"])
async def test_an_end_that_does_not_read_stops_the_other(loop: Loop, slow: str) -> None:
    async with guarding(loop, raw=True, send_buffer=4096) as guarded:
        client, peer = await joined(guarded)
        sender = peer if slow == "client" else client
        sending = guarded.tasks.start(sender.send, bytes(50_000_000))
        await loop.sleep(20)
        assert sending.pending
        (connection,) = guarded.site.server._connections
        assert connection.output.size <= 2 * LIMIT
        assert connection.transport.received < 20_000_000
        sending.cancel()


@on_each_loop
async def test_nothing_is_read_of_a_client_before_an_upstream_has_accepted(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1) as guarded:
        await joined(guarded)
        with socket.create_connection((LOCALHOST, guarded.site.port)) as second:
            # before the proxy can accept it
            second.sendall(b"first")
            async with Conn.from_socket(second) as conn:
                sending = guarded.tasks.start(conn.send_all, bytes(50_000_000))
                await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
                await loop.sleep(20)
                assert sending.pending
                assert sum(one.transport.received for one in guarded.site.server._connections) == 0
                sending.cancel()
                await sending.wait()


@on_each_loop
async def test_an_upstream_that_takes_nothing_for_too_long_has_failed(loop: Loop) -> None:
    async with guarding(loop, raw=True, upstream_idle=60) as guarded:
        client, _ = await joined(guarded)
        sending = guarded.tasks.start(client.send, bytes(50_000_000))
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        await sending.fails_with(trio.BrokenResourceError)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_idle_timeout": 1}


@on_each_loop
async def test_a_client_that_takes_nothing_for_too_long_is_cut(loop: Loop) -> None:
    async with guarding(loop, raw=True, send_buffer=4096, server={"write_grace": 10, "write_min_rate": 1e9}) as guarded:
        _, peer = await joined(guarded)
        sending = guarded.tasks.start(peer.send, bytes(50_000_000))
        assert await guarded.site.reason() is Reason.WRITE_TIMEOUT
        await sending.fails_with(trio.BrokenResourceError)


# ends


@on_each_loop
@pytest.mark.parametrize("ended", [False, True], ids=["open", "half-closed"])
async def test_a_reset_of_the_client_resets_the_upstream(loop: Loop, ended: bool) -> None:
    async with guarding(loop, raw=True) as guarded:
        client, peer = await joined(guarded)
        if ended:
            await peer.conn.send_eof()
            assert await client.end() == "eof"
        client.reset()
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        await loop.settle()
        assert (guarded.proxy.statistics().upstreams[0].active, guarded.site.server.background) == (0, 0)


@on_each_loop
@pytest.mark.parametrize("ended", [False, True], ids=["open", "half-closed"])
async def test_a_reset_of_the_upstream_resets_the_client(
    loop: Loop, ended: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarding(loop, raw=True) as guarded:
        client, peer = await joined(guarded)
        if ended:
            await client.conn.send_eof()
            assert await peer.end() == "eof"
        peer.conn.abort()
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_reset": 1}
        (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
        line = f"{guarded.upstream.address}: the upstream has failed (upstream_reset): the client was reset"
        assert record.getMessage().endswith(f": {line}")
        assert record.getMessage().startswith("127.0.0.1:")


@on_each_loop
async def test_a_connection_on_which_nothing_comes_ends(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"idle": 75}) as guarded:
        client, peer = await joined(guarded)
        for sender in (client, peer, client):
            await loop.sleep(50)
            due = loop.after(75)
            await sender.send(b"x")
        await peer.read(2)
        assert await peer.end() == "reset"
        assert loop.is_at(due)
        assert await read(client, 1) == b"x"
        assert await client.end() == "eof"
        assert await guarded.site.reason() is Reason.IDLE_TIMEOUT
        assert guarded.site.server.statistics().expired == {Phase.TUNNEL: 1}


@on_each_loop
async def test_one_that_is_half_closed_ends_so_too(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"idle": 75}) as guarded:
        client, peer = await joined(guarded)
        due = loop.after(75)
        await client.conn.send_eof()
        assert await peer.end() == "eof"
        assert await client.end() == "eof"
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.IDLE_TIMEOUT


@on_each_loop
async def test_another_idle_timeout_is_for_open_connections_too(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"idle": 7500}) as guarded:
        client, peer = await joined(guarded)
        await client.send(b"x")
        await peer.read(1)
        await loop.sleep(20)
        used = guarded.site.server.timeouts
        due = loop.after(5)
        guarded.site.server.configure(timeouts=type(used)(idle=loop.seconds(5)))
        assert await client.end() == "eof"
        assert loop.is_at(due)


@on_each_loop
async def test_one_that_is_read_slowly_is_not_idle(loop: Loop) -> None:
    async with guarding(loop, raw=True, send_buffer=4096, server={"idle": 75}) as guarded:
        client = await guarded.site.connect(receive_buffer=4096)
        peer = await guarded.upstream.accept()
        await peer.send(bytes(100_000))
        await peer.conn.send_eof()
        left = 100_000
        while left:
            left -= len(await client.receive())
            if left % 5 == 0:
                await loop.sleep(50)
        assert left == 0
        assert await client.end() == "eof"


@pytest.mark.skipif(sys.platform != "linux", reason="what a kernel acknowledges when is its own choice")
@on_loops("trio", "asyncio")  # in real time a kernel acknowledges more slowly than this test runs
async def test_one_that_is_read_too_slowly_to_make_room_is_not_idle(loop: Loop) -> None:
    """What waits for the client stays equal, while its kernel takes what the proxy's has."""
    async with guarding(loop, raw=True, server={"idle": 75}) as guarded, loop.tasks() as tasks:
        client = await guarded.site.connect(receive_buffer=4096)
        peer = await guarded.upstream.accept()
        sending = tasks.start(peer.send, bytes(4_000_000))
        for _ in range(8):
            await loop.sleep(50)
            left = 4096
            while left > 0:
                left -= len(await client.conn.receive_some(left))
        assert guarded.site.connections == []
        client.conn.abort()
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        await sending.fails_with(trio.BrokenResourceError)


@on_each_loop
async def test_a_drain_lets_it_go_on_until_an_end_closes(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"drain": 30}) as guarded:
        client, peer = await joined(guarded)
        guarded.site.server.shutdown()
        await loop.sleep(20)
        await client.send(b"x")
        assert await peer.read(1) == b"x"
        await peer.send(b"y")
        assert await client.receive() == b"y"
        await client.conn.send_eof()
        await peer.conn.send_eof()
        assert await guarded.site.reason() is Reason.DONE
        await guarded.site.serving.succeeds()
        assert not guarded.site.server.was_cut


@on_each_loop
async def test_a_drain_cuts_it_at_its_deadline_without_a_word(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"drain": 30}) as guarded:
        client, peer = await joined(guarded)
        await client.send(GARBAGE)
        due = loop.after(30)
        guarded.site.server.shutdown()
        assert await peer.read(len(GARBAGE)) == GARBAGE
        with pytest.raises(trio.BrokenResourceError):
            assert await client.receive() == b"no byte"
        assert loop.is_at(due)
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.DRAIN_TIMEOUT
        assert guarded.site.server.was_cut


@on_each_loop
async def test_a_client_in_the_queue_is_served_by_a_drain(loop: Loop) -> None:
    async with guarding(loop, raw=True, server={"drain": 30}) as guarded:
        client = await guarded.site.connect()
        guarded.site.server.shutdown()
        peer = await guarded.upstream.accept()
        await peer.send(b"hello")
        assert await client.receive() == b"hello"


# TLS towards the client


@on_each_loop
async def test_tls_ends_at_the_proxy(loop: Loop) -> None:
    async with guarding(loop, raw=True, ssl_context=certificates().server, server={"handshake": 10}) as guarded:
        client = await secured(guarded)
        shaking = guarded.tasks.start(client.do_handshake)
        # a server that speaks first does so after the handshake, without a byte of the client
        peer = await guarded.upstream.accept()
        await peer.send(b"220 hello")
        await shaking.succeeds()
        assert await client.receive_some() == b"220 hello"
        await client.send_all(GARBAGE)
        assert await peer.read(len(GARBAGE)) == GARBAGE


@on_each_loop
@pytest.mark.parametrize("first", ["client", "upstream"])
async def test_half_closes_pass_through_tls(loop: Loop, first: str) -> None:
    async with guarding(loop, raw=True, ssl_context=certificates().server) as guarded:
        client = await secured(guarded)
        await client.send_all(b"question")
        peer = await guarded.upstream.accept()
        assert await peer.read(8) == b"question"
        if first == "client":
            await client.send_eof()
            assert await peer.end() == "eof"
            await peer.send(b"answer")
            await peer.conn.send_eof()
            assert await client.receive_some() == b"answer"
            assert await client.receive_some() == b""
        else:
            await peer.send(b"answer")
            await peer.conn.send_eof()
            assert await client.receive_some() == b"answer"
            assert await client.receive_some() == b""
            await client.send_all(b"more")
            assert await peer.read(4) == b"more"
            await client.send_eof()
            assert await peer.end() == "eof"
        assert not client.truncated
        assert await guarded.site.reason() is Reason.DONE


@on_each_loop
@pytest.mark.parametrize("ended", [False, True], ids=["open", "half-closed"])
async def test_a_client_that_is_cut_in_the_middle_of_a_record_has_not_ended(loop: Loop, ended: bool) -> None:
    """As that of a client that is killed, or whose connection somebody cuts: an end would make it look complete."""
    async with guarding(loop, raw=True, ssl_context=certificates().server) as guarded:
        client = await secured(guarded)
        await client.send_all(b"insert 1;")
        peer = await guarded.upstream.accept()
        assert await peer.read(9) == b"insert 1;"
        if ended:
            await peer.conn.send_eof()
            assert await client.receive_some() == b""
        client._core.write(b"insert 2;")
        await client.conn.send_all(client._core.data_to_send()[:-1])
        await client.conn.send_eof()
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_a_client_that_ends_without_a_close_notify_has_ended(loop: Loop) -> None:
    """As many do, at the end of a record."""
    async with guarding(loop, raw=True, ssl_context=certificates().server) as guarded:
        client = await secured(guarded)
        await client.send_all(b"question")
        await client.conn.send_eof()
        peer = await guarded.upstream.accept()
        assert await peer.read(8) == b"question"
        assert await peer.end() == "eof"
        await peer.send(b"answer")
        await peer.conn.send_eof()
        assert await client.receive_some() == b"answer"
        assert await client.receive_some() == b""
        assert await guarded.site.reason() is Reason.DONE


@on_each_loop
async def test_much_passes_both_ways_through_tls(loop: Loop) -> None:
    async with guarding(loop, raw=True, ssl_context=certificates().server) as guarded:
        client = await secured(guarded)
        await client.do_handshake()
        peer = await guarded.upstream.accept()
        body = bytes(range(256)) * 10_000
        guarded.tasks.start(client.send_all, body)
        guarded.tasks.start(_send_and_end, peer, body)
        reading = guarded.tasks.start(peer.read, len(body))
        came = bytearray()
        while data := await client.receive_some():
            came += data
        assert bytes(came) == body
        assert await reading.succeeds() == body


@on_each_loop
async def test_who_speaks_no_tls_is_not_answered_in_http(loop: Loop) -> None:
    async with guarding(loop, raw=True, ssl_context=certificates().server) as guarded:
        client = await guarded.site.connect()
        await client.send(GARBAGE)
        with pytest.raises(trio.BrokenResourceError):
            assert await client.receive() == b"no byte"
        assert await guarded.site.reason() is Reason.PROTOCOL_ERROR
        assert guarded.upstream.accepted == 0


@on_each_loop
async def test_a_handshake_that_does_not_come_ends_without_an_upstream(loop: Loop) -> None:
    async with guarding(loop, raw=True, ssl_context=certificates().server, server={"handshake": 10}) as guarded:
        due = loop.after(10)
        client = await guarded.site.connect()
        assert await client.end() == "eof"
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.HANDSHAKE_TIMEOUT
        assert guarded.upstream.accepted == 0


@on_each_loop
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_raw_connection_that_has_ended_leaves_no_cycle(loop: Loop, how: str) -> None:
    """With both connections."""
    async with guarding(loop, raw=True) as guarded:

        async def pass_by() -> None:
            client, peer = await joined(guarded)
            await end(guarded, client, peer, how)
            await loop.settle()

        await assert_leaves_no_garbage(pass_by)
