"""A request through the proxy, and its response back: what arrives where, on every event loop."""

from __future__ import annotations

import pytest

from deadlined.http import Reason, Route
from deadlined.http.trusted import TrustedProxies
from tests.support.conformance import Loop, on_each_loop
from tests.support.http import CHUNKED_POST, GET, chunk, post
from tests.support.net import LOCALHOST
from tests.support.proxy import OK, guarding


@on_each_loop
async def test_a_request_arrives_anew_and_its_response_comes_back(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(
            b"GET /a?b=%20c HTTP/1.1\r\nHOST: shop\r\nAccept:  text/html  \r\nCookie: a=b\r\n\r\n"
        )
        head = await peer.answer(b"HTTP/1.1 201 Made\r\ncontent-length: 4\r\nX-Own: yes\r\nserver: theirs\r\n\r\nfine")
        lines = head.split(b"\r\n")
        assert lines[0] == b"GET /a?b=%20c HTTP/1.1"
        assert lines[1] == b"host: shop"
        assert b"accept: text/html" in lines
        assert b"cookie: a=b" in lines
        response = await client.response()
        assert response.status == 201
        assert response.body == b"fine"
        assert response.headers["x-own"] == "yes"
        assert response.headers["server"] == "theirs"
        assert response.headers["content-length"] == "4"


@pytest.mark.parametrize("proxies", [LOCALHOST, "10.0.0.0/8"])
@on_each_loop
async def test_the_upstream_and_the_record_know_the_client_that_a_trusted_proxy_tells_and_no_other(
    loop: Loop, proxies: str
) -> None:
    trusted = proxies == LOCALHOST
    async with guarding(loop, trusted=TrustedProxies([proxies])) as guarded:
        client, peer = await guarded.begin(b"GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.7\r\n\r\n")
        told = b"192.0.2.7, 127.0.0.1" if trusted else b"127.0.0.1"
        assert b"\r\nx-forwarded-for: %b\r\n" % told in await peer.answer()
        await client.response()
        # what it has told of one request says nothing of the next
        await client.send(GET)
        assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in await peer.answer()
        await client.response()
        await guarded.site.until(lambda: len(guarded.site.requests) == 2)
        told_of, own = (record.peer for record in guarded.site.requests)
        assert own.startswith("127.0.0.1:")
        assert told_of == ("192.0.2.7" if trusted else own)


@on_each_loop
async def test_both_connections_are_used_again(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        peer = None
        for _ in range(3):
            await client.send(GET)
            peer = peer or await guarded.upstream.accept()
            await peer.answer()
            assert (await client.response()).body == b"fine"
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.tries, statistics.connects, statistics.idle, statistics.active) == (3, 1, 1, 0)


@on_each_loop
async def test_the_client_sees_a_request_target_of_a_url_as_a_path(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        _, peer = await guarded.begin(b"GET http://other/x HTTP/1.1\r\nhost: shop\r\n\r\n")
        head = await peer.answer()
        assert head.startswith(b"GET /x HTTP/1.1\r\nhost: other\r\n")
        assert b"shop" not in head


@on_each_loop
@pytest.mark.parametrize("method", [b"POST", b"post"])
async def test_a_method_arrives_as_it_came_and_its_route_holds_in_small_letters(loop: Loop, method: bytes) -> None:
    routes = [Route("/upload", frozenset({"POST"}), {"max_body": 10})]
    head = method + b" /upload HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    async with guarding(loop, server={"routes": routes}) as guarded:
        client, peer = await guarded.begin(head % 10 + bytes(10))
        assert (await peer.answer()).startswith(method + b" /upload ")
        assert (await client.response()).status == 200
        await client.send(head % 11)
        assert (await client.response()).status == 413


@on_each_loop
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_body_of_known_length_arrives_with_that_length(loop: Loop, in_pieces: bool) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        body = bytes(range(256)) * 400
        await client.send(post(len(body)) + (b"" if in_pieces else body[:1000]))
        peer = await guarded.upstream.accept()
        head = await peer.head()
        assert b"content-length: %d\r\n" % len(body) in head
        guarded.tasks.start(client.send, body if in_pieces else body[1000:])
        assert await peer.read(len(body)) == body
        await peer.send(OK)
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_a_chunked_body_arrives_in_chunks_of_the_proxys_own(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        announced = b"\r\ntrailer: x-trailer\r\nte: trailers\r\nconnection: te\r\n\r\n"
        await client.send(CHUNKED_POST.replace(b"\r\n\r\n", announced) + b"3;ext=1\r\nabc\r\n")
        peer = await guarded.upstream.accept()
        head = await peer.head()
        assert b"transfer-encoding: chunked\r\n" in head
        assert not [line for line in head.split(b"\r\n") if line.startswith((b"content-length", b"te", b"trailer"))]
        await client.send(chunk(b"de") + b"0\r\nx-trailer: 1\r\n\r\n")
        assert await peer.until(b"0\r\n\r\n") == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        await peer.send(OK)
        assert (await client.response()).status == 200


@on_each_loop
async def test_a_whole_chunked_body_that_came_with_its_head_is_sent_at_once(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST + chunk(b"abc") + chunk(b""))
        await peer.head()
        assert await peer.until(b"0\r\n\r\n") == b"3\r\nabc\r\n0\r\n\r\n"
        await peer.send(OK)
        assert (await client.response()).status == 200


@on_each_loop
async def test_the_proxy_itself_invites_a_body_that_waits_for_it(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(3, b"expect: 100-continue"))
        assert b"expect" not in await peer.head()
        assert await client.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc")
        assert await peer.read(3) == b"abc"
        await peer.send(OK)
        assert (await client.response()).status == 200


@on_each_loop
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_a_response_without_a_body_ends_with_its_head(loop: Loop, status: bytes) -> None:
    async with guarding(loop) as guarded:
        client = await guarded.site.connect()
        peer = None
        for _ in range(2):
            await client.send(GET)
            peer = peer or await guarded.upstream.accept()
            await peer.answer(b"HTTP/1.1 " + status + b"\r\netag: x\r\n\r\n")
            response = await client.response()
            assert (response.status, response.body, response.headers["etag"]) == (int(status[:3]), b"", "x")


@on_each_loop
async def test_a_head_request_keeps_the_length_and_has_no_body(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        response = await client.response("HEAD")
        assert (response.headers["content-length"], response.body) == ("1000", b"")


@on_each_loop
async def test_interim_responses_are_not_passed_on(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK)
        response = await client.response()
        assert (response.status, response.informational, "link" in response.headers) == (200, [], False)


@on_each_loop
async def test_a_chunked_response_comes_piece_by_piece(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n" + chunk(b"one")
        )
        began = await client.receive()
        assert began.endswith(b"3\r\none\r\n")
        # it would announce what does not come
        assert b"trailer: " not in began
        await peer.send(chunk(b"two"))
        assert await client.receive() == b"3\r\ntwo\r\n"
        await peer.send(b"0\r\nx-trailer: dropped\r\n\r\n")
        assert await client.receive() == b"0\r\n\r\n"


@on_each_loop
async def test_a_response_that_ends_with_its_connection_is_whole(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(b"HTTP/1.0 200 OK\r\n\r\nfi")
        await peer.send(b"ne")
        await peer.conn.send_eof()
        assert (await client.response()).body == b"fine"
        (statistics,) = guarded.proxy.statistics().upstreams
        assert statistics.idle == 0


@on_each_loop
async def test_an_upstream_that_closes_after_its_response_is_not_used_again(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.answer(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        response = await client.response()
        assert "connection" not in response.headers
        await client.send(GET)
        await (await guarded.upstream.accept()).answer()
        assert (await client.response()).status == 200


@on_each_loop
async def test_an_old_client_gets_an_answer_that_it_understands(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(b"GET / HTTP/1.0\r\n\r\n")
        head = await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"fine") + chunk(b""))
        assert head.startswith(b"GET / HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % guarded.upstream.address.port)
        answered = await client.rest()
        assert answered.endswith(b"\r\n\r\nfine")
        assert b"transfer-encoding" not in answered


@on_each_loop
async def test_requests_that_are_pipelined_are_answered_in_order(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(
            b"".join(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(3))
        )
        for number in range(3):
            head = await peer.answer(OK.replace(b"fine", b"  %d " % number))
            assert head.startswith(b"GET /%d " % number)
            assert (await client.response()).body == b"  %d " % number


@on_each_loop
async def test_an_answer_that_comes_before_the_body_is_complete_is_passed_on(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(1000) + b"abc")
        await peer.head()
        assert await peer.read(3) == b"abc"
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        assert (await client.response()).status == 413
        assert await peer.end() in ("eof", "reset")


@on_each_loop
async def test_an_answer_can_stream_while_the_body_does(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(CHUNKED_POST)
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"begin"))
        assert (await client.receive()).endswith(chunk(b"begin"))
        for word in (b"one", b"two"):
            await client.send(chunk(word))
            assert await peer.read(len(chunk(word))) == chunk(word)
            await peer.send(chunk(word))
            assert await client.receive() == chunk(word)
        await client.send(chunk(b""))
        await peer.read(5)
        await peer.send(chunk(b""))
        assert await client.receive() == chunk(b"")
        await guarded.site.until(lambda: guarded.proxy.statistics().upstreams[0].active == 0)


@on_each_loop
async def test_a_client_that_does_not_read_stops_its_upstream_and_not_the_memory(loop: Loop) -> None:
    async with guarding(loop, send_buffer=4096) as guarded:
        client = await guarded.site.connect(receive_buffer=4096)
        await client.send(GET)
        peer = await guarded.upstream.accept()
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        sending = guarded.tasks.start(peer.send, bytes(100_000_000))
        await guarded.site.until(lambda: guarded.site.server.connections()[0].phase == "write")
        await loop.settle()
        assert sending.pending
        sending.cancel()


@on_each_loop
async def test_an_upstream_that_does_not_read_stops_its_client_and_not_the_memory(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(100_000_000))
        await peer.head()
        sending = guarded.tasks.start(client.send, bytes(100_000_000))
        await loop.sleep(30)
        assert sending.pending
        sending.cancel()


@on_each_loop
async def test_a_client_that_resets_ends_its_request_at_the_upstream(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin()
        await peer.head()
        client.reset()
        assert await peer.end() in ("eof", "reset")
        assert await guarded.site.reason() is Reason.CLIENT_RESET


@on_each_loop
async def test_a_client_that_leaves_in_its_body_ends_its_request_at_the_upstream(loop: Loop) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(post(1000) + b"abc")
        await peer.head()
        await peer.read(3)
        await client.conn.aclose()
        # an end could pass for that of a request without a length
        assert await peer.end() == "reset"
        assert await guarded.site.reason() in (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)
