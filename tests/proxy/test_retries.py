"""What is sent again, to whom, how often, and what never; which upstream is left out."""

from __future__ import annotations

import pytest

from deadlined.proxy import Failure
from deadlined.proxy.errors import IDEMPOTENT, TRIES, UpstreamError, may_repeat
from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET
from tests.support.proxy import OK, POST, Peer, guarding, problem


@on_each_loop
@pytest.mark.parametrize("request_", [GET, POST])
async def test_a_request_that_no_upstream_has_seen_is_sent_to_another(loop: Loop, request_: bytes) -> None:
    async with guarding(loop, 2) as guarded:
        guarded.upstreams[0].stop()
        client = await guarded.site.connect()
        peer: Peer | None = None
        for _ in range(4):
            await client.send(request_)
            peer = peer or await guarded.upstreams[1].accept()
            await peer.answer()
            if request_ is POST:
                assert await peer.read(3) == b"abc"
            assert (await client.response()).status == 200
        assert guarded.proxy.statistics().retries > 0


@on_each_loop
async def test_an_idempotent_request_without_a_body_is_sent_again(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.head()
        peer.conn.abort()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).body == b"fine"
        assert guarded.proxy.statistics().retries == 1


@on_each_loop
async def test_a_request_that_breaks_each_upstream_is_sent_once_more_at_most(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        for _ in range(2):
            peer = await guarded.upstream.accept()
            await peer.head()
            peer.conn.abort()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 2


@on_each_loop
async def test_nor_is_one_sent_twice_more_that_breaks_an_idle_connection_first(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer()
        assert (await client.response()).status == 200
        await client.send(GET)
        for _ in range(2):
            await peer.head()
            peer.conn.abort()
            if guarded.upstream.accepted == 1:
                peer = await guarded.upstream.accept()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 2


@on_each_loop
async def test_a_request_that_no_upstream_has_seen_is_sent_three_times_at_most(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        guarded.upstream.stop()
        client = await guarded.site.connect()
        await client.send(GET)
        assert await problem(client) == (502, "upstream_connect_failed")
        assert guarded.proxy.statistics().upstreams[0].tries == TRIES


@on_each_loop
async def test_retries_have_a_budget(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        count = 0

        async def fail() -> None:
            nonlocal count
            while True:
                peer = await guarded.upstream.accept()
                await peer.head()
                count += 1
                peer.conn.abort()

        guarded.tasks.start(fail)
        for _ in range(100):
            await client.send(GET)
            assert (await problem(client))[0] == 502
        # ten in reserve, and one for every five requests
        assert 100 < count <= 100 + 10 + 20


@on_each_loop
async def test_a_try_that_is_too_slow_is_repeated_elsewhere(loop: Loop) -> None:
    async with guarding(loop, 2, upstream_per_try=5) as guarded:
        client = await guarded.site.connect()
        first = [guarded.tasks.start(upstream.accept) for upstream in guarded.upstreams]
        await client.send(GET)
        await loop.sleep(5)
        peers = [await running.succeeds() for running in first]
        await peers[0].head()
        await peers[1].answer() if guarded.proxy.statistics().upstreams[1].active else await peers[0].send(OK)
        assert (await client.response()).status == 200
        # more than one if the kernel was slower than the test's clock
        assert guarded.proxy.statistics().retries >= 1


@on_each_loop
async def test_an_upstream_that_fails_repeatedly_is_left_out_for_a_while(loop: Loop) -> None:
    async with guarding(loop, 2) as guarded:
        bad, good = guarded.upstreams
        bad.stop()
        guarded.tasks.start(good.serve, OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        client = await guarded.site.connect()

        async def ask(times: int) -> None:
            for _ in range(times):
                await client.send(GET)
                assert (await client.response()).status == 200

        await ask(12)
        statistics = guarded.proxy.statistics().upstreams[0]
        assert (statistics.ejected, statistics.failures) == (True, {"upstream_connect_failed": 3})
        await ask(10)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_connect_failed": 3}


@on_each_loop
async def test_a_put_whose_body_was_sent_is_not_repeated_without_it(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(POST.replace(b"POST", b"PUT"))
        await peer.head()
        assert await peer.read(3) == b"abc"
        peer.conn.abort()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 1


@on_each_loop
async def test_an_upstream_whose_responses_break_off_is_left_out(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        for _ in range(3):
            client, peer = await guarded.begin()
            await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            assert (await client.receive()).endswith(b"half")
            await peer.conn.aclose()
            await client.end()
        statistics = guarded.proxy.statistics().upstreams[0]
        assert (statistics.ejected, statistics.failures) == (True, {"upstream_closed": 3})


@on_each_loop
async def test_an_upstream_that_has_answered_is_used_again_and_each_time_left_out_for_longer(loop: Loop) -> None:
    async with guarding(loop, 2) as guarded:
        bad = guarded.proxy._shared.upstreams[0]
        for seconds in (5, 10, 20, 40, 60, 60):
            while not bad.ejected:
                bad.failed(Failure.RESET)
            assert bad.ejected_until == pytest.approx(loop.after(0) + seconds, abs=0 if loop.is_virtual else 1)
            bad.ejected_until = loop.after(0)
        bad.succeeded()
        bad.failed(Failure.RESET)
        assert not bad.ejected


FAILED = {failure: UpstreamError(failure, "") for failure in Failure}


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH"])
@pytest.mark.parametrize("has_body", [False, True])
def test_what_may_be_repeated(failure: Failure, method: str, has_body: bool) -> None:
    """As a table: nothing that an upstream may have done, unless doing it twice is like doing it once."""
    unseen = failure in (Failure.CONNECT, Failure.CONNECT_TIMEOUT)
    repeatable = method in ("GET", "PUT") and not has_body and failure is not Failure.FIRST_BYTE_TIMEOUT
    assert may_repeat(FAILED[failure], method, has_body, 1, False) is (unseen or repeatable)
    assert may_repeat(FAILED[failure], method, has_body, 2, True) is unseen
    assert not may_repeat(FAILED[failure], method, has_body, TRIES, False)
    begun = UpstreamError(failure, "")
    begun.started = True
    assert not may_repeat(begun, method, has_body, 1, False)


def test_the_idempotent_methods_are_those_of_the_rfc() -> None:
    assert sorted(IDEMPOTENT) == ["DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE"]
