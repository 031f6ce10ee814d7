"""Requests that wait for an upstream: their order, their time, and those that leave."""

from __future__ import annotations

import json

from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET
from tests.support.proxy import INF, OK, POST, guarding, problem


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
