"""Idle connections to an upstream: how long they are kept, which is used, and what happens if one ends."""

from __future__ import annotations

import os
import socket

import pytest

from deadlined import Conn
from deadlined.net import race
from deadlined.net.names import AddressInfo
from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET, Client
from tests.support.proxy import OK, POST, Guarded, Peer, guarding, problem


def announcing(keep_alive: bytes) -> bytes:
    """Return a response with this field Keep-Alive."""
    return OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: " + keep_alive + b"\r\n\r\n")


@on_each_loop
async def test_a_stale_idle_connection_is_replaced_and_is_nobodys_failure(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        # the request and the end cross each other
        await client.send(GET)
        await peer.head()
        await peer.conn.aclose()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_it_is_replaced_at_another_upstream_although_that_has_more_requests(loop: Loop) -> None:
    """The process that had the connection may have ended with all of its requests, and has the fewest then."""
    async with guarding(loop, 2) as guarded:
        ending, other = guarded.upstreams
        guarded.proxy.set_available(ending.address, False)
        waiting = await guarded.site.connect()
        await waiting.send(GET)
        await (await other.accept()).head()
        guarded.proxy.set_available(ending.address, True)
        client, peer = await guarded.used_once()
        await client.send(GET)
        await peer.head()
        peer.conn.abort()
        await (await other.accept()).answer()
        assert (await client.response()).status == 200
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
@pytest.mark.parametrize("begun", [OK[:11], b"HTTP/1.1 103 Early Hints\r\n\r\n"], ids=["head", "interim"])
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_connection_on_which_an_answer_has_begun_was_not_stale(loop: Loop, begun: bytes, how: str) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(GET)
        await peer.head()
        await peer.send(begun)
        # the kernel may drop what was sent before a reset
        await loop.settle()
        await peer.conn.aclose() if how == "end" else peer.conn.abort()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200
        failure = "upstream_closed" if how == "end" else "upstream_reset"
        assert guarded.proxy.statistics().upstreams[0].failures == {failure: 1}


@on_each_loop
async def test_a_post_on_a_stale_connection_is_not_sent_twice(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(POST)
        await peer.head()
        await peer.conn.aclose()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 1


@on_each_loop
@pytest.mark.parametrize("noise", [b"HTTP/1.1 200 OK\r\n\r\n", b""], ids=["bytes", "end"])
async def test_an_idle_connection_on_which_anything_comes_is_closed(loop: Loop, noise: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        if noise:
            await peer.send(noise)
        else:
            await peer.conn.send_eof()
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].idle == 0)
        assert await peer.end() in ("eof", "reset")
        await client.send(POST)
        peer = await guarded.upstream.accept()
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("first", [True, False])
async def test_a_connection_that_ends_with_its_response_is_not_kept(loop: Loop, first: bool) -> None:
    async with guarding(loop) as guarded:
        if first:
            client, peer = await guarded.begin()
        else:
            client, peer = await guarded.used_once()
            await client.send(GET)
        await peer.head()
        # the kernel may report both at once
        assert peer.conn.socket.send(OK) == len(OK)
        peer.conn.close()
        assert (await client.response()).body == b"fine"
        await loop.settle()
        assert guarded.proxy.statistics().upstreams[0].idle == 0


@on_each_loop
async def test_an_idle_connection_is_closed_in_time(loop: Loop) -> None:
    async with guarding(loop, upstream_reuse=1.5) as guarded:
        due = loop.after(1.5)
        _, peer = await guarded.used_once()
        assert await peer.end() == "eof"
        assert loop.is_at(due)
        assert guarded.proxy.statistics().upstreams[0].idle == 0


@on_each_loop
@pytest.mark.parametrize(("announced", "kept"), [(b"timeout=60, max=100", 59), (b"timeout=900", 60)])
async def test_an_idle_connection_is_kept_as_long_as_its_upstream_says(loop: Loop, announced: bytes, kept: int) -> None:
    async with guarding(loop, upstream_reuse=1.5) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(announcing(announced))
        await client.response()
        if loop.is_virtual:
            due = loop.after(kept)
            assert await peer.end() == "eof"
            assert loop.is_at(due)
        else:
            # the field is in real seconds
            assert guarded.proxy.statistics().upstreams[0].idle == 1


@on_each_loop
@pytest.mark.parametrize("announced", [b"timeout=1", b"timeout=0", b""])
async def test_a_connection_that_is_kept_for_no_time_is_reset_and_holds_no_port(loop: Loop, announced: bytes) -> None:
    async with guarding(loop, upstream_reuse=1.5 if announced else 0) as guarded:
        client = await guarded.site.connect()
        for _ in range(2):
            await client.send(GET)
            peer = await guarded.upstream.accept()
            await peer.answer(announcing(announced) if announced else OK)
            assert (await client.response()).body == b"fine"
            # after an end this side would wait for a minute (TIME_WAIT)
            assert await peer.end() == "reset"
        statistics = guarded.proxy.statistics().upstreams[0]
        assert (statistics.idle, statistics.failures) == (0, {})


@on_each_loop
async def test_the_idle_connection_that_was_used_last_is_used_first(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        pairs = [await guarded.begin() for _ in range(2)]
        for client, peer in pairs:
            await peer.answer()
            await client.response()
        (client, _), (_, peer) = pairs
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).status == 200


@on_each_loop
async def test_a_refusal_after_a_stale_connection_counts_as_any_other(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(GET)
        await peer.head()
        guarded.upstream.stop()
        due = loop.after(0.1)
        await peer.conn.aclose()
        assert await problem(client) == (502, "upstream_connect_failed")
        # it was given a moment to start again
        assert not loop.is_virtual or loop.is_at(due)
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.failures, statistics.tries) == ({"upstream_connect_failed": 2}, 4)


@on_each_loop
async def test_a_connection_that_is_lost_long_after_the_request_was_not_stale(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(GET)
        await peer.head()
        await loop.sleep(200)
        peer.conn.abort()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_reset": 1}


@on_each_loop
async def test_a_connection_that_ends_while_its_upstream_is_not_available_is_not_kept(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.head()
        guarded.proxy.set_available(guarded.upstream.address, False)
        await peer.send(OK)
        assert (await client.response()).status == 200
        assert await peer.end() == "reset"
        assert guarded.proxy.statistics().upstreams[0].idle == 0


@on_each_loop
async def test_an_idle_connection_is_closed_when_its_upstream_becomes_unavailable(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        _, peer = await guarded.used_once()
        assert guarded.proxy.statistics().upstreams[0].idle == 1
        guarded.proxy.set_available(guarded.upstream.address, False)
        assert guarded.proxy.statistics().upstreams[0].idle == 0
        assert await peer.end() == "eof"


async def asks_again(guarded: Guarded, client: Client) -> Peer:
    """Return the new connection on which the next request of `client` was answered."""
    await client.send(GET)
    peer = await guarded.upstream.accept()
    await peer.answer()
    assert (await client.response()).body == b"fine"
    await guarded.loop.settle()
    return peer


@on_each_loop
@pytest.mark.parametrize("when", ["with the response", "after it"])
async def test_an_upstream_that_has_sent_what_nobody_asked_for_has_no_idle_connection(
    loop: Loop, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarding(loop) as guarded:
        (one, kept), (other, noisy) = [await guarded.begin() for _ in range(2)]
        await kept.answer()
        await one.response()
        await noisy.answer(OK + OK if when == "with the response" else OK)
        assert (await other.response()).body == b"fine"
        if when == "after it":
            await noisy.send(OK)
        # the other one is not used again, either
        assert [await peer.end() in ("eof", "reset") for peer in (kept, noisy)] == [True, True]
        for client in (one, other) * 2:
            peer = await asks_again(guarded, client)
            # no port waits for anything after this
            assert await peer.end() == "reset"
        statistics = guarded.proxy.statistics().upstreams[0]
        assert (statistics.idle, statistics.failures) == (0, {})
        assert [record.getMessage() for record in caplog.records] == [
            f"{guarded.upstream.address}: the upstream has sent what no request has asked for: no connection to it is "
            "used twice for 60 s"
        ]


@on_each_loop
async def test_a_distrusted_upstream_is_trusted_again_and_then_distrusted_for_longer(loop: Loop) -> None:
    if not loop.is_virtual:
        # the times are constants
        return
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        for period in (60, 120, 240):
            await peer.send(OK)
            await peer.end()
            await loop.sleep(period - 1)
            await (await asks_again(guarded, client)).end()
            await loop.sleep(1)
            peer = await asks_again(guarded, client)
            assert guarded.proxy.statistics().upstreams[0].idle == 1
            await client.send(GET)
            await peer.answer()
            await client.response()
            await loop.settle()


@on_each_loop
async def test_an_upstream_that_ends_an_idle_connection_is_trusted(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        for _ in range(2):
            await peer.conn.send_eof()
            await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].idle == 0)
            peer = await asks_again(guarded, client)
            assert guarded.proxy.statistics().upstreams[0].idle == 1


class Scarce(socket.socket):
    """A socket in a process that is short of memory: no large block can be had for what comes."""

    short = False

    def recv(self, size: int, flags: int = 0) -> bytes:
        if Scarce.short and size > 4096:
            raise MemoryError
        return super().recv(size, flags)


@on_each_loop
@pytest.mark.parametrize("noise", [b"HTTP/1.1 200 OK\r\n\r\n", b""], ids=["bytes", "end"])
async def test_idle_connections_end_where_memory_is_short(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, noise: bytes
) -> None:
    """The poller calls for them: an error there would end the event loop of trio, and lose events on asyncio."""
    before = race.connect

    async def connect(address: AddressInfo, deadline: float) -> Conn:
        conn = await before(address, deadline)
        descriptor = os.dup(conn.socket.fileno())
        conn.close()
        return Conn(Scarce(fileno=descriptor))

    monkeypatch.setattr(race, "connect", connect)
    monkeypatch.setattr(Scarce, "short", False)
    async with guarding(loop) as guarded:
        _, peer = await guarded.used_once()
        Scarce.short = True
        if noise:
            await peer.send(noise)
        else:
            await peer.conn.send_eof()
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].idle == 0)
        Scarce.short = False
