"""Requests that wait for an upstream: their order, their time, and those that leave."""

from __future__ import annotations

import json

import pytest

from deadlined.http import Phase, Reason
from deadlined.proxy.balancer import Balancer
from deadlined.proxy.errors import Failure, Overloaded
from deadlined.proxy.upstream import TOLERATED, Upstream
from tests.support.conformance import Loop, Running, on_each_loop
from tests.support.http import CHUNKED_POST, GET, chunk
from tests.support.proxy import INF, OK, POST, Guarded, guarding, problem


@on_each_loop
async def test_requests_beyond_the_limit_wait_their_turn(loop: Loop) -> None:
    async with guarding(loop, most=1, upstream_queue=10) as guarded:
        first, second, third = [await guarded.site.connect() for _ in range(3)]
        await first.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        await second.send(GET)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        await third.send(GET)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 2)
        await peer.send(OK)
        assert (await first.response()).status == 200
        await peer.answer(OK.replace(b"fine", b"2nd."))
        assert (await second.response()).body == b"2nd."
        await peer.answer(OK.replace(b"fine", b"3rd."))
        assert (await third.response()).body == b"3rd."


@on_each_loop
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("body_is_late", [False, True])
async def test_an_upstream_that_has_answered_is_free_while_its_client_reads(
    loop: Loop, stays: bool, body_is_late: bool
) -> None:
    body = bytes(120_000)
    async with guarding(loop, most=1, send_buffer=4096) as guarded:
        slow = await guarded.site.connect(receive_buffer=4096)
        await slow.send(CHUNKED_POST if body_is_late else GET)
        peer = await guarded.upstream.accept()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await guarded.site.until(lambda: guarded.site.server.connections()[0].phase is Phase.WRITE)
        if body_is_late:
            await slow.send(chunk(b""))
            await peer.until(b"0\r\n\r\n")
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
        if not stays:
            slow.reset()
            assert await guarded.site.reason() is Reason.CLIENT_RESET
        other = await guarded.site.connect()
        await other.send(GET)
        # on the same connection
        await peer.answer()
        assert (await other.response()).body == b"fine"
        if stays:
            assert (await slow.response()).body == body
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_an_upstream_has_succeeded_once_it_has_answered_before_its_client_has_read(loop: Loop) -> None:
    async with guarding(loop, send_buffer=4096) as guarded:
        (upstream,) = guarded.proxy._shared.upstreams
        upstream.ejected_until = INF
        client = await guarded.site.connect(receive_buffer=4096)
        await client.send(CHUNKED_POST)
        await (await guarded.upstream.accept()).answer(OK.replace(b"4", b"120000").replace(b"fine", bytes(120_000)))
        await guarded.site.until(lambda: not upstream.ejected)
        assert upstream.active == 1


@on_each_loop
async def test_a_request_that_has_waited_too_long_is_a_503_with_retry_after(loop: Loop) -> None:
    async with guarding(loop, most=1, upstream_queue=10) as guarded:
        first, second = [await guarded.site.connect() for _ in range(2)]
        await first.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        due = loop.after(10)
        await second.send(GET)
        response = await second.response()
        assert loop.is_at(due)
        assert (response.status, json.loads(response.body)["reason"]) == (503, "overloaded")
        assert int(response.headers["retry-after"]) > 0
        await peer.send(OK)
        assert (await first.response()).status == 200


@on_each_loop
async def test_a_client_that_leaves_the_queue_takes_nobodys_turn(loop: Loop) -> None:
    async with guarding(loop, most=1) as guarded:
        clients = [await guarded.site.connect() for _ in range(3)]
        await clients[0].send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        await clients[1].send(GET)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        await clients[2].send(GET)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 2)
        clients[1].reset()
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        await peer.send(OK)
        await peer.answer()
        assert (await clients[2].response()).status == 200


@on_each_loop
async def test_requests_wait_for_an_upstream_to_become_available(loop: Loop) -> None:
    async with guarding(loop, upstream_queue=10) as guarded:
        address = guarded.upstream.address
        guarded.proxy.set_available(address, False)
        client = await guarded.site.connect()
        await client.send(POST)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        guarded.proxy.set_available(address, True)
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200
        guarded.proxy.set_available(address, False)
        await client.send(GET)
        assert await problem(client) == (503, "overloaded")


@on_each_loop
async def test_who_knows_an_upstream_learns_that_it_refuses_and_lets_requests_wait(loop: Loop) -> None:
    """`deadlined run` does so for its command."""
    refusals = 0

    def refused() -> None:
        nonlocal refusals
        refusals += 1
        guarded.proxy.set_available(address, False)

    async with guarding(loop, upstream_queue=10) as guarded:
        address = guarded.upstream.address
        guarded.proxy.note_refusals(address, refused)
        guarded.upstream.stop()
        client = await guarded.site.connect()
        await client.send(POST)
        assert await problem(client) == (503, "overloaded")
    assert refusals == 1


@on_each_loop
async def test_a_turn_that_is_given_to_a_client_that_has_left_is_passed_on(loop: Loop) -> None:
    async with guarding(loop, most=1) as guarded:
        balancer = guarded.proxy._shared.balancer
        upstream = await balancer.acquire((), INF)
        first, second = [guarded.tasks.start(balancer.acquire, (), INF) for _ in range(2)]
        await loop.settle()
        assert balancer.waiting == 2
        # in one step
        balancer.release(upstream)
        first.cancel()
        await first.wait()
        if not first.cancelled:
            # on trio a wake that has come first wins
            balancer.release(await first.succeeds())
        assert await second.succeeds() is upstream
        balancer.release(upstream)
        assert (upstream.active, balancer.waiting) == (0, 0)


def balanced(guarded: Guarded) -> tuple[Balancer, Upstream, Upstream]:
    """Return the balancer of two upstreams, of which the first is healthy, and the second ejected for ever."""
    balancer = guarded.proxy._shared.balancer
    one, other = guarded.proxy._shared.upstreams
    other.ejected_until = INF
    return balancer, one, other


@on_each_loop
async def test_who_finds_the_healthy_upstreams_full_waits_for_them_and_not_for_an_ejected_one(loop: Loop) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        guarded.upstreams[1].stop()
        balanced(guarded)
        first, second = [await guarded.site.connect() for _ in range(2)]
        await first.send(POST)
        peer = await guarded.upstream.accept()
        await peer.head()
        await second.send(POST)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        await peer.read(3)
        await peer.send(OK)
        assert (await first.response()).status == 200
        await peer.answer()
        assert (await second.response()).status == 200
        assert guarded.proxy.statistics().upstreams[1].tries == 0


@on_each_loop
async def test_an_ejected_upstream_is_waited_for_no_longer_than_its_ejection(loop: Loop) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        balancer, one, other = balanced(guarded)
        due = other.ejected_until = loop.after(100)
        assert await balancer.acquire((), INF) is one
        waiting = []
        for wait in (10, INF, INF):
            waiting.append(guarded.tasks.start(balancer.acquire, (), loop.seconds(wait)))
            await loop.settle()
        assert "left out because it has failed" in str(await waiting[0].fails_with(Overloaded))
        assert await waiting[1].succeeds() is other
        assert loop.is_at(due)
        assert balancer.waiting == 1
        balancer.release(other)
        assert await waiting[2].succeeds() is other


async def one_waits(loop: Loop, guarded: Guarded) -> Running:
    """Return a request that waits: the healthy upstream of `balanced` has as many as it may have."""
    balancer, one, _ = balanced(guarded)
    assert await balancer.acquire((), INF) is one
    waiting = guarded.tasks.start(balancer.acquire, (), INF)
    await loop.settle()
    assert waiting.pending
    return waiting


@on_each_loop
@pytest.mark.parametrize("event", ["ejected", "unavailable"])
async def test_if_no_healthy_upstream_is_left_those_who_wait_get_an_ejected_one(loop: Loop, event: str) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        balancer, one, other = balanced(guarded)
        waiting = await one_waits(loop, guarded)
        if event == "ejected":
            one.ejected_until = INF
            balancer.release(one)
        else:
            guarded.proxy.set_available(one.address, False)
        assert await waiting.succeeds() in ((one, other) if event == "ejected" else (other,))


@on_each_loop
async def test_who_waits_does_not_get_the_place_of_the_failure_that_ejects(loop: Loop) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        bad, good = guarded.proxy._shared.upstreams
        for _ in range(TOLERATED - 1):
            bad.failed(Failure.RESET)
        clients = [await guarded.site.connect() for _ in range(3)]
        for client in clients[:2]:
            await client.send(POST)
        peers = [await upstream.accept() for upstream in guarded.upstreams]
        await clients[2].send(POST)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        peers[0].conn.abort()
        await guarded.site.until(lambda: bad.ejected)
        await loop.settle()
        assert (bad.active, good.active, guarded.proxy.statistics().waiting) == (0, 1, 1)


@on_each_loop
async def test_who_waits_gets_an_upstream_when_an_ejection_ends_that_began_meanwhile(loop: Loop) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        balancer = guarded.proxy._shared.balancer
        bad, good = [await balancer.acquire((), INF) for _ in range(2)]
        waiting = guarded.tasks.start(balancer.acquire, (), INF)
        await loop.settle()
        for _ in range(TOLERATED):
            bad.failed(Failure.RESET)
        due = bad.ejected_until = loop.after(5)
        balancer.release(bad)
        await loop.settle()
        assert waiting.pending
        assert await waiting.succeeds() is bad
        assert loop.is_at(due)
        assert good.active == 1


@on_each_loop
async def test_who_waits_gets_an_upstream_whose_success_ends_its_ejection(loop: Loop) -> None:
    async with guarding(loop, 2, most=1) as guarded:
        waiting = await one_waits(loop, guarded)
        _, _, other = balanced(guarded)
        # as when a tunnel has begun that was opened before
        other.succeeded()
        assert await waiting.succeeds() is other


@on_each_loop
async def test_who_comes_when_an_ejection_has_just_ended_gets_no_upstream_before_those_who_wait(loop: Loop) -> None:
    """Its end wakes nobody at once."""
    async with guarding(loop, 2, most=1) as guarded:
        clients = [await guarded.site.connect() for _ in range(2)]
        for client in clients:
            await client.send(GET)
        for upstream in guarded.upstreams:
            await (await upstream.accept()).answer()
        for client in clients:
            assert (await client.response()).status == 200
        waiting = await one_waits(loop, guarded)
        balancer, _, other = balanced(guarded)
        other.ejected_until = -INF
        assert other.has_idle
        assert balancer.acquire_idle() is None
        assert waiting.pending
