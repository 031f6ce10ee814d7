"""Deadlines over TLS, from the handshake on."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Phase, Reason
from tests.support.handlers import never, slow
from tests.support.http import GET, Seen, echo, endless, only, post, serving

pytestmark = pytest.mark.usefixtures("parser")


@pytest.mark.parametrize("sends", [b"", b"\x16", b"\x16\x03\x01"])
async def test_a_handshake_that_does_not_come_is_closed_on_time(sends: bytes, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10), tls=True) as site:
        client = await site.connect(tls=False)
        await client.send(sends)
        assert await client.end() in ("eof", "reset")
        assert trio.current_time() == 10.0
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed) == (Reason.HANDSHAKE_TIMEOUT, Phase.HANDSHAKE, 10.0)
        # what tells a client that trickles from a browser that connects in advance
        assert record.received == len(sends)


async def test_the_head_is_timed_from_the_end_of_the_handshake(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10, read_header=10), tls=True) as site:
        client = await site.connect()
        await client.send(b"GET /")
        assert (await client.response()).status == 408
        assert trio.current_time() == 10.0
        assert await site.reason() is Reason.HEADER_TIMEOUT


async def test_deadlines_of_the_handshake_do_not_outlive_it(autojump_clock: MockClock) -> None:
    async with serving(slow, only(handshake=1), tls=True) as site:
        client = await site.connect()
        await trio.sleep(100)
        assert (await client.get()).status == 200
        assert (await client.get()).status == 200


async def test_504_comes_over_tls_on_time(autojump_clock: MockClock) -> None:
    async with serving(never, only(handler=3), tls=True) as site:
        client = await site.connect()
        response = await client.get()
        assert (response.status, response.closes, trio.current_time()) == (504, True, 3.0)
        assert await site.reason() is Reason.HANDLER_TIMEOUT


async def test_408_for_a_body_comes_over_tls_on_time(autojump_clock: MockClock) -> None:
    async with serving(echo, only(body_grace=20), tls=True) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert trio.current_time() == 20.0
        assert await site.reason() is Reason.BODY_RATE


async def test_idle_ends_over_tls_on_time(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75), tls=True) as site:
        client = await site.connect()
        await client.get()
        assert await client.end() == "eof"
        assert trio.current_time() == 76.0


async def test_a_response_that_is_not_taken_is_cut_over_tls(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(endless), only(write_grace=10, write_min_rate=float("inf")), tls=True) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert (record.reason, trio.current_time()) == (Reason.WRITE_TIMEOUT, 10.0)
        assert seen.ended == [("cancelled", 10.0)]
        assert await client.end() == "reset"


async def test_plain_http_on_the_tls_port_is_told_so_in_plain(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        client = await site.connect(tls=False)
        response = await client.get()
        assert response.status == 400
        assert b"TLS" in response.body
        assert await site.reason() is Reason.PROTOCOL_ERROR


async def test_tls_on_the_plain_port_is_refused(autojump_clock: MockClock) -> None:
    async with serving() as site:
        with pytest.raises(trio.BrokenResourceError):
            await site.connect(tls=True)
        assert await site.reason() is Reason.PROTOCOL_ERROR


async def test_a_broken_handshake_is_a_protocol_error(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        client = await site.connect(tls=False)
        await client.send(b"\x16\x03\x01\x00\x05nonsense")
        await client.end()
        assert await site.reason() is Reason.PROTOCOL_ERROR


async def test_a_client_that_looks_in_and_leaves_is_no_protocol_error(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        client = await site.connect(tls=False)
        client.conn.close()
        assert await site.reason() is Reason.CLIENT_CLOSED
