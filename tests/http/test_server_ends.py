"""How connections end other than by a deadline of their own: the drain, limits, TLS, peers that leave, applications
that fail."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import open_tcp_listeners, open_tcp_stream
from deadlined.http import Exchange, HttpServer, Limits, Phase, Reason, ResponseError, Timeouts
from deadlined.http.dates import DateLine
from deadlined.http.policy import IDLE_GRACE
from deadlined.runtime import current_pump
from tests.support.http import (
    CHUNKED_POST,
    GET,
    LAST_GET,
    Seen,
    Site,
    answer,
    echo,
    endless,
    hello,
    only,
    post,
    serving,
    whole_body,
)
from tests.support.net import LOCALHOST, assert_heap_is_sound
from tests.support.parsers import Choice

pytestmark = pytest.mark.usefixtures("parser")

Handler = Callable[[Exchange], Awaitable[object]]

HUGE = 16 * 1024 * 1024


async def slow(exchange: Exchange) -> None:
    """Answers after 3 seconds."""
    await trio.sleep(3)
    await answer(exchange)


async def never(exchange: Exchange) -> None:
    await trio.sleep_forever()


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


# the drain


async def test_a_drain_closes_what_is_idle_after_a_moment_and_accepts_nothing(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75, drain=30)) as site:
        client = await site.connect()
        await client.get()
        site.server.shutdown()
        assert await client.receive() == b""
        record = await site.ended()
        assert (record.reason, record.phase, trio.current_time()) == (Reason.DONE, Phase.IDLE, IDLE_GRACE)
        with pytest.raises(OSError, match="connect"):
            await open_tcp_stream(LOCALHOST, site.port)


async def test_a_drain_lets_a_busy_connection_finish_and_close(autojump_clock: MockClock) -> None:
    async with serving(slow, only(drain=30)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        site.server.shutdown()
        response = await client.response()
        assert (response.status, response.closes, trio.current_time()) == (200, True, 3.0)
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE


async def test_a_drain_gives_a_new_connection_five_seconds(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10, drain=30)) as site:
        silent, late = await site.connect(), await site.connect()
        await wait_all_tasks_blocked()
        site.server.shutdown()
        await trio.sleep(4.9)
        response = await late.get()
        assert (response.status, response.closes) == (200, True)
        assert await silent.receive() == b""
        assert trio.current_time() == 5.0
        assert await site.reason(2) is Reason.DONE


async def test_a_drain_does_not_prolong_what_would_end_sooner(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10, drain=30)) as site:
        client = await site.connect()
        await trio.sleep(8)
        site.server.shutdown()
        assert await client.receive() == b""
        assert trio.current_time() == 10.0


async def test_a_drain_cuts_what_is_left_at_its_deadline(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(never), only(drain=30)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(7)
        site.server.shutdown()
        assert await client.end() == "reset"
        assert trio.current_time() == 37.0
        record = await site.ended()
        assert (record.reason, record.elapsed, record.lateness) == (Reason.DRAIN_TIMEOUT, 37.0, 0.0)
        assert seen.ended == [("cancelled", 37.0)]


async def test_a_drain_cuts_a_response_that_is_not_taken(autojump_clock: MockClock) -> None:
    async def huge(exchange: Exchange) -> None:
        await answer(exchange, bytes(HUGE))

    async with serving(huge, only(drain=30)) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        assert await site.reason() is Reason.DRAIN_TIMEOUT
        assert trio.current_time() == 30.0
        assert await client.end() == "reset"


async def drained(server: HttpServer, port: int, *sends: bytes) -> float:
    """How long a drain takes with a client for each of `sends`."""
    clients = [await open_tcp_stream(LOCALHOST, port) for _ in sends]
    for client, data in zip(clients, sends, strict=True):
        await client.send_all(data)
    await wait_all_tasks_blocked()
    start = trio.current_time()
    server.shutdown()
    server.shutdown()
    for client in clients:
        while await client.receive_some():
            pass
        client.close()
    return start


@pytest.mark.parametrize(("sends", "seconds"), [((), 0.0), ((GET,), 3.0), ((GET, b""), 5.0), ((LAST_GET,), 3.0)])
async def test_serve_returns_when_the_last_connection_is_done(
    sends: tuple[bytes, ...], seconds: float, autojump_clock: MockClock
) -> None:
    server = HttpServer(slow, timeouts=only(drain=30), parser=Choice.name)
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drained, server, listener.socket.getsockname()[1], *sends)
        await server.serve([listener])
        assert trio.current_time() == seconds
    assert server.statistics().open == 0
    assert sum(server.statistics().reasons.values()) == len(sends)


async def test_a_server_that_was_shut_down_before_it_served_returns_at_once(autojump_clock: MockClock) -> None:
    server = HttpServer(hello, parser=Choice.name)
    server.shutdown()
    listeners = await open_tcp_listeners(0, host=LOCALHOST)
    await server.serve(listeners)
    assert [listener.socket.fileno() for listener in listeners] == [-1]


async def test_a_drain_gives_a_handshake_that_has_not_begun_five_seconds(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10, drain=30), tls=True) as site:
        client = await site.connect(tls=False)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        assert await client.end() == "eof"
        assert trio.current_time() == 5.0
        assert await site.reason() is Reason.DONE


# TLS


@pytest.mark.parametrize("sends", [b"", b"\x16", b"\x16\x03\x01"])
async def test_a_handshake_that_does_not_come_is_closed_on_time(sends: bytes, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10), tls=True) as site:
        client = await site.connect(tls=False)
        await client.send(sends)
        assert await client.end() in ("eof", "reset")
        assert trio.current_time() == 10.0
        record = await site.ended()
        assert (record.reason, record.phase, record.elapsed) == (Reason.HANDSHAKE_TIMEOUT, Phase.HANDSHAKE, 10.0)


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


async def test_a_half_closed_client_still_gets_its_response(autojump_clock: MockClock) -> None:
    async with serving(slow) as site:
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
    "handler",
    [
        failing(b"half"),
        raising((b"half", True)),
        raising((b"1234", True), (b"56", False), headers=FIVE),
        raising((b"12", True), (b"34", False), headers=FIVE),
        raising((b"12", True), headers=FIVE),
    ],
    ids=["raises", "returns", "long", "short", "stops"],
)
async def test_a_failure_after_the_head_resets_the_connection_and_is_logged_once(
    handler: Handler, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(handler) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        assert await site.reason() is Reason.SERVER_ERROR
        assert site.records.requests[0].status == 200
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("data", [b"", b"x"])
async def test_a_failure_after_the_answer_is_logged_and_the_answer_stands(
    data: bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(raising((b"hello", False), (data, False))) as site:
        client = await site.connect()
        assert (await client.get()).body == b"hello"
        assert await client.end() == "eof"
        assert await site.reason() is Reason.SERVER_ERROR
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ResponseError)


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


@pytest.mark.parametrize("more", [False, True])
async def test_a_handler_that_gives_up_a_send_halfway_leaves_nothing_to_follow(
    more: bool, autojump_clock: MockClock
) -> None:
    async def gives_up(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"%d" % HUGE)])
        with trio.move_on_after(1):
            await exchange.send(bytes(HUGE - more), more)

    async with serving(gives_up) as site:
        client = await site.connect()
        await client.send(GET + GET)
        record = await site.ended()
        assert (record.reason, record.requests, trio.current_time()) == (Reason.SERVER_ERROR, 1, 1.0)
        assert await client.end() == "reset"


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
    dates = DateLine(current_pump().clock)
    line = dates.current()
    assert dates.current() is line
    await trio.sleep(1)
    assert dates.current() is not line
