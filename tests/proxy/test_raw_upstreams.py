"""Which upstream a raw connection gets, and what its client is told if it gets none: a reset, and nothing else."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio

from deadlined.http import Phase, Reason
from deadlined.proxy import Address, ProxyLimits, RawProxy
from deadlined.proxy.errors import TRIES
from deadlined.proxy.shared import PAUSE
from deadlined.proxy.upstream import TOLERATED
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import Client
from tests.support.net import LOCALHOST
from tests.support.proxy import Guarded, fail_to_connect, guarding


async def reset_without_a_word(client: Client) -> bool:
    """Wait for the end. Return True if it is a reset, before any byte."""
    with pytest.raises(trio.BrokenResourceError):
        assert await client.receive() == b"no byte"
    return True


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@contextmanager
def busy_address() -> Iterator[Address]:
    """Give the address of a server that lives and accepts nothing: the kernel does not answer either."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((LOCALHOST, 0))
        listening.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield Address(LOCALHOST, listening.getsockname()[1])


@on_each_loop
async def test_an_upstream_that_refuses_is_tried_again_a_little_later(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarding(loop, raw=True) as guarded:
        guarded.upstream.stop()
        client = await guarded.site.connect()
        begun = loop.after(0)
        assert await reset_without_a_word(client)
        if loop.is_virtual:
            assert loop.after(0) - begun == pytest.approx(PAUSE * (TRIES - 1))
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        statistics = guarded.proxy.statistics()
        assert (statistics.retries, statistics.upstreams[0].tries) == (TRIES - 1, TRIES)
        assert guarded.site.requests == []
    (line,) = warnings(caplog)
    why = "the upstream accepts no connection (upstream_connect_failed): the client was reset"
    assert line.endswith(f": {guarded.upstream.address}: {why}")


@on_each_loop
@pytest.mark.parametrize("code", [None, errno.EADDRNOTAVAIL], ids=["refuses", "no address"])
async def test_another_upstream_is_used_at_once_with_all_that_was_sent(
    loop: Loop, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarding(loop, 2, raw=True) as guarded:
        if code is None:
            guarded.upstreams[0].stop()
        else:
            fail_to_connect(monkeypatch, guarded.upstreams[0], code)
        for _ in range(4):
            client = await guarded.site.connect()
            await client.send(b"from the first byte on")
            peer = await guarded.upstreams[1].accept()
            assert await peer.read(22) == b"from the first byte on"
        assert guarded.proxy.statistics().retries > 0
        assert guarded.site.connections == []


@on_each_loop
async def test_an_upstream_that_does_not_accept_in_time_is_left_for_another(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    with busy_address() as busy:
        async with guarding(loop, raw=True, upstream_connect=5) as guarded:
            timeouts = guarded.proxy._shared.timeouts
            proxy = RawProxy([busy, guarded.upstream.address], timeouts=timeouts)
            async with site_of(loop, proxy, raw=True) as (site, _):
                due = loop.after(5)
                pair = [await site.connect() for _ in range(2)]
                peers = [await guarded.upstream.accept() for _ in range(2)]
                assert loop.is_at(due)
                assert [each.failures for each in proxy.statistics().upstreams] == [{"upstream_connect_timeout": 1}, {}]
                await pair[0].send(b"x")
                await pair[1].send(b"x")
                assert [await peer.read(1) for peer in peers] == [b"x", b"x"]
    assert warnings(caplog) == []


@on_each_loop
async def test_if_none_accepts_in_time_the_client_is_reset(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    with busy_address() as busy:
        async with guarding(loop, raw=True, upstream_connect=5) as guarded:
            proxy = RawProxy([busy], timeouts=guarded.proxy._shared.timeouts)
            async with site_of(loop, proxy, raw=True) as (site, _):
                due = loop.after(5 * TRIES)
                client = await site.connect()
                await client.send(b"GET / HTTP/1.1\r\n\r\n")
                assert await reset_without_a_word(client)
                assert loop.is_at(due)
                assert await site.reason() is Reason.UPSTREAM_FAILED
    (line,) = warnings(caplog)
    assert f": {busy}: the upstream has not accepted the connection in time (upstream_connect_timeout): " in line


@on_each_loop
async def test_the_upstream_with_the_fewest_connections_gets_the_next(loop: Loop) -> None:
    async with guarding(loop, 2, raw=True) as guarded:
        for _ in range(2):
            await guarded.site.connect()
        peers = [await upstream.accept() for upstream in guarded.upstreams]
        await guarded.site.until(lambda: len(guarded.site.server.connections(Phase.TUNNEL)) == 2)
        peers[1].conn.abort()
        await guarded.site.reason()
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[1].active == 0)
        await guarded.site.connect()
        await guarded.upstreams[1].accept()


@on_each_loop
async def test_an_upstream_that_accepts_and_breaks_off_is_left_out(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        for number in range(TOLERATED):
            assert not guarded.proxy.statistics().upstreams[0].ejected
            await _break_off(guarded, number, b"")
        assert guarded.proxy.statistics().upstreams[0].ejected


@on_each_loop
async def test_one_that_has_answered_before_is_not(loop: Loop) -> None:
    async with guarding(loop, raw=True) as guarded:
        for number in range(2 * TOLERATED):
            await _break_off(guarded, number, b"220 hello")
        assert not guarded.proxy.statistics().upstreams[0].ejected


@on_each_loop
async def test_nor_is_one_that_has_spoken_on_each_of_them(loop: Loop) -> None:
    """Clients can bring a reset about: a server that closes on what it will not read resets."""
    async with guarding(loop, raw=True) as guarded:
        peers = []
        for _ in range(2 * TOLERATED):
            client = await guarded.site.connect()
            peers.append(await guarded.upstream.accept())
            await peers[-1].send(b"220 hello")
            assert await client.receive() == b"220 hello"
        for peer in peers:
            peer.conn.abort()
        assert await guarded.site.reason(len(peers)) is Reason.UPSTREAM_FAILED
        statistics = guarded.proxy.statistics
        await guarded.site.until(lambda: statistics().upstreams[0].active == 0)
        assert statistics().upstreams[0].failures == {"upstream_reset": len(peers)}
        assert not statistics().upstreams[0].ejected


async def _break_off(guarded: Guarded, number: int, first: bytes) -> None:
    """Have the upstream send `first` on a new connection, and reset it."""
    client = await guarded.site.connect()
    peer = await guarded.upstream.accept()
    await guarded.site.until(lambda: guarded.site.server.connections(Phase.TUNNEL))
    if first:
        await peer.send(first)
        assert await client.receive() == first
    peer.conn.abort()
    assert await reset_without_a_word(client)
    assert await guarded.site.reason(number + 1) is Reason.UPSTREAM_FAILED
    await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)


# the queue


@on_each_loop
async def test_connections_beyond_the_limit_wait_their_turn(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1, upstream_queue=10) as guarded:
        first = await guarded.site.connect()
        peer = await guarded.upstream.accept()
        second = await guarded.site.connect()
        await second.send(b"my turn")
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        assert guarded.upstream.accepted == 1
        await first.conn.send_eof()
        await peer.conn.send_eof()
        assert await first.end() == "eof"
        assert await (await guarded.upstream.accept()).read(7) == b"my turn"


@on_each_loop
async def test_one_that_has_waited_too_long_is_reset(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async with guarding(loop, raw=True, most=1, upstream_queue=10) as guarded:
        await guarded.site.connect()
        await guarded.upstream.accept()
        due = loop.after(10)
        second = await guarded.site.connect()
        assert await reset_without_a_word(second)
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        assert guarded.proxy.statistics().overloaded == 1
    (line,) = warnings(caplog)
    assert line.endswith(": each upstream has as many requests as it may have: the client was reset")


@on_each_loop
async def test_a_client_that_leaves_the_queue_takes_nobodys_turn(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1) as guarded:
        first = await guarded.site.connect()
        peer = await guarded.upstream.accept()
        second, third = [await guarded.site.connect() for _ in range(2)]
        await third.send(b"third")
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 2)
        second.reset()
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        assert guarded.proxy.statistics().waiting == 1
        first.reset()
        await peer.end()
        assert await (await guarded.upstream.accept()).read(5) == b"third"


@on_each_loop
async def test_a_client_that_has_ended_its_side_in_the_queue_is_served(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1) as guarded:
        first = await guarded.site.connect()
        peer = await guarded.upstream.accept()
        second = await guarded.site.connect()
        await second.send(b"question")
        await second.conn.send_eof()
        # far longer than a client of HTTP would be waited for
        await loop.sleep(60)
        assert guarded.proxy.statistics().waiting == 1
        first.reset()
        await peer.end()
        peer = await guarded.upstream.accept()
        assert await peer.read(8) == b"question"
        assert await peer.end() == "eof"
        await peer.send(b"answer")
        await peer.conn.send_eof()
        assert await second.receive() == b"answer"
        assert await second.end() == "eof"


@on_each_loop
async def test_a_drain_cuts_what_still_waits_without_a_word(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1, server={"drain": 30}) as guarded:
        await guarded.site.connect()
        await guarded.upstream.accept()
        second = await guarded.site.connect()
        await second.send(b"GET / HTTP/1.1\r\n\r\n")
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        due = loop.after(30)
        guarded.site.server.shutdown()
        assert await reset_without_a_word(second)
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.DRAIN_TIMEOUT
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 0)


@on_each_loop
async def test_more_room_is_for_those_who_wait(loop: Loop) -> None:
    async with guarding(loop, raw=True, most=1) as guarded:
        await guarded.site.connect()
        await guarded.upstream.accept()
        await guarded.site.connect()
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        guarded.proxy.configure(limits=ProxyLimits(upstream_connections=2))
        await guarded.upstream.accept()


def test_it_needs_an_upstream() -> None:
    async def make() -> None:
        with pytest.raises(ValueError, match="at least one upstream"):
            RawProxy([])

    trio.run(make)
