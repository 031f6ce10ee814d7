"""How connections end other than by a deadline of their own: the drain, limits, TLS, peers that leave, applications
that fail."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Limits, Phase, Reason, ResponseError, Timeouts
from deadlined.http.dates import DateLine
from deadlined.runtime import current_host
from tests.support.handlers import HUGE, KIB, Handler, never, slow
from tests.support.http import (
    CHUNKED_POST,
    GET,
    Seen,
    Site,
    answer,
    chunk,
    echo,
    endless,
    hello,
    only,
    post,
    serving,
    whole_body,
)
from tests.support.net import assert_heap_is_sound

pytestmark = pytest.mark.usefixtures("parser")


# limits of a connection


async def test_the_last_allowed_request_says_so(autojump_clock: MockClock) -> None:
    async with serving(limits=Limits(max_requests=3)) as site:
        client = await site.connect()
        assert [(await client.get()).closes for _ in range(3)] == [False, False, True]
        assert await client.end() == "eof"
        record = await site.ended()
        assert (record.reason, record.requests) == (Reason.KEEPALIVE_LIMIT, 3)


async def test_what_is_pipelined_beyond_the_last_request_is_not_handled(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(hello), limits=Limits(max_requests=2)) as site:
        client = await site.connect()
        await client.send(GET * 5)
        assert [(await client.response()).closes for _ in range(2)] == [False, True]
        assert await client.end() == "eof"
        assert len(seen.began) == 2


async def test_an_old_connection_ends_with_its_next_response(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(connection_age=100)) as site:
        client = await site.connect()
        await trio.sleep(89.9)
        assert not (await client.get()).closes
        await trio.sleep(200)
        assert (await client.get()).closes
        assert await client.end() == "eof"
        assert await site.reason() is Reason.CONNECTION_AGE


async def test_an_application_can_end_the_connection(autojump_clock: MockClock) -> None:
    async def closes(exchange: Exchange) -> None:
        exchange.start(200, [(b"connection", b"close")])
        await exchange.send(b"", False)

    async with serving(closes) as site:
        client = await site.connect()
        assert (await client.get()).closes
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE


# peers that leave


async def in_handshake(site: Site) -> None:
    client = await site.connect(tls=False)
    await client.send(b"\x16\x03\x01")
    await wait_all_tasks_blocked()
    client.reset()


def leaving_after(data: bytes, responses: int = 0) -> Callable[[Site], Awaitable[None]]:
    async def leave(site: Site) -> None:
        client = await site.connect()
        await client.send(data)
        for _ in range(responses):
            await client.response()
        await wait_all_tasks_blocked()
        client.reset()

    return leave


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("handler", "leave", "requests"),
    [
        (hello, leaving_after(b""), 0),
        (hello, leaving_after(b"GET / HT"), 0),
        (echo, leaving_after(post(10) + b"hello"), 1),
        (echo, leaving_after(CHUNKED_POST), 1),
        (endless, leaving_after(GET), 1),
        (Exchange.wait_disconnected, leaving_after(GET), 1),
        (hello, leaving_after(GET, 1), 1),
        (hello, leaving_after(GET + b"GET ", 1), 1),
    ],
    ids=["silent", "header", "body", "chunks", "write", "watched", "idle", "next header"],
)
async def test_a_reset_in_any_phase_ends_one_connection_and_no_more(
    handler: Handler, leave: Callable[[Site], Awaitable[None]], requests: int, tls: bool, autojump_clock: MockClock
) -> None:
    handled = 0

    async def first_only(exchange: Exchange) -> None:
        nonlocal handled
        handled += 1
        await (handler if handled == 1 else hello)(exchange)

    async with serving(first_only, Timeouts(), tls=tls) as site:
        await leave(site)
        record = await site.ended()
        assert (record.reason, record.requests) == (Reason.CLIENT_RESET, requests)
        assert trio.current_time() == 0.0
        client = await site.connect()
        handled = max(handled, 1)
        assert (await client.get()).status == 200
        assert_heap_is_sound()
        assert site.server.statistics().open == 1


async def test_a_reset_during_the_handshake_is_a_reset(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        await in_handshake(site)
        assert await site.reason() is Reason.CLIENT_RESET
        assert (await (await site.connect()).get()).status == 200


@pytest.mark.parametrize("data", [b"", b"GET / HT", GET, post(10) + b"hello"])
async def test_a_client_that_closes_is_noted(data: bytes, autojump_clock: MockClock) -> None:
    async with serving(echo) as site:
        client = await site.connect()
        await client.send(data)
        await client.conn.send_eof()
        await client.end()
        record = await site.ended()
        assert (record.reason, record.lateness) == (Reason.CLIENT_CLOSED, 0.0)


@pytest.mark.parametrize(("handler", "cancels"), [(slow, False), (hello, True)], ids=["sleeps", "does not sleep"])
async def test_a_half_closed_client_still_gets_its_response(
    handler: Handler, cancels: bool, autojump_clock: MockClock
) -> None:
    """Its end looks like that of a client that has left, so a handler that sleeps is cancelled by default."""
    async with serving(handler, cancel_on_disconnect=cancels) as site:
        client = await site.connect()
        await client.send(GET)
        await client.conn.send_eof()
        assert (await client.response()).status == 200


async def test_a_handler_learns_that_the_peer_left(autojump_clock: MockClock) -> None:
    left: list[float] = []

    async def watches(exchange: Exchange) -> None:
        await exchange.wait_disconnected()
        left.append(trio.current_time())

    async with serving(watches) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(4)
        client.conn.close()
        await site.ended()
        assert left == [4.0]


async def test_a_watcher_of_a_flood_stops_reading_it(autojump_clock: MockClock) -> None:
    taken: list[int] = []

    async def watched(exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.wait_disconnected)
            await trio.sleep(1)
            taken.append(exchange._host.transport.received)
            await answer(exchange)

    async with serving(watched) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_what_is_taken, post(HUGE) + bytes(HUGE))
            await client.response()
        assert taken[0] < 256 * 1024


async def fails_after_5_seconds(_: Exchange) -> None:
    await trio.sleep(5)
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("handler", "timeouts", "drains", "status"),
    [
        (never, only(handler=5), False, 504),
        (never, only(drain=5), True, None),
        (fails_after_5_seconds, None, False, 500),
    ],
    ids=["late", "drained", "failed"],
)
async def test_a_watcher_of_a_flood_is_released_by_the_end_of_the_exchange(
    handler: Handler, timeouts: Timeouts | None, drains: bool, status: int | None, autojump_clock: MockClock
) -> None:
    """Though it is no task of the handler, so that nobody cancels it, and reads nothing that could fail."""
    released: list[float] = []
    exchanges: list[Exchange] = []

    async def watch(exchange: Exchange) -> None:
        with trio.fail_after(3600):
            await exchange.wait_disconnected()
        released.append(trio.current_time())

    async def watched(exchange: Exchange) -> None:
        exchanges.append(exchange)
        outside.start_soon(watch, exchange)
        await handler(exchange)

    limits = Limits(max_head=1000)
    async with trio.open_nursery() as outside, serving(watched, timeouts, limits) as site:
        client = await site.connect()
        await client.send(GET + GET * 100)
        await wait_all_tasks_blocked()
        assert exchanges[0]._host.reader.buffered > limits.max_head
        if drains:
            site.server.shutdown()
        if status is not None:
            assert (await client.response()).status == status
        await site.ended()
        await wait_all_tasks_blocked()
        assert released == [5.0]


async def test_a_watcher_is_released_by_the_response_and_keeps_what_came_meanwhile(autojump_clock: MockClock) -> None:
    async def watched(exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.wait_disconnected)
            await trio.sleep(1)
            await answer(exchange)

    async with serving(watched) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(0.5)
        await client.send(GET + GET)
        assert [(await client.response()).status for _ in range(3)] == [200] * 3
        assert trio.current_time() == 3.0


# applications that fail


def failing(before: bytes | None) -> Handler:
    async def fails(exchange: Exchange) -> None:
        if before is not None:
            exchange.start(200, [])
            if before:
                await exchange.send(before, True)
        raise LookupError("no such thing")

    return fails


def raising(*steps: tuple[bytes, bool], headers: tuple[tuple[bytes, bytes], ...] = (), starts: int = 1) -> Handler:
    async def wrong(exchange: Exchange) -> None:
        for _ in range(starts):
            exchange.start(200, headers)
        for data, more in steps:
            await exchange.send(data, more)

    return wrong


FIVE = ((b"content-length", b"5"),)
HEAD = b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"
OLD_GET = b"GET / HTTP/1.0\r\n\r\n"


async def returns(exchange: Exchange) -> None:
    return None


@pytest.mark.parametrize(
    "handler",
    [
        failing(None),
        failing(b""),
        returns,
        raising(starts=1),
        raising(starts=2),
        raising((b"x", False), starts=0),
        raising((b"123456", False), headers=FIVE),
        raising((b"1234", False), headers=FIVE),
        raising((b"", False), headers=((b"a", b"b\r\nc: d"),)),
    ],
    ids=["raises", "raises after start", "returns", "only starts", "starts twice", "no start", "long", "short", "evil"],
)
async def test_a_failure_before_the_answer_is_a_500_and_logged_once(
    handler: Handler, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(handler) as site:
        client = await site.connect()
        response = await client.get()
        assert (response.status, response.closes) == (500, True)
        assert b"no such thing" not in response.body
        assert await client.end() == "eof"
        assert await site.reason() is Reason.SERVER_ERROR
        assert site.records.requests[0].status == 500
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "GET / failed")
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("handler", "request_", "end"),
    [
        (failing(b"half"), GET, "eof"),
        (raising((b"half", True)), GET, "eof"),
        (raising((b"12345", True), headers=FIVE), GET, "eof"),
        (raising((b"half", True)), HEAD, "eof"),
        (failing(b"half"), OLD_GET, "reset"),
        (raising((b"1234", True), (b"56", False), headers=FIVE), GET, "reset"),
        (raising((b"12", True), (b"34", False), headers=FIVE), GET, "reset"),
        (raising((b"12", True), headers=FIVE), GET, "reset"),
    ],
    ids=["raises", "returns", "returns late", "no body", "ends by close", "long", "short", "stops"],
)
async def test_a_failure_after_the_head_ends_the_connection_and_is_logged_once(
    handler: Handler, request_: bytes, end: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reset if a client could take the part for the whole."""
    async with serving(handler) as site:
        client = await site.connect()
        await client.send(request_)
        assert await client.end() == end
        assert await site.reason() is Reason.SERVER_ERROR
        assert site.records.requests[0].status == 200
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_what_was_sent_before_a_failure_reaches_a_client_that_reads_late(autojump_clock: MockClock) -> None:
    sent = [0]
    late = trio.Event()

    async def goes_on(exchange: Exchange) -> None:
        await trio.sleep(5)
        with pytest.raises(Disconnected):
            await exchange.send(b"more", False)
        late.set()

    async def fails(exchange: Exchange) -> None:
        trio.lowlevel.spawn_system_task(goes_on, exchange)
        exchange.start(200, [])
        while not exchange.waits_for_peer:
            sent[0] += 1
            exchange.try_send(bytes(KIB), True)
        raise LookupError("no such thing")

    async with serving(fails) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await late.wait()
        assert (await client.rest()).count(chunk(bytes(KIB))) == sent[0]
        assert await site.reason() is Reason.SERVER_ERROR


async def test_what_leaves_after_a_failure_is_not_cut_without_a_reset(autojump_clock: MockClock) -> None:
    """Many clients would take the part for the whole."""
    whole = bytes(8 * KIB * KIB)

    async def fails_at_once(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"%d" % len(whole))])
        exchange.try_send(whole, True)
        raise LookupError("no such thing")

    async with serving(fails_at_once, only(write_grace=5)) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await site.ended()
        assert await client.end() == "reset"
        assert await site.reason() is Reason.SERVER_ERROR


@pytest.mark.parametrize("data", [b"", b"x"])
async def test_a_failure_after_the_answer_is_logged_and_the_connection_goes_on(
    data: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(raising((b"hello", False), (data, False))) as site:
        client = await site.connect()
        for _ in range(2):
            response = await client.get()
            assert (response.body, response.closes) == (b"hello", False)
        assert site.server.statistics().accepted == 1
        assert [record.reason for record in site.records.requests] == [None, None]
    for record in caplog.records:
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], ResponseError)
    assert len(caplog.records) == 2


async def test_a_disconnect_that_a_handler_lets_through_is_not_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(whole_body) as site:
        client = await site.connect()
        await client.send(post(5))
        await wait_all_tasks_blocked()
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
    assert caplog.records == []


async def test_a_500_to_head_has_no_body(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(failing(None)) as site:
        client = await site.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\n")


async def test_a_failure_ends_its_own_connection_only(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def sometimes(exchange: Exchange) -> None:
        if exchange.request.target == b"/bad":
            raise LookupError
        await slow(exchange)

    async with serving(sometimes) as site:
        good, bad = await site.connect(), await site.connect()
        await good.send(GET)
        assert (await bad.get(GET.replace(b"/", b"/bad", 1))).status == 500
        assert (await good.response()).status == 200
        assert (await good.get()).status == 200


async def test_a_handler_that_gives_up_a_response_halfway_leaves_nothing_to_follow(autojump_clock: MockClock) -> None:
    async def gives_up(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"%d" % HUGE)])
        with trio.move_on_after(1):
            await exchange.send(bytes(HUGE - 1), True)

    async with serving(gives_up) as site:
        client = await site.connect()
        await client.send(GET + GET)
        record = await site.ended()
        assert (record.reason, record.requests, trio.current_time()) == (Reason.SERVER_ERROR, 1, 1.0)
        assert await client.end() == "reset"


async def test_a_response_that_nobody_waits_for_is_sent_before_the_next_request_is_served(
    autojump_clock: MockClock,
) -> None:
    begun: list[float] = []

    async def gives_up(exchange: Exchange) -> None:
        begun.append(trio.current_time())
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(bytes(1_000_000), False)

    async with serving(gives_up) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET + GET)
        await trio.sleep(10)
        assert begun == [0.0]
        for _ in range(2):
            assert len((await client.response()).body) == 1_000_000
        assert begun == [0.0, 10.0]


# what the server knows of itself


async def test_the_statistics_tell_of_every_connection(autojump_clock: MockClock) -> None:
    async with serving(slow, only(idle=75)) as site:
        idle, silent, busy, gone = [await site.connect() for _ in range(4)]
        await idle.get()
        await busy.send(GET)
        gone.reset()
        await wait_all_tasks_blocked()
        statistics = site.server.statistics()
        assert (statistics.open, statistics.accepted, statistics.requests) == (3, 4, 1)
        assert statistics.phases == {Phase.IDLE: 1, Phase.HEADER: 1, Phase.HANDLER: 1}
        assert statistics.reasons == {Reason.CLIENT_RESET: 1}
        first, *_ = site.server.connections()
        assert (first.id, first.phase, first.age, first.left, first.requests) == (1, Phase.IDLE, 3.0, 76.0, 1)
        silent.conn.close()


async def test_the_date_is_made_anew_each_second(autojump_clock: MockClock) -> None:
    dates = DateLine(current_host().clock)
    line = dates.current()
    assert dates.current() is line
    await trio.sleep(1)
    assert dates.current() is not line


# handlers that were cut short


async def fails(exchange: Exchange) -> None:
    raise LookupError("meant to fail")


@pytest.mark.parametrize(
    ("handler", "timeouts", "leaves", "cuts"),
    [
        (hello, only(), False, 0),
        (hello, only(), True, 0),
        (never, only(), True, 1),
        (endless, only(), True, 1),
        (endless, only(write_grace=10, write_min_rate=HUGE), False, 1),
        (never, only(handler=5), False, 1),
        (fails, only(), False, 1),
    ],
    ids=["served", "left-after", "left-in-sleep", "left-in-send", "does-not-read", "too-late", "fails"],
)
async def test_a_handler_that_was_cut_short_is_told_once(
    handler: Handler, timeouts: Timeouts, leaves: bool, cuts: int, autojump_clock: MockClock
) -> None:
    told: list[float] = []
    async with serving(handler, timeouts, on_cut=lambda: told.append(trio.current_time())) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        if leaves:
            client.reset()
        await trio.sleep(100)
        assert len(told) == cuts
