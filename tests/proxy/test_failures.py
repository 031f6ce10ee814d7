"""An upstream that is broken, slow or gone: what the client is told, what is tried again, and what is never."""

from __future__ import annotations

import json
import logging

import pytest

from deadlined.http import Reason
from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET, Client, Response, chunk, post
from tests.support.proxy import OK, Peer, guarding

POST = post(3) + b"abc"


async def problem(client: Client) -> tuple[int, str]:
    """Return the status and the reason of an answer of the proxy itself."""
    response: Response = await client.response()
    assert response.headers["content-type"] == "application/problem+json"
    return response.status, json.loads(response.body)["reason"]


@on_each_loop
async def test_an_upstream_that_refuses_connections_is_a_502(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        guarded.upstream.stop()
        client = await guarded.site.connect()
        for _ in range(2):
            # the connection of the client goes on
            await client.send(GET)
            assert await problem(client) == (502, "upstream_connect_failed")


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
async def test_an_upstream_that_ends_without_an_answer_is_a_502(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(POST)
        peer = await guarded.upstream.accept()
        await peer.head()
        await peer.read(3)
        await peer.conn.aclose()
        assert await problem(client) == (502, "upstream_closed")
        assert guarded.proxy.statistics().retries == 0


@on_each_loop
async def test_an_idempotent_request_without_a_body_is_sent_again(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        peer.conn.abort()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).body == b"fine"
        assert guarded.proxy.statistics().retries == 1


@on_each_loop
async def test_a_request_is_sent_three_times_at_most(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        for _ in range(3):
            peer = await guarded.upstream.accept()
            await peer.head()
            peer.conn.abort()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 3


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
async def test_a_stale_idle_connection_is_replaced_and_is_nobodys_failure(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer()
        await client.response()
        # the request and the end cross each other
        await client.send(GET)
        await peer.head()
        await peer.conn.aclose()
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200
        assert guarded.proxy.statistics().upstreams[0].failures == {}


@on_each_loop
async def test_a_post_on_a_stale_connection_is_not_sent_twice(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer()
        await client.response()
        await client.send(POST)
        await peer.head()
        await peer.conn.aclose()
        assert (await problem(client))[0] == 502
        assert guarded.upstream.accepted == 1


@on_each_loop
@pytest.mark.parametrize("noise", [b"HTTP/1.1 200 OK\r\n\r\n", b""], ids=["bytes", "end"])
async def test_an_idle_connection_on_which_anything_comes_is_closed(loop: Loop, noise: bytes) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer()
        await client.response()
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
async def test_an_idle_connection_is_closed_before_servers_close_theirs(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer()
        await client.response()
        assert await peer.end() == "eof"
        assert guarded.proxy.statistics().upstreams[0].idle == 0


@on_each_loop
@pytest.mark.parametrize(
    "response",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nx: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + bytes(100_000),
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=["noise", "lengths", "framing", "line", "long", "upgrade"],
)
async def test_a_malformed_response_is_a_502_and_is_not_passed_on(loop: Loop, response: bytes) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(POST)
        peer = await guarded.upstream.accept()
        guarded.tasks.start(peer.answer, response)
        assert await problem(client) == (502, "upstream_malformed")


@on_each_loop
async def test_a_response_that_breaks_off_resets_the_client(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        assert (await client.receive()).endswith(b"half")
        await peer.conn.aclose()
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        # one line says why, and nobody's traceback
        (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "upstream" in record.getMessage()
        assert record.exc_info is None


@on_each_loop
async def test_a_response_that_breaks_off_in_its_chunks_resets_the_client(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half"))
        assert (await client.receive()).endswith(chunk(b"half"))
        await peer.send(b"zz\r\n")
        assert await client.end() == "reset"


@on_each_loop
async def test_an_upstream_that_does_not_answer_in_time_is_a_504(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=60) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        due = loop.after(60)
        # a head that trickles extends nothing
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        await loop.sleep(30)
        await peer.send(b"x: y\r\n")
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)
        assert await peer.end() in ("eof", "reset")


@on_each_loop
async def test_the_time_for_an_answer_begins_when_the_body_is_sent(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=10) as guarded:
        client = await guarded.site.connect()
        await client.send(post(2))
        peer = await guarded.upstream.accept()
        await peer.head()
        await loop.sleep(30)
        await client.send(b"a")
        await peer.read(1)
        await loop.sleep(30)
        await client.send(b"b")
        await peer.read(1)
        due = loop.after(10)
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)


@on_each_loop
async def test_a_response_may_be_silent_for_so_long_only(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=60) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
        for _ in range(4):
            # what comes extends it: a stream has no bound
            await loop.sleep(50)
            await peer.send(b"x")
        due = loop.after(60)
        assert await client.end() == "reset"
        assert loop.is_at(due)


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
        assert guarded.proxy.statistics().retries == 1


@on_each_loop
async def test_an_upstream_that_accepts_no_connection_in_time_is_a_504(loop: Loop) -> None:
    async with guarding(loop, upstream_connect=0) as guarded:
        client = await guarded.site.connect()
        await client.send(GET)
        assert await problem(client) == (504, "upstream_connect_timeout")


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
        await second.send(GET)
        due = loop.after(10)
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
async def test_an_upstream_that_refuses_a_long_body_may_have_answered(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        await client.send(post(10_000_000) + bytes(1000))
        peer = await guarded.upstream.accept()
        await peer.head()
        await peer.read(1000)
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await peer.conn.aclose()
        guarded.tasks.start(client.send_what_is_taken, bytes(1_000_000))
        assert (await client.response()).status == 413
