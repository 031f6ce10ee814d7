"""Requests for which the upstream has an idle connection: no task serves them until something unusual happens."""

from __future__ import annotations

import gc

import pytest

from deadlined.http import Reason
from deadlined.http.state import UNATTENDED
from deadlined.proxy.attempt import Attempt
from deadlined.proxy.errors import UpstreamError
from tests.support.conformance import Loop, on_each_loop
from tests.support.http import CHUNKED_POST, GET, Client, chunk, post
from tests.support.proxy import OK, POST, Guarded, Peer, guarding, problem

HEAD = GET.replace(b"GET", b"HEAD", 1)
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def no_task(guarded: Guarded) -> bool:
    """Return True if no connection of a client has a task."""
    return all(one.attendance == UNATTENDED for one in guarded.site.server._connections)


async def asked(guarded: Guarded, request: bytes = GET) -> tuple[Client, Peer]:
    """Return a client that has sent `request`, and the idle connection that has got its head."""
    client, peer = await guarded.used_once()
    await client.send(request)
    await peer.head()
    await guarded.loop.settle()
    return client, peer


@on_each_loop
async def test_a_request_is_answered_without_a_task(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        assert no_task(guarded)
        await peer.send(OK)
        assert (await client.response()).body == b"fine"
        await loop.settle()
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.tries, statistics.connects, statistics.idle, statistics.active) == (2, 1, 1, 0)


@on_each_loop
async def test_a_response_that_trickles_needs_no_task(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=100, upstream_idle=30) as guarded:
        client, peer = await asked(guarded)
        for piece in (CHUNKED[:20], CHUNKED[20:], chunk(b"one")[:4], chunk(b"one")[4:], chunk(b"two")):
            await loop.sleep(9)
            await peer.send(piece)
            await loop.settle()
            assert no_task(guarded)
        await peer.send(chunk(b""))
        assert (await client.response()).body == b"onetwo"
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("body", [POST, CHUNKED_POST + chunk(b"abc") + chunk(b"")], ids=["length", "chunks"])
async def test_a_body_that_has_come_with_its_head_needs_no_task(loop: Loop, body: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded, body)
        assert no_task(guarded)
        assert await peer.until(b"abc")
        await peer.send(OK)
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_the_rest_of_a_body_is_sent_by_a_task(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded, post(6) + b"abc")
        assert await peer.read(3) == b"abc"
        assert not no_task(guarded)
        await client.send(b"def")
        assert await peer.read(3) == b"def"
        await peer.send(OK)
        assert (await client.response()).body == b"fine"
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_small_chunks_that_have_come_are_passed_on_as_one(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        small = CHUNKED_POST + chunk(b"x") * 1000 + chunk(b"")
        client, peer = await asked(guarded, small)
        assert await peer.until(chunk(b"")) == chunk(b"x" * 1000) + chunk(b"")
        await peer.send(CHUNKED + chunk(b"y") * 1000)
        await loop.settle()
        assert no_task(guarded)
        await peer.send(chunk(b""))
        assert (await client.response()).body == b"y" * 1000
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("head", [CHUNKED, b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"])
async def test_the_head_does_not_wait_for_long_for_the_body(loop: Loop, head: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await peer.send(head)
        assert (await client.receive()).endswith(b"\r\n\r\n")
        assert no_task(guarded)


@on_each_loop
async def test_a_failure_leaves_no_garbage(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        gc.collect()
        gc.disable()
        try:
            peer.conn.abort()
            await (await guarded.upstream.accept()).answer()
            assert (await client.response()).body == b"fine"
            await loop.settle()
            del peer
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [one for one in gc.garbage if isinstance(one, Attempt | UpstreamError)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left == []


@on_each_loop
async def test_interim_responses_are_ignored(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await loop.settle()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK)
        response = await client.response()
        assert (response.status, response.body, response.informational) == (200, b"fine", [])


@on_each_loop
@pytest.mark.parametrize(
    ("request_", "response", "status"),
    [
        (HEAD, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", 200),
        (GET, b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        (GET, b"HTTP/1.1 304 Not Modified\r\n\r\n", 304),
        (GET, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    ],
)
async def test_a_response_without_a_body_is_complete(loop: Loop, request_: bytes, response: bytes, status: int) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded, request_)
        await peer.send(response)
        answer = await client.response("HEAD" if request_ is HEAD else "GET")
        assert (answer.status, answer.body) == (status, b"")
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_a_response_that_ends_with_its_connection_is_passed_on(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        await peer.conn.aclose()
        assert (await client.response()).body == b"all of it"
        await client.send(GET)
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_a_large_response_waits_for_a_client_that_reads_slowly(loop: Loop) -> None:
    size = 8_000_000
    async with guarding(loop, send_buffer=4096) as guarded:
        client, peer = await asked(guarded)
        sending = guarded.tasks.start(peer.send, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
        for _ in range(50):
            await loop.step()
        # the buffers of the kernel, and 64 KiB
        assert sending.pending
        assert (await client.response()).body == bytes(size)
        await sending.succeeds()


@on_each_loop
async def test_an_upstream_that_answers_too_late_is_answered_for(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=30) as guarded:
        client, peer = await guarded.used_once()
        due = loop.after(30)
        await client.send(GET)
        await peer.head()
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)
        assert await peer.end() == "reset"
        assert guarded.proxy.statistics().upstreams[0].active == 0


@on_each_loop
async def test_the_deadline_of_a_head_that_trickles_does_not_move(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=30) as guarded:
        client, peer = await guarded.used_once()
        due = loop.after(30)
        await client.send(GET)
        await peer.head()
        await loop.sleep(20)
        await peer.send(OK[:10])
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)


@on_each_loop
@pytest.mark.parametrize("begun", [False, True])
async def test_the_deadline_of_the_handler_holds(loop: Loop, begun: bool) -> None:
    async with guarding(loop, upstream_first_byte=30, upstream_idle=30, server={"handler": 10}) as guarded:
        client, peer = await guarded.used_once()
        due = loop.after(10)
        await client.send(GET)
        await peer.head()
        if begun:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            await loop.settle()
        assert no_task(guarded)
        if begun:
            assert await client.end() == "reset"
        else:
            assert (await client.response()).status == 504
        assert loop.is_at(due)
        assert await guarded.site.reason() is Reason.HANDLER_TIMEOUT
        assert await peer.end() == "reset"
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.active, statistics.failures) == (0, {})


@on_each_loop
async def test_an_upstream_that_stops_in_its_body_breaks_the_response_off(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=5) as guarded:
        client, peer = await asked(guarded)
        due = loop.after(5)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        await loop.settle()
        assert await client.end() == "reset"
        assert loop.is_at(due)
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_idle_timeout": 1}


@on_each_loop
@pytest.mark.parametrize("reset", [True, False])
async def test_an_upstream_that_ends_in_its_body_breaks_the_response_off(loop: Loop, reset: bool) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
        await loop.settle()
        if reset:
            peer.conn.abort()
        else:
            await peer.conn.aclose()
        assert await client.end() == "reset"
        assert await guarded.site.reason() is Reason.UPSTREAM_FAILED
        failure = "upstream_reset" if reset else "upstream_closed"
        assert guarded.proxy.statistics().upstreams[0].failures == {failure: 1}


@on_each_loop
@pytest.mark.parametrize("answer", [b"no HTTP\r\n\r\n", b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"])
async def test_a_malformed_response_is_answered_for(loop: Loop, answer: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded, POST)
        await peer.send(answer)
        assert await problem(client) == (502, "upstream_malformed")
        assert await peer.end() in ("eof", "reset")
        # the client's connection can be used again
        await client.send(GET)
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_bytes_after_a_response_are_not_the_next_one(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await peer.send(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        assert (await client.response()).body == b"fine"
        await client.send(GET)
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_resets_ends_its_request_at_the_upstream(loop: Loop, answered: bool) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        if answered:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            await client.receive()
        client.reset()
        assert await peer.end() == "reset"
        assert await guarded.site.reason() is Reason.CLIENT_RESET
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.active, statistics.idle, statistics.failures) == (0, 0, {})


@on_each_loop
async def test_a_client_that_has_ended_its_side_gets_its_response(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await asked(guarded)
        await client.conn.send_eof()
        await loop.settle()
        await peer.send(OK)
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_requests_that_are_pipelined_are_forwarded_in_order(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(GET)
        await peer.head()
        await client.send(POST + GET)
        await loop.settle()
        await peer.send(OK)
        assert (await client.response()).body == b"fine"
        assert (await peer.head()).startswith(b"POST")
        assert await peer.read(3) == b"abc"
        await peer.send(OK)
        await peer.answer()
        assert (await client.response()).body == b"fine"
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_the_limit_of_an_upstream_holds(loop: Loop) -> None:
    async with guarding(loop, most=1) as guarded:
        client, peer = await asked(guarded)
        other = await guarded.site.connect()
        await other.send(GET)
        await guarded.site.until(lambda: guarded.proxy.statistics().waiting == 1)
        await peer.send(OK)
        assert (await client.response()).body == b"fine"
        await peer.answer()
        assert (await other.response()).body == b"fine"


@on_each_loop
async def test_a_drain_waits_for_a_request_and_cuts_it_in_the_end(loop: Loop) -> None:
    async with guarding(loop, server={"drain": 3}) as guarded:
        client, peer = await asked(guarded)
        guarded.site.server.shutdown()
        await guarded.site.serving.wait()
        assert await guarded.site.reason() is Reason.DRAIN_TIMEOUT
        assert await peer.end() == "reset"
        assert await client.end() == "reset"


@on_each_loop
async def test_equals_take_turns(loop: Loop) -> None:
    async with guarding(loop, count=2) as guarded:
        client = await guarded.site.connect()
        peers: list[Peer] = []
        for upstream in (*guarded.upstreams, *guarded.upstreams):
            await client.send(GET)
            if len(peers) < 2:
                peers.append(await guarded.upstreams[1 - guarded.upstreams.index(upstream)].accept())
            await peers[len(guarded.site.requests) % 2].answer()
            await client.response()
            await loop.settle()
        assert [one.tries for one in guarded.proxy.statistics().upstreams] == [2, 2]
