"""A body that is sent while its response is awaited: its deadlines, and both ends that stall or leave."""

from __future__ import annotations

import re

import pytest

from deadlined.http import Phase, Reason
from tests.support.conformance import Loop, Running, on_each_loop
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import CHUNKED_POST, Client, chunk, post
from tests.support.proxy import INF, OK, Guarded, Peer, guarding, problem


@on_each_loop
async def test_the_time_for_an_answer_begins_when_the_body_is_sent(loop: Loop) -> None:
    async with guarding(loop, upstream_first_byte=10) as guarded:
        client, peer = await guarded.begin(post(2))
        await peer.head()
        await loop.sleep(30)
        await client.send(b"a")
        await peer.read(1)
        await loop.sleep(30)
        due = loop.after(10)
        await client.send(b"b")
        await peer.read(1)
        assert await problem(client) == (504, "upstream_first_byte_timeout")
        assert loop.is_at(due)


@on_each_loop
async def test_an_upstream_that_refuses_a_long_body_may_have_answered(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(10_000_000) + bytes(1000))
        await peer.head()
        await peer.read(1000)
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await peer.conn.aclose()
        guarded.tasks.start(client.send_what_is_taken, bytes(1_000_000))
        assert (await client.response()).status == 413


@on_each_loop
@pytest.mark.parametrize(("head", "closes"), [(CHUNKED_POST, True), (post(1000), False)], ids=["chunked", "length"])
async def test_an_answer_that_comes_before_a_body_of_unknown_length_says_that_the_connection_ends(
    loop: Loop, head: bytes, closes: bool
) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(head)
        await peer.head()
        await peer.send(OK)
        assert (await client.response()).closes is closes


@on_each_loop
async def test_the_time_for_a_body_is_not_forgotten_between_two_sends(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=60) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST)
        await peer.head()
        big = chunk(bytes(20_000_000))
        sending = guarded.tasks.start(client.send, big)
        # the proxy must wait for the upstream
        await loop.sleep(5)
        left = len(big)
        while left > 0:
            left -= len(peer.conn.try_receive() or b"")
            # never asleep: virtual time must not pass while the kernel delivers
            await loop.step()
        await sending.succeeds()
        # and then for the client, which may take its time
        await loop.sleep(100)
        await client.send(chunk(b""))
        await peer.until(b"0\r\n\r\n")
        await peer.send(OK)
        assert (await client.response()).status == 200


# more than the buffers of the kernel, in bytes
MUCH = 20_000_000


async def answered_meanwhile(guarded: Guarded, length: int) -> tuple[Client, Peer, Running]:
    """Return both ends of a request whose upstream has sent MUCH bytes of its response, of `length` bytes, and reads no
    body; the client, which reads nothing, sends MUCH in the task that is returned."""
    client, peer = await guarded.begin(CHUNKED_POST)
    await peer.head()
    sending = guarded.tasks.start(client.send_what_is_taken, chunk(bytes(MUCH)))
    guarded.tasks.start(peer.send, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length + bytes(MUCH))
    return client, peer, sending


async def take(loop: Loop, client: Client) -> None:
    """Let the client receive MUCH bytes of the response. Never asleep: virtual time must not pass while the kernel
    delivers."""
    came = bytearray()
    while (end := came.find(b"\r\n\r\n")) < 0 or len(came) < end + 4 + MUCH:
        came += client.conn.try_receive() or b""
        await loop.step()


@on_each_loop
async def test_an_upstream_need_not_read_while_its_client_does_not(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=30) as guarded:
        client, peer, sending = await answered_meanwhile(guarded, MUCH)
        await loop.sleep(90)
        reading = guarded.tasks.start(peer.read, MUCH)
        await guarded.site.until(lambda: not (reading.pending or sending.pending))
        await client.send(chunk(b""))
        await peer.until(b"0\r\n\r\n")
        await take(loop, client)
        assert guarded.proxy.statistics().upstreams[0].failures == {}


async def answered_early(guarded: Guarded, body: bytes) -> tuple[Client, Peer]:
    """Return both ends of a request whose upstream has answered before the body has come; some of the response waits
    for the client, which has a small buffer."""
    client = await guarded.site.connect(receive_buffer=4096)
    await client.send(CHUNKED_POST)
    peer = await guarded.upstream.accept()
    await peer.head()
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await guarded.site.until(lambda: guarded.site.server.connections()[0].phase is Phase.WRITE)
    return client, peer


@on_each_loop
@pytest.mark.parametrize("size", [50_000, 120_000])
async def test_a_body_goes_on_while_the_last_of_the_response_waits_for_a_client_that_sends(
    loop: Loop, size: int
) -> None:
    """Many clients read only when they have sent everything."""
    body = bytes(size)
    async with guarding(loop, send_buffer=4096, server={"write_grace": loop.seconds(10)}) as guarded:
        client, peer = await answered_early(guarded, body)
        sending = guarded.tasks.start(client.send, chunk(bytes(MUCH)) + chunk(b""))
        await peer.read(MUCH)
        await peer.until(b"0\r\n\r\n")
        await sending.succeeds()
        assert (await client.response()).body == body


@on_each_loop
async def test_a_body_goes_on_no_longer_than_the_response_waits_for_the_client(loop: Loop) -> None:
    body = bytes(50_000)
    async with guarding(loop, send_buffer=4096) as guarded:
        client, peer = await answered_early(guarded, body)
        assert guarded.proxy.statistics().upstreams[0].active == 1
        assert (await client.response()).body == body
        # half a request
        assert await peer.end() == "reset"
        assert guarded.proxy.statistics().upstreams[0].active == 0


@on_each_loop
async def test_an_upstream_must_read_once_its_client_has_read(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=30) as guarded:
        client, _, sending = await answered_meanwhile(guarded, MUCH + 1)
        await loop.sleep(90)
        # to take the body, and then to go on with the response
        due = loop.after(30 + 30)
        await take(loop, client)
        # the client is reset
        await sending.succeeds()
        assert loop.is_at(due)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_idle_timeout": 1}


@on_each_loop
async def test_an_upstream_gets_no_more_time_to_read_by_sending_what_its_client_takes_at_once(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=10, send_buffer=200_000) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST)
        await peer.head()
        guarded.tasks.start(client.send_what_is_taken, chunk(bytes(MUCH)))
        # to take the body, and then to go on with the response
        due = loop.after(10 + 10)
        await loop.sleep(5)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n" + bytes(100_000))
        # the client is reset, which one of its two tasks sees
        await client.end()
        assert not loop.is_virtual or loop.is_at(due)


@on_each_loop
async def test_the_silence_of_a_response_counts_from_the_end_of_the_body_on(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=60) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST)
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"begin"))
        assert (await client.receive()).endswith(chunk(b"begin"))
        # the upstream waits for its client
        await loop.sleep(200)
        await client.send(chunk(b""))
        await peer.read(5)
        await loop.sleep(1)
        # bytes that are no piece of the body yet
        due = loop.after(60)
        await peer.send(b"5\r\n")
        assert await client.end() == "eof"
        assert loop.is_at(due)


@on_each_loop
async def test_an_upstream_that_reads_no_body_may_still_answer_slowly(loop: Loop) -> None:
    async with guarding(loop, upstream_idle=10) as guarded:
        client, peer = await guarded.begin(post(50_000_000))
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        guarded.tasks.start(client.send_what_is_taken, bytes(50_000_000))
        for _ in range(10):
            await loop.sleep(3)
            await peer.send(b"x" * 10)
        assert len((await client.response()).body) == 100
        # half a request may be on the way there
        assert guarded.proxy.statistics().upstreams[0].idle == 0


@on_each_loop
@pytest.mark.parametrize("per_try", [INF, 5])
async def test_an_upstream_that_takes_no_body_has_a_second_to_say_why(loop: Loop, per_try: float) -> None:
    """The time of a try has not begun."""
    async with guarding(loop, upstream_idle=10, upstream_per_try=per_try) as guarded:
        client, peer = await guarded.begin(post(50_000_000))
        await peer.head()
        due = loop.after(11)
        guarded.tasks.start(client.send_what_is_taken, bytes(50_000_000))
        assert await problem(client) == (504, "upstream_idle_timeout")
        assert not loop.is_virtual or loop.is_at(due)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_idle_timeout": 1}


@on_each_loop
async def test_the_time_of_a_try_begins_when_the_body_is_sent(loop: Loop) -> None:
    """A client that is slow would have its upstream ejected."""
    async with guarding(loop, upstream_per_try=5) as guarded:
        client, peer = await guarded.begin(post(2))
        await peer.head()
        await loop.sleep(30)
        await client.send(b"a")
        await peer.read(1)
        await loop.sleep(30)
        assert guarded.proxy.statistics().upstreams[0].failures == {}
        due = loop.after(5)
        await client.send(b"b")
        await peer.read(1)
        assert await problem(client) == (504, "upstream_per_try_timeout")
        assert loop.is_at(due)
        assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_per_try_timeout": 1}


@on_each_loop
async def test_a_body_in_very_small_chunks_is_sent_together(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST)
        await peer.head()
        body = chunk(b"a") * 5000 + chunk(b"")
        await client.send(body)
        sent = await peer.until(b"0\r\n\r\n")
        # how much comes at once is the kernel's choice
        assert re.sub(rb"[0-9a-f]+\r\n(a*)\r\n", rb"\1", sent.removesuffix(chunk(b""))) == b"a" * 5000
        assert len(sent) < len(body) / 3
        await peer.send(OK)
        assert (await client.response()).status == 200


@on_each_loop
async def test_a_client_that_leaves_while_its_upstream_reads_nothing_frees_it(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(50_000_000))
        await peer.head()
        sending = guarded.tasks.start(client.send, bytes(50_000_000))
        await loop.sleep(5)
        assert sending.pending
        sending.cancel()
        await sending.wait()
        client.reset()
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)
        assert await guarded.site.reason() is Reason.CLIENT_RESET


@on_each_loop
@pytest.mark.parametrize("whole", [True, False], ids=["end", "reset"])
async def test_a_response_up_to_the_end_is_not_whole_if_a_send_has_met_a_reset(loop: Loop, whole: bool) -> None:
    """The kernel tells a reset once, here to the upload; a receive gets an end after it."""
    async with guarding(loop, send_buffer=4096) as guarded:
        client = await guarded.site.connect(receive_buffer=4096)
        await client.send(post(1_000_000))
        peer = await guarded.upstream.accept()
        await peer.head()
        # more than the proxy receives for a client that reads nothing
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(150_000))
        await guarded.come_to_rest()
        if whole:
            await peer.conn.aclose()
        else:
            peer.conn.abort()
        for _ in range(3):
            await client.send(bytes(1000))
            await guarded.come_to_rest()
        if whole:
            assert (await client.response()).body == bytes(150_000)
            assert guarded.proxy.statistics().upstreams[0].failures == {}
        else:
            # the last chunk is missing
            assert not (await client.rest()).endswith(chunk(b""))
            assert guarded.proxy.statistics().upstreams[0].failures == {"upstream_reset": 1}


@on_each_loop
async def test_an_upload_that_the_upstream_breaks_leaves_no_cycle(loop: Loop) -> None:
    """With both connections, and what has come of the body."""
    async with guarding(loop) as guarded:

        async def upload() -> None:
            client, peer = await guarded.begin(post(10))
            await peer.head()
            peer.conn.close()
            assert await problem(client) == (502, "upstream_closed")
            client.conn.close()
            await loop.settle()

        await assert_leaves_no_garbage(upload)


@on_each_loop
@pytest.mark.parametrize("how", ["not taken", "left"])
async def test_an_upload_that_ends_in_its_middle_leaves_no_cycle(loop: Loop, how: str) -> None:
    """The upstream does not take it, or the client leaves."""
    async with guarding(loop, upstream_idle=1) as guarded:

        async def upload() -> None:
            client, peer = await guarded.begin(post(10_000_000))
            await peer.head()
            if how == "left":
                client.reset()
                assert await peer.end() == "reset"
            else:
                await client.send(bytes(10_000_000))
                assert await problem(client) == (504, "upstream_idle_timeout")
                client.conn.close()
            peer.conn.close()
            await guarded.site.until(lambda: not guarded.site.server.open_connections)
            await loop.settle()

        await assert_leaves_no_garbage(upload)
