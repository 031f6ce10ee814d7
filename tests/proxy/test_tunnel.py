"""A connection after an upgrade through the proxy: bytes both ways, and every end of it."""

from __future__ import annotations

import logging

import pytest
import trio

from deadlined import TlsConn, current_time
from deadlined.http import Phase, Reason
from deadlined.http.policy import LINGER
from deadlined.proxy.tunnel import GRACE, Tunnel
from deadlined.proxy.upstream import TOLERATED
from tests.support.builds import interpreted_only
from tests.support.conformance import Loop, in_virtual_time, on_each_loop
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import GET, Client
from tests.support.net import SERVER_NAME, certificates
from tests.support.proxy import INF, OK, Guarded, Peer, end, guarding

UPGRADE = (
    b"GET /chat HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: k\r\n\r\n"
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: a\r\n\r\n"
)

# more than the kernels take of a proxy whose client does not read, and so little that the proxy takes it all
REST = b"r" * 50_000


async def tunnelled(guarded: Guarded, early: bytes = b"") -> tuple[Client, Peer]:
    """Return both ends of a tunnel."""
    client, peer = await guarded.begin(UPGRADE)
    head = await peer.answer(SWITCH + early)
    assert b"\r\nconnection: Upgrade\r\nupgrade: websocket\r\n" in head
    assert b"\r\nsec-websocket-key: k\r\n" in head
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += await client.receive()
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n")
    assert b"\r\nsec-websocket-accept: a" in head
    while len(rest) < len(early):
        rest += await client.receive()
    assert rest == early
    return client, peer


async def tunnelled_through_tls(guarded: Guarded) -> tuple[TlsConn, Peer]:
    """Return both ends of a tunnel whose client speaks TLS."""
    plain = await guarded.site.connect()
    client = TlsConn(plain.conn, certificates().client, server_hostname=SERVER_NAME)
    await client.send_all(UPGRADE)
    peer = await guarded.upstream.accept()
    await peer.answer(SWITCH)
    assert (await client.receive_some()).endswith(b"\r\n\r\n")
    return client, peer


async def joined(guarded: Guarded) -> tuple[Client, Peer]:
    """Return both ends of a raw connection, once they are joined."""
    client = await guarded.site.connect()
    peer = await guarded.upstream.accept()
    await guarded.site.until(lambda: guarded.site.server.connections(Phase.TUNNEL))
    return client, peer


@on_each_loop
async def test_bytes_pass_both_ways_and_unchanged(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded, b"\x00first")
        await client.send(b"GET / HTTP/1.1\r\n\xff")
        assert await peer.read(17) == b"GET / HTTP/1.1\r\n\xff"
        await peer.send(b"\x81\x02hi")
        assert await client.receive() == b"\x81\x02hi"


@on_each_loop
async def test_a_refused_upgrade_is_an_ordinary_response(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(UPGRADE)
        await peer.answer()
        assert (await client.response()).body == b"fine"
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await peer.answer()
        assert (await client.response()).status == 200


@on_each_loop
@pytest.mark.parametrize("is_first", [True, False], ids=["in a task", "without a task"])
async def test_an_upstream_can_demand_an_upgrade(loop: Loop, is_first: bool) -> None:
    async with guarding(loop) as guarded:
        if is_first:
            client, peer = await guarded.begin()
        else:
            client, peer = await guarded.used_once()
            await client.send(GET)
        await peer.answer(
            b"HTTP/1.1 426 Upgrade Required\r\nconnection: x-own, Upgrade\r\nupgrade: websocket\r\nx-own: 1\r\n"
            b"sec-websocket-version: 13\r\ncontent-length: 0\r\n\r\n"
        )
        response = await client.response()
        assert response.status == 426
        assert response.headers["upgrade"] == "websocket"
        assert response.headers["connection"] == "Upgrade"
        assert response.headers["sec-websocket-version"] == "13"
        assert "x-own" not in response.headers


@on_each_loop
async def test_an_upgrade_that_an_upstream_only_offers_is_not_passed_on(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(OK.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"))
        response = await client.response()
        assert not {"upgrade", "connection"} & set(response.headers)


@on_each_loop
@pytest.mark.parametrize("protocol", [b"h2c", b"TLS/1.2", b"websocket, h2c"])
async def test_no_other_http_and_no_tls_is_asked_for(loop: Loop, protocol: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(UPGRADE.replace(b"upgrade: websocket", b"upgrade: " + protocol))
        head = await peer.answer()
        assert b"upgrade" not in head.lower()
        assert (await client.response()).status == 200


@on_each_loop
async def test_much_passes_both_ways_at_once(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        body = bytes(range(256)) * 20_000
        guarded.tasks.start(client.send, body)
        guarded.tasks.start(peer.send, body)
        came = b""
        reading = guarded.tasks.start(peer.read, len(body))
        while len(came) < len(body):
            came += await client.receive()
        assert came == body
        assert await reading.succeeds() == body


@on_each_loop
async def test_an_end_of_the_upstream_ends_the_client(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        await peer.send(b"bye")
        await peer.conn.aclose()
        assert await client.receive() == b"bye"
        assert await client.end() == "eof"
        client.conn.close()
        assert await guarded.site.reason() is Reason.DONE


@in_virtual_time
async def test_a_client_that_stays_after_the_end_of_the_upstream_is_in_no_tunnel(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        await peer.conn.aclose()
        assert await client.end() == "eof"
        (info,) = guarded.site.server.connections()
        assert info.phase is Phase.CLOSING
        assert 0 < info.left <= LINGER
        assert await guarded.site.reason() is Reason.DONE
        assert guarded.site.connections[0].phase is Phase.TUNNEL


async def with_a_rest(guarded: Guarded) -> tuple[Client, Peer]:
    """Return both ends of a tunnel whose upstream has sent REST and ended; the client has not read yet."""
    client = await guarded.site.connect(receive_buffer=2048)
    await client.send(UPGRADE)
    peer = await guarded.upstream.accept()
    await peer.answer(SWITCH + REST)
    await peer.conn.aclose()
    # the task of the handler, and its place at the upstream, are not needed for the rest
    await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
    (info,) = guarded.site.server.connections()
    assert info.phase is Phase.WRITE
    return client, peer


@in_virtual_time
@pytest.mark.parametrize("meanwhile", ["is silent", "sends", "ends its side"])
async def test_a_client_reads_all_of_an_upstream_that_has_ended_however_slowly(loop: Loop, meanwhile: str) -> None:
    async with guarding(loop, send_buffer=4096, server={"idle": 75}) as guarded:
        client, _ = await with_a_rest(guarded)
        if meanwhile == "sends":
            await client.send(bytes(10_000))
        elif meanwhile == "ends its side":
            await client.conn.send_eof()
        data = b""
        while not data.endswith(REST):
            await loop.sleep(5)
            data += await client.receive()
        assert await client.end() == "eof"
        client.conn.close()
        assert await guarded.site.reason() is Reason.DONE
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@in_virtual_time
async def test_a_client_that_does_not_read_what_an_ended_upstream_has_sent_is_reset(loop: Loop) -> None:
    async with guarding(loop, send_buffer=4096, server={"write_grace": 10, "write_min_rate": INF}) as guarded:
        client, _ = await with_a_rest(guarded)
        due = loop.after(10)
        assert await guarded.site.reason() is Reason.WRITE_TIMEOUT
        assert abs(current_time() - due) < 0.5
        assert await client.end() == "reset"


@on_each_loop
async def test_an_end_of_the_client_reaches_the_upstream_which_may_still_answer(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        await client.send(b"last words")
        await client.conn.send_eof()
        assert await peer.read(10) == b"last words"
        assert await peer.end() == "eof"
        await peer.send(b"heard")
        await peer.conn.aclose()
        assert await client.receive() == b"heard"
        assert await client.end() == "eof"


@on_each_loop
async def test_an_upstream_has_some_seconds_after_the_end_of_its_client(loop: Loop) -> None:
    async with guarding(loop, server={"idle": 75}) as guarded:
        client, peer = await tunnelled(guarded)
        await client.conn.send_eof()
        assert await peer.end() == "eof"
        if loop.is_virtual:
            due = loop.after(GRACE)
            assert await client.end() == "eof"
            assert loop.is_at(due)


@on_each_loop
@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_a_reset_ends_the_other_side(loop: Loop, who: str) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        if who == "client":
            client.reset()
            assert await peer.end() in ("eof", "reset")
            assert await guarded.site.reason() is Reason.CLIENT_RESET
        else:
            peer.conn.abort()
            # an end would make what has come look complete
            assert await client.end() == "reset"
            assert await guarded.site.reason() is Reason.UPSTREAM_FAILED


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["upgraded", "raw"])
@pytest.mark.parametrize("how", ["alone", "after the upstream's"])
async def test_a_reset_of_the_client_is_passed_on_also_if_the_upstream_does_not_read(
    loop: Loop, how: str, raw: bool
) -> None:
    async with guarding(loop, raw=raw) as guarded:
        client, peer = await (joined if raw else tunnelled)(guarded)
        sending = guarded.tasks.start(client.send, bytes(50_000_000))
        await loop.sleep(20)
        assert sending.pending
        if how != "alone":
            # nobody can tell which came first, and the client may have brought the other about
            peer.conn.abort()
        client.reset()
        await sending.wait()
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        if how == "alone":
            assert await peer.end() == "reset"
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_a_reset_of_the_upstream_is_none_of_tls_ends(loop: Loop) -> None:
    async with guarding(loop, ssl_context=certificates().server) as guarded:
        client, peer = await tunnelled_through_tls(guarded)
        await peer.send(b"output, so f")
        peer.conn.abort()
        assert await client.receive_some() == b"output, so f"
        # after a close_notify it would be b""
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED


@on_each_loop
async def test_a_client_that_is_cut_in_the_middle_of_a_record_has_not_ended(loop: Loop) -> None:
    async with guarding(loop, ssl_context=certificates().server) as guarded:
        client, peer = await tunnelled_through_tls(guarded)
        client._core.write(b"insert 2;")
        await client.conn.send_all(client._core.data_to_send()[:-1])
        await client.conn.send_eof()
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.CLIENT_RESET


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["upgraded", "raw"])
async def test_what_came_before_a_reset_is_passed_on_also_if_a_send_finds_it(loop: Loop, raw: bool) -> None:
    """As that of a server which says why it closes on what it will not read."""
    async with guarding(loop, raw=raw) as guarded:
        client, peer = await (joined if raw else tunnelled)(guarded)
        # what the client sends is passed on before the task that receives from the upstream runs
        client.push(b"more than it wants")
        peer.conn.try_send(b"too much")
        peer.conn.abort()
        assert await client.receive() == b"too much"
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].failures)


@on_each_loop
@interpreted_only
async def test_a_handler_that_fails_resets_the_client(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(tunnel: Tunnel) -> None:
        raise ValueError("a mistake of the proxy")

    monkeypatch.setattr(Tunnel, "run", fail)
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(UPGRADE)
        await peer.answer(SWITCH)
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.SERVER_ERROR
    assert "a mistake of the proxy" in caplog.text


@on_each_loop
async def test_a_tunnel_on_which_nothing_comes_ends(loop: Loop) -> None:
    async with guarding(loop, server={"idle": 75}) as guarded:
        client, peer = await tunnelled(guarded)
        for sender in (client, peer, client):
            await loop.sleep(50)
            due = loop.after(75)
            await sender.send(b"x")
        await peer.read(2)
        assert await peer.end() in ("eof", "reset")
        assert loop.is_at(due)
        assert await client.receive() == b"x"
        assert await client.end() in ("eof", "reset")
        assert await guarded.site.reason() is Reason.IDLE_TIMEOUT


@on_each_loop
@pytest.mark.parametrize("who", ["client", "upstream"])
async def test_an_end_that_does_not_read_stops_the_other(loop: Loop, who: str) -> None:
    async with guarding(loop, send_buffer=4096) as guarded:
        client, peer = await tunnelled(guarded)
        sender = peer if who == "client" else client
        sending = guarded.tasks.start(sender.send, bytes(50_000_000))
        await loop.sleep(20)
        assert sending.pending
        sending.cancel()


@on_each_loop
async def test_an_upstream_that_takes_nothing_for_too_long_ends_the_tunnel(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=60) as guarded:
        client, _ = await tunnelled(guarded)
        sending = guarded.tasks.start(client.send, bytes(50_000_000))
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        await sending.fails_with(trio.BrokenResourceError)


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["upgraded", "raw"])
@pytest.mark.parametrize("reads", [True, False])
async def test_an_upstream_need_not_read_while_its_client_does_not(loop: Loop, raw: bool, reads: bool) -> None:
    size = 20_000_000
    async with guarding(loop, raw=raw, upstream_idle=30) as guarded:
        client, peer = await (joined if raw else tunnelled)(guarded)
        sending = guarded.tasks.start(client.send_what_is_taken, bytes(size))
        guarded.tasks.start(peer.send, bytes(size))
        await guarded.come_to_rest()
        await loop.sleep(90)
        assert guarded.proxy.statistics().upstreams[0].failures == {}
        due = loop.after(30)
        reading = guarded.tasks.start(peer.read, size) if reads else None
        left = size
        while left > 0:
            left -= len(client.conn.try_receive() or b"")
            # never asleep: virtual time must not pass while the kernel delivers
            await loop.step()
        if reading is not None:
            assert await reading.succeeds() == bytes(size)
        else:
            # the client is reset
            await sending.succeeds()
            assert loop.is_at(due)


@on_each_loop
async def test_a_drain_waits_for_a_tunnel_until_its_deadline(loop: Loop) -> None:
    async with guarding(loop, server={"drain": 30}) as guarded:
        client, peer = await tunnelled(guarded)
        due = loop.after(30)
        guarded.site.server.shutdown()
        await client.send(b"x")
        assert await peer.read(1) == b"x"
        assert await client.end() in ("eof", "reset")
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.DRAIN_TIMEOUT


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["upgraded", "raw"])
async def test_one_whose_connection_is_too_old_ends(loop: Loop, raw: bool) -> None:
    async with guarding(loop, raw=raw, server={"idle": 75, "connection_age": 100}) as guarded:
        begun = loop.after(0)
        client, peer = await (joined if raw else tunnelled)(guarded)
        sent = 0
        while not guarded.site.connections:
            await loop.sleep(5)
            assert sent < 30
            sent += 1
            await client.send_what_is_taken(b"x")
        assert guarded.site.connections[0].reason is Reason.CONNECTION_AGE
        if loop.is_virtual:
            assert 90 <= loop.after(0) - begun <= 115
        assert await peer.end() in ("eof", "reset")
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_one_whose_connection_is_too_old_before_it_begins_is_not_late(loop: Loop) -> None:
    async with guarding(loop, server={"idle": 200, "connection_age": 100}) as guarded:
        client, peer = await guarded.used_once()
        await loop.sleep(120)
        await client.send(UPGRADE)
        await peer.answer(SWITCH)
        assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
        assert await client.end() == "eof"
        assert await guarded.site.reason() is Reason.CONNECTION_AGE
        if loop.is_virtual:
            assert guarded.site.connections[0].lateness == 0.0


@on_each_loop
async def test_an_upstream_that_switches_to_another_protocol_is_a_502(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(UPGRADE)
        guarded.tasks.start(guarded.upstream.serve, SWITCH.replace(b"upgrade: websocket", b"upgrade: h2c"))
        assert (await client.response()).status == 502


@on_each_loop
async def test_an_upstream_that_breaks_a_tunnel_off_has_failed(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        peer.conn.abort()
        await client.end()
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].failures)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_reset": 1}


@on_each_loop
@pytest.mark.parametrize("how", ["reset", "idle"])
async def test_tunnels_that_break_off_do_not_eject_the_upstream(loop: Loop, how: str) -> None:
    """A client can bring that about: by frames that are too large, or by not reading what answers its own."""
    async with guarding(loop, upstream_idle=60) as guarded:
        tunnels = [await tunnelled(guarded) for _ in range(2 * TOLERATED)]
        if how == "reset":
            for _, peer in tunnels:
                peer.conn.abort()
        else:
            for client, _ in tunnels:
                guarded.tasks.start(client.send, bytes(50_000_000))
        await guarded.site.reason(len(tunnels))
        statistics = guarded.proxy.statistics
        await guarded.site.until(lambda: statistics().upstreams[0].active == 0)
        name = "upstream_reset" if how == "reset" else "upstream_idle_timeout"
        assert statistics().upstreams[0].failures == {name: len(tunnels)}
        assert not statistics().upstreams[0].ejected


@on_each_loop
async def test_nothing_is_logged_as_an_error(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async with guarding(loop) as guarded:
        client, peer = await tunnelled(guarded)
        client.reset()
        await peer.end()
        client, peer = await tunnelled(guarded)
        peer.conn.abort()
        await client.end()
        await guarded.site.reason(2)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@on_each_loop
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_tunnel_that_has_ended_leaves_no_cycle(loop: Loop, how: str) -> None:
    """With both connections."""
    async with guarding(loop) as guarded:

        async def pass_by() -> None:
            client, peer = await tunnelled(guarded)
            await end(guarded, client, peer, how)
            await loop.settle()

        await assert_leaves_no_garbage(pass_by)


@on_each_loop
async def test_a_tunnel_whose_client_leaves_at_the_101_leaves_no_cycle(loop: Loop) -> None:
    async with guarding(loop) as guarded:

        async def leave() -> None:
            client, peer = await guarded.begin(UPGRADE)
            await peer.head()
            await loop.settle()
            client.reset()
            await peer.send(SWITCH)
            await peer.end()
            peer.conn.close()
            await guarded.site.until(lambda: not guarded.site.server.open_connections)
            await loop.settle()

        await assert_leaves_no_garbage(leave)
