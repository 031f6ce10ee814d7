"""The deadlines of reading: of the head, of the body, and between requests."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Disconnected, Exchange, Phase, Reason
from tests.support.handlers import after
from tests.support.http import GET, Seen, echo, hello, only, post, serving, trickle

pytestmark = pytest.mark.usefixtures("parser")

PARTIAL_HEAD = b"GET / HTTP/1.1\r\nhost:"


async def test_a_silent_connection_is_closed_silently_at_read_header(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(hello), only(read_header=10)) as site:
        client = await site.connect()
        assert await client.receive() == b""
        assert trio.current_time() == 10.0
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed, record.lateness) == (
            Reason.HEADER_TIMEOUT,
            Phase.HEADER,
            10.0,
            0.0,
        )
        assert seen.began == []


@pytest.mark.parametrize("every", [0.1, 1.0, 9.0])
async def test_a_trickled_head_is_cut_at_read_header_with_408(every: float, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10)) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, client, PARTIAL_HEAD + b"a" * 1000, every)
            response = await client.response()
            assert trio.current_time() == 10.0
            assert (response.status, response.closes) == (408, True)
            assert await site.reason() is Reason.HEADER_TIMEOUT
            nursery.cancel_scope.cancel()


async def test_a_head_just_in_time_is_served(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10)) as site:
        client = await site.connect()
        await client.send(GET[:-1])
        await trio.sleep(9.999)
        assert (await client.get(GET[-1:])).status == 200


async def test_the_head_of_a_next_request_is_timed_from_its_first_byte(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10, idle=100)) as site:
        client = await site.connect()
        await client.get()
        await trio.sleep(50)
        await client.send(PARTIAL_HEAD)
        assert (await client.response()).status == 408
        assert trio.current_time() == 60.0
        assert await site.reason() is Reason.HEADER_TIMEOUT


async def test_a_pipelined_partial_head_is_timed_from_the_response_before_it(autojump_clock: MockClock) -> None:
    async with serving(after(5), timeouts=only(read_header=10, idle=100)) as site:
        client = await site.connect()
        await client.send(GET + PARTIAL_HEAD)
        assert (await client.response()).status == 200
        assert trio.current_time() == 5.0
        assert (await client.response()).status == 408
        assert trio.current_time() == 15.0


async def test_read_header_does_not_outlive_the_head(autojump_clock: MockClock) -> None:
    async with serving(after(100, echo), only(read_header=1)) as site:
        client = await site.connect()
        await client.send(post(5))
        await trio.sleep(150)
        await client.send(b"hello")
        assert (await client.response()).body == b"hello"


async def test_read_cuts_head_and_body_together(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(echo), only(read_header=10, read=15)) as site:
        client = await site.connect()
        await client.send(post(100)[:-1])
        await trio.sleep(8)
        await client.send(post(100)[-1:])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, client, bytes(99), 1.0)
            response = await client.response()
            assert trio.current_time() == 15.0
            assert (response.status, response.closes) == (408, True)
            assert seen.ended == [("disconnected", 15.0)]
            record = await site.ended()
            assert (record.reason, record.elapsed) == (Reason.READ_TIMEOUT, 15.0)
            assert site.records.requests[0].status == 408
            nursery.cancel_scope.cancel()


async def test_read_shorter_than_read_header_cuts_the_head(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10, read=4)) as site:
        client = await site.connect()
        await client.send(PARTIAL_HEAD)
        assert (await client.response()).status == 408
        assert trio.current_time() == 4.0
        assert await site.reason() is Reason.READ_TIMEOUT


@pytest.mark.parametrize(("read", "reason"), [(4, Reason.READ_TIMEOUT), (10, Reason.HEADER_TIMEOUT)])
async def test_a_silent_connection_is_closed_by_the_sooner_of_read_and_read_header(
    read: float, reason: Reason, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=10, read=read)) as site:
        client = await site.connect()
        assert await client.receive() == b""
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed) == (reason, Phase.HEADER, read)


async def test_a_body_that_does_not_come_is_cut_after_its_grace(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(echo), only(body_grace=20)) as site:
        client = await site.connect()
        response = await client.get(post(100))
        assert (response.status, trio.current_time()) == (408, 20.0)
        assert seen.ended == [("disconnected", 20.0)]
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed) == (Reason.BODY_RATE, Phase.BODY, 20.0)


async def test_the_bodys_clock_stands_still_while_the_handler_does_not_receive(autojump_clock: MockClock) -> None:
    async def pauses(exchange: Exchange) -> None:
        await trio.sleep(100)
        assert await exchange.receive() == b"one"
        await trio.sleep(100)
        await exchange.receive()

    async with serving(pauses, only(body_grace=20, body_min_rate=1)) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.response)
            await client.send(post(100))
            await trio.sleep(119)
            await client.send(b"one")
        # 20 seconds and 3 bytes' worth of receiving, of which 19 were spent on the first piece
        assert trio.current_time() == 100 + 19 + 100 + 4
        assert await site.reason() is Reason.BODY_RATE


async def test_bytes_earn_a_body_time_by_the_rate_and_no_more(autojump_clock: MockClock) -> None:
    async with serving(echo, only(body_grace=20, body_min_rate=500)) as site:
        client = await site.connect()
        await client.send(post(100_000) + bytes(5_000))
        await trio.sleep(29)
        # the eleventh second's worth, in the last moment
        await client.send(bytes(500))
        assert (await client.response()).status == 408
        assert trio.current_time() == 20 + 5_500 / 500


async def test_a_body_above_its_rate_takes_as_long_as_it_takes(autojump_clock: MockClock) -> None:
    async with serving(echo, only(body_grace=1, body_min_rate=500)) as site:
        client = await site.connect()
        await client.send(post(100_000))
        for _ in range(200):
            await client.send(bytes(500))
            await trio.sleep(0.999)
        assert len((await client.response()).body) == 100_000


async def test_a_slow_body_after_the_head_of_the_response_ends_without_another_answer(
    autojump_clock: MockClock,
) -> None:
    async def early(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"early", True)
        with pytest.raises(Disconnected):
            await exchange.receive()
        await exchange.send(b" and late", False)

    async with serving(early, only(body_grace=20)) as site:
        client = await site.connect()
        response = await client.get(post(100))
        assert (response.status, response.body) == (200, b"early and late")
        assert trio.current_time() == 20.0
        assert await client.end() == "eof"
        assert await site.reason() is Reason.BODY_RATE


async def test_an_unread_body_that_does_not_come_is_not_waited_for_longer_than_its_grace(
    autojump_clock: MockClock,
) -> None:
    async with serving(timeouts=only(body_grace=20)) as site:
        client = await site.connect()
        assert (await client.get(post(100))).status == 200
        assert await client.end() == "eof"
        assert trio.current_time() == 20.0
        assert await site.reason() is Reason.BODY_RATE


async def test_an_idle_connection_is_closed_a_second_after_what_it_was_told(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75)) as site:
        client = await site.connect()
        response = await client.get()
        assert response.headers["keep-alive"] == "timeout=75"
        assert await client.receive() == b""
        assert trio.current_time() == 76.0
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed) == (Reason.IDLE_TIMEOUT, Phase.IDLE, 76.0)


async def test_idle_begins_anew_after_each_response(autojump_clock: MockClock) -> None:
    async with serving(after(30), only(idle=75)) as site:
        client = await site.connect()
        for _ in range(3):
            assert (await client.get()).status == 200
            await trio.sleep(75.9)
        assert (await client.get()).status == 200
        done = trio.current_time()
        assert await client.end() == "eof"
        assert trio.current_time() == done + 76


async def test_without_an_idle_timeout_none_is_advertised(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        assert "keep-alive" not in (await client.get()).headers
        await trio.sleep(80_000)
        assert (await client.get()).status == 200
