"""What a client is told whose request is refused before any handler: at once, with the right status, and framed so
that the client can read it."""

from __future__ import annotations

import json

import pytest
import trio

from deadlined.http import Exchange, Limits, Reason
from tests.support.http import GET, only, serving

pytestmark = pytest.mark.usefixtures("parser")

LIMITS = Limits(max_head=200, max_headers=5, max_body=5)


async def never(exchange: Exchange) -> None:
    raise AssertionError("the handler was called")


NO_HTTP = {
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "SOCKS": b"\x05\x01\x00",
    "letters": b"A" * 100,
    "bytes": bytes(range(128, 256)),
    "HTTP/0.9": b"GET /\r\n",
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP.keys())
async def test_bytes_that_are_not_http_are_answered_at_once(
    data: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(never, only(read_header=10)) as site:
        client = await site.connect()
        start = trio.current_time()
        await client.send(data)
        response = await client.response()
        assert trio.current_time() == start
        assert (response.status, response.closes) == (400, True)
        assert await site.reason() is Reason.PROTOCOL_ERROR


REFUSED = {
    "no host": (b"HEAD / HTTP/1.1\r\n\r\n", 400),
    "a fold": (b"HEAD / HTTP/1.1\r\nhost: x\r\n ", 400),
    "a long target": (b"HEAD /" + b"a" * 200, 414),
    "a long head": (b"HEAD / HTTP/1.1\r\na: " + b"a" * 200, 431),
    "many fields": (b"HEAD / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 6 + b"\r\n", 431),
    "a long body": (b"HEAD / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n", 413),
    "an expectation": (b"HEAD / HTTP/1.1\r\nhost: x\r\nexpect: x\r\n\r\n", 417),
    "another version": (b"HEAD / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_head_that_is_refused_gets_no_body(data: bytes, status: int) -> None:
    async with serving(never, limits=LIMITS) as site:
        client = await site.connect()
        await client.send(data)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.endswith(b"\r\n\r\n")
        assert b"content-length: 0" not in answer


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_get_that_is_refused_is_told_why(
    data: bytes, status: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(never, limits=LIMITS) as site:
        client = await site.connect()
        await client.send(data.replace(b"HEAD", b"GET", 1) if status != 414 else data.replace(b"HEAD", b"POST", 1))
        response = await client.response()
        assert (response.status, response.closes) == (status, True)
        await site.records.ended()
        why = json.loads(response.body)
        assert (why["status"], why["reason"]) == (status, site.records.connections[0].reason)
        assert why["detail"]
        assert b"b'" not in response.body


async def test_a_head_that_is_late_gets_no_body(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(never, only(read_header=10)) as site:
        client = await site.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nhost")
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b"\r\n\r\n")


async def test_connect_is_refused_before_the_handler() -> None:
    async with serving(never) as site:
        client = await site.connect()
        response = await client.get(b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n")
        assert (response.status, response.closes) == (501, True)


async def test_a_good_request_before_a_bad_one_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.send(GET + b"HEAD http:/// HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.response()).status == 200
        assert (await client.rest()).endswith(b"\r\n\r\n")
        assert await site.reason() is Reason.PROTOCOL_ERROR
