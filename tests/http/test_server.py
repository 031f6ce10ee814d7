"""The server through real sockets, in virtual time: each deadline cuts at its exact moment and says what it owes.

Every connection begins at 0.0 of the virtual clock, so a deadline is met if the clock shows it, to the last bit.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Limits, Phase, Reason, Timeouts
from deadlined.http.policy import STALL
from deadlined.runtime import current_pump
from tests.support.http import (
    CHUNKED_POST,
    GET,
    LAST_GET,
    Client,
    Seen,
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
from tests.support.net import INF

pytestmark = pytest.mark.usefixtures("parser")

KIB = 1024
# more than the kernel's buffers of both ends take
HUGE = 16 * KIB * KIB

Handler = Callable[[Exchange], Awaitable[object]]

PARTIAL_HEAD = b"GET / HTTP/1.1\r\nhost:"


def after(seconds: float, handler: Handler = hello) -> Handler:
    """`handler`, that long after the request."""

    async def late(exchange: Exchange) -> None:
        await trio.sleep(seconds)
        await handler(exchange)

    return late


async def stubborn(exchange: Exchange) -> None:
    """Works for an hour and cannot be cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(3600)
    await answer(exchange)


async def huge(exchange: Exchange) -> None:
    await answer(exchange, bytes(HUGE))


async def trickle(client: Client, data: bytes, every: float) -> None:
    """Send byte by byte, until the server has had enough."""
    try:
        for i in range(len(data)):
            await client.send(data[i : i + 1])
            await trio.sleep(every)
    except trio.BrokenResourceError:
        return


# requests and responses


async def test_requests_follow_each_other_on_one_connection(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        for _ in range(3):
            response = await client.get()
            assert (response.status, response.body, response.closes) == (200, b"hello", False)
        assert (await client.get(LAST_GET)).closes
        assert await client.end() == "eof"
        record = await site.ended()
        assert (record.reason, record.requests, record.lateness) == (Reason.DONE, 4, 0.0)
        assert [request.status for request in site.records.requests] == [200] * 4
        assert [request.reason for request in site.records.requests] == [None, None, None, Reason.DONE]


async def test_the_records_count_every_byte(autojump_clock: MockClock) -> None:
    async with serving(echo) as site:
        client = await site.connect()
        request = post(5, b"connection: close") + b"hello"
        await client.send(request)
        sent = await client.rest()
        record = await site.ended()
        assert (record.received, record.sent) == (len(request), len(sent))
        (one,) = site.records.requests
        assert (one.method, one.target, one.version, one.status) == ("POST", "/", "1.1", 200)
        assert one.sent == len(sent)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_bodies_of_a_length_go_both_ways(size: int, tls: bool, autojump_clock: MockClock) -> None:
    async with serving(echo, tls=tls) as site:
        client = await site.connect()
        body = bytes(i % 251 for i in range(1000)) * (size // 1000 + 1)
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send, post(size) + body[:size])
                assert (await client.response()).body == body[:size]


@pytest.mark.parametrize("tls", [False, True])
async def test_chunks_go_both_ways_as_they_come(tls: bool, autojump_clock: MockClock) -> None:
    async def parrot(exchange: Exchange) -> None:
        exchange.start(200, [])
        while piece := await exchange.receive():
            await exchange.send(piece, True)
        await exchange.send(b"", False)

    async with serving(parrot, tls=tls) as site:
        client = await site.connect()
        await client.send(CHUNKED_POST)
        for piece in (b"one", b"two"):
            await client.send(chunk(piece))
            assert (await client.receive()).endswith(chunk(piece))
        await client.send(chunk(b"") + GET)
        assert (await client.receive()).startswith(b"0\r\n\r\n")


async def test_pipelined_requests_are_each_handled_once_in_order(autojump_clock: MockClock) -> None:
    targets: list[bytes] = []

    async def note(exchange: Exchange) -> None:
        body = await whole_body(exchange)
        targets.append(exchange.request.target)
        await trio.sleep(0.01 if len(targets) % 7 == 0 else 0)
        await answer(exchange, exchange.request.target + body)

    async with serving(note) as site:
        client = await site.connect()
        stream = b""
        expected = []
        for i in range(100):
            body = b"" if i % 3 == 0 else b"%d" % i
            stream += b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (i, len(body), body)
            expected.append(b"/%d%b" % (i, body))
        await client.send(stream)
        assert [(await client.response()).body for _ in range(100)] == expected
        assert targets == [b"/%d" % i for i in range(100)]


async def test_pipelined_requests_leave_room_for_other_connections(autojump_clock: MockClock) -> None:
    order: list[bytes] = []

    async def note(exchange: Exchange) -> None:
        order.append(exchange.request.target)
        await answer(exchange)

    async with serving(note) as site:
        one, other = await site.connect(), await site.connect()
        await one.send(GET.replace(b"/", b"/many", 1) * 200)
        await other.get(GET.replace(b"/", b"/one", 1))
        assert order.index(b"/one") < 100


async def test_head_is_answered_without_a_body(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        response = await client.response("HEAD")
        assert (response.headers["content-length"], response.body) == ("5", b"")
        assert (await client.get()).body == b"hello"


async def test_an_endless_response_to_head_lets_others_live_and_can_be_cut(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(endless)) as site:
        client = await site.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.response("HEAD")).status == 200
    assert seen.ended == [("cancelled", 0.0)]


async def test_http_1_0_closes_unless_it_asks_not_to(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        response = await client.get(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert (response.body, response.headers["connection"]) == (b"hello", "keep-alive")
        response = await client.get(b"GET / HTTP/1.0\r\n\r\n")
        assert (response.body, response.closes) == (b"hello", True)
        assert await client.end() == "eof"


async def test_http_1_0_reads_a_stream_to_its_end(autojump_clock: MockClock) -> None:
    async def stream(exchange: Exchange) -> None:
        exchange.start(200, [])
        for piece in (b"a", b"b", b"c"):
            await exchange.send(piece, True)
        await exchange.send(b"", False)

    async with serving(stream) as site:
        client = await site.connect()
        response = await client.get(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert (response.body, response.closes) == (b"abc", True)
        assert "transfer-encoding" not in response.headers
        assert await site.reason() is Reason.DONE


async def test_continue_is_said_when_the_body_is_asked_for(autojump_clock: MockClock) -> None:
    async with serving(after(3, echo)) as site:
        client = await site.connect()
        await client.send(post(5, b"expect: 100-continue"))
        assert await client.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert trio.current_time() == 3.0
        await client.send(b"hello")
        response = await client.response()
        assert (response.body, response.closes) == (b"hello", False)
        assert (await client.get(post(0))).body == b""


async def test_continue_is_not_said_for_a_body_that_nobody_wants(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        response = await client.get(post(5, b"expect: 100-continue"))
        assert (response.informational, response.closes) == ([], True)
        assert await client.end() == "eof"


@pytest.mark.parametrize("request_", [post(0, b"expect: 100-continue"), post(5, b"expect: 100-continue") + b"hello"])
async def test_who_expects_continue_but_needs_none_keeps_the_connection(
    request_: bytes, autojump_clock: MockClock
) -> None:
    async with serving(echo) as site:
        client = await site.connect()
        response = await client.get(request_)
        assert (response.informational, response.closes) == ([], False)
        assert (await client.get(post(2) + b"ok")).body == b"ok"


async def test_a_small_unread_body_is_thrown_away_and_the_connection_kept(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        response = await client.get(post(200 * KIB) + bytes(100 * KIB))
        assert not response.closes
        await client.send(bytes(100 * KIB))
        assert (await client.get()).body == b"hello"


async def test_a_large_unread_body_closes_the_connection(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        response = await client.get(post(300 * KIB))
        assert response.closes
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE


async def test_a_large_unread_chunked_body_closes_the_connection(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle_chunks, client)
            assert (await client.response()).body == b"hello"
            assert await site.reason() is Reason.DONE


async def trickle_chunks(client: Client) -> None:
    try:
        await client.send(CHUNKED_POST)
        while True:
            await client.send(chunk(bytes(60 * KIB)))
    except trio.BrokenResourceError:
        return


@pytest.mark.parametrize("announced", [True, False])
async def test_a_413_is_readable_by_a_client_that_is_still_sending(announced: bool, autojump_clock: MockClock) -> None:
    size = 5 * KIB * KIB
    async with serving(whole_body, limits=Limits(max_body=1000)) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            data = bytes(size)
            nursery.start_soon(
                client.send_what_is_taken, post(size) + data if announced else CHUNKED_POST + chunk(data)
            )
            await wait_all_tasks_blocked()
            response = await client.response()
            assert (response.status, response.closes) == (413, True)
        assert await site.reason() is Reason.PROTOCOL_ERROR


async def test_a_400_is_readable_by_a_client_that_sends_and_only_then_reads(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.send(b"nonsense\r\n\r\n" + bytes(200 * KIB))
        assert (await client.response()).status == 400
        assert await client.end() == "eof"


async def test_a_refused_client_is_given_two_seconds_to_read_and_leave(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        assert (await client.get(b"nonsense\r\n\r\n")).status == 400
        assert await client.receive() == b""
        assert trio.current_time() == 0.0
        record = await site.ended()
        assert trio.current_time() == 2.0
        assert (record.reason, record.elapsed) == (Reason.PROTOCOL_ERROR, 0.0)


async def test_a_refused_client_that_goes_on_sending_has_the_same_two_seconds(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await client.send(b"nonsense\r\n\r\n" + bytes(400 * KIB))
        await wait_all_tasks_blocked()
        assert (await client.response()).status == 400
        assert await client.receive() == b""
        await client.send(b"more")
        await site.ended()
        assert trio.current_time() == 2.0


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"GET / HTTP/1.1\nhost: x\n\n", 400, Reason.PROTOCOL_ERROR),
        (b"\x16\x03\x01", 400, Reason.PROTOCOL_ERROR),
        (post(5, b"expect: wonders"), 417, Reason.PROTOCOL_ERROR),
        (b"GET / HTTP/2.0\r\n\r\n", 505, Reason.PROTOCOL_ERROR),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 501, Reason.PROTOCOL_ERROR),
        (b"GET /" + b"a" * 20_000, 414, Reason.HEADER_TOO_LARGE),
        (b"GET / HTTP/1.1\r\na: " + b"a" * 20_000, 431, Reason.HEADER_TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431, Reason.HEADER_TOO_LARGE),
    ],
)
async def test_what_cannot_be_served_is_answered_and_not_handled(
    data: bytes, status: int, reason: Reason, autojump_clock: MockClock
) -> None:
    seen = Seen()
    async with serving(seen.watch(hello)) as site:
        for number in (1, 2):
            client = await site.connect()
            if number == 2:
                assert (await client.get()).status == 200
            response = await client.get(data)
            assert (response.status, response.closes) == (status, True)
            assert await client.end() == "eof"
            assert await site.reason(number) is reason
        assert len(seen.began) == 1


async def test_a_bad_chunk_fails_the_handler_and_is_answered(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(echo)) as site:
        client = await site.connect()
        assert (await client.get(CHUNKED_POST + b"xyz\r\n")).status == 400
        assert await site.reason() is Reason.PROTOCOL_ERROR
        assert seen.ended == [("disconnected", 0.0)]
        assert site.records.requests[0].status == 400


async def test_head_and_first_body_leave_in_one_send(autojump_clock: MockClock) -> None:
    sends: list[int] = []

    class Counting(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:
            sends.append(len(data))
            return super().send(data, flags)

    async def counted(exchange: Exchange) -> None:
        conn = exchange._host.transport.conn
        conn._socket = Counting(fileno=conn._socket.detach())
        exchange.start(200, [])
        assert sends == []
        await exchange.send(b"hello", True)
        assert len(sends) == 1
        await exchange.send(b"", False)
        assert len(sends) == 2

    async with serving(counted) as site:
        client = await site.connect()
        assert (await client.get()).body == b"hello"


class Spawns(trio.abc.Instrument):
    """Counts the tasks that are made."""

    def __init__(self) -> None:
        self.count = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_request_makes_no_task_no_scope_and_no_heap_entry(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = Timeouts()
    async with serving(echo, timeouts) as site:
        client = await site.connect()
        # what a connection needs once, it has now
        await client.get(post(5) + b"hello")
        spawns = Spawns()
        scopes: list[object] = []
        enter = trio.CancelScope.__enter__

        def entering(scope: trio.CancelScope) -> trio.CancelScope:
            scopes.append(scope)
            return enter(scope)

        monkeypatch.setattr(trio.CancelScope, "__enter__", entering)
        trio.lowlevel.add_instrument(spawns)
        timers = current_pump()._poller.timers
        stored = len(timers)
        for _ in range(100):
            await client.send(post(10) + b"hello")
            await wait_all_tasks_blocked()
            await client.send(b"world")
            assert (await client.response()).body == b"helloworld"
            assert len(timers) == stored
        trio.lowlevel.remove_instrument(spawns)
        assert spawns.count == 0
        assert scopes == []


# the deadlines of reading


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


# the deadlines of writing


@pytest.mark.parametrize(
    ("timeouts", "cut"),
    [
        (only(write_grace=10, write_min_rate=INF), 15.0),
        (only(write_grace=10, write_min_rate=HUGE), 15.0),
        (only(write=8), 8.0),
        (only(write=30, write_grace=10, write_min_rate=INF), 15.0),
        (only(write=12, write_grace=10, write_min_rate=INF), 12.0),
    ],
)
async def test_a_response_that_is_not_taken_is_reset_and_the_handler_cancelled(
    timeouts: Timeouts, cut: float, autojump_clock: MockClock
) -> None:
    seen = Seen()
    async with serving(seen.watch(after(5, huge)), timeouts) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert trio.current_time() == cut
        assert (record.reason, record.phase, record.elapsed) == (Reason.WRITE_TIMEOUT, Phase.WRITE, cut)
        assert seen.ended == [("cancelled", cut)]
        assert await client.end() == "reset"


async def test_a_send_earns_time_by_its_length(autojump_clock: MockClock) -> None:
    async with serving(huge, only(write_grace=10, write_min_rate=HUGE / 500)) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert 500 <= trio.current_time() < 500.1
        assert record.reason is Reason.WRITE_TIMEOUT


async def test_nobody_stalls_for_longer_than_ten_minutes_however_long_the_send(autojump_clock: MockClock) -> None:
    async with serving(huge, only(write_grace=10, write_min_rate=HUGE / 100_000)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(500)
        await client.receive()
        record = await site.ended()
        assert STALL <= trio.current_time() < STALL + 500.1
        assert record.reason is Reason.WRITE_TIMEOUT


async def test_each_send_has_a_grace_of_its_own(autojump_clock: MockClock) -> None:
    async def three(exchange: Exchange) -> None:
        exchange.start(200, [])
        for _ in range(3):
            await exchange.send(bytes(HUGE), True)
        await exchange.send(b"", False)

    async with serving(three, only(write_grace=10, write_min_rate=INF)) as site:
        client = await site.connect()
        await client.send(GET)
        got = 0
        while got < 3 * HUGE:
            got += len(await client.receive())
            if got % (4 * KIB * KIB) < 65536:
                await trio.sleep(0.5)
        assert trio.current_time() > 5


async def test_write_ends_an_endless_response_to_a_willing_reader(autojump_clock: MockClock) -> None:
    async def ticking(exchange: Exchange) -> None:
        exchange.start(200, [])
        while True:
            await exchange.send(b"tick", True)
            await trio.sleep(1)

    seen = Seen()
    async with serving(seen.watch(ticking), only(write=4.5)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        record = await site.ended()
        # the send that comes too late notices it
        assert (record.reason, trio.current_time()) == (Reason.WRITE_TIMEOUT, 5.0)
        assert seen.ended == [("cancelled", 5.0)]


async def test_a_willing_reader_of_an_endless_response_keeps_nobody_waiting(autojump_clock: MockClock) -> None:
    async with serving(endless) as site:
        greedy, other = await site.connect(), await site.connect()
        await greedy.send(GET)

        async def swallow() -> None:
            while await greedy.receive():
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(swallow)
            await other.send(GET)
            assert (await other.receive()).startswith(b"HTTP/1.1 200 OK")
            nursery.cancel_scope.cancel()


# the deadline of the handler


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("handler", [after(3600), stubborn], ids=["obedient", "stubborn"])
async def test_a_late_handler_is_cancelled_and_504_is_at_the_peer_on_time(
    handler: Handler, tls: bool, autojump_clock: MockClock
) -> None:
    seen = Seen()
    async with serving(seen.watch(handler), only(handler=3), tls=tls) as site:
        client = await site.connect()
        response = await client.get()
        assert (response.status, response.closes, trio.current_time()) == (504, True, 3.0)
        assert await client.receive() == b""
        assert trio.current_time() == 3.0
        record = await site.ended()
        assert (record.reason, record.elapsed, record.lateness) == (Reason.HANDLER_TIMEOUT, 3.0, 0.0)
        assert site.records.requests[0].status == 504
        # the connection is over, whether the handler is or not
        assert site.server.statistics().open == 0
        await trio.sleep(3600)
        assert seen.ended == [("disconnected", 3600.0) if handler is stubborn else ("cancelled", 3.0)]


async def test_a_late_handler_that_has_begun_to_answer_is_reset(autojump_clock: MockClock) -> None:
    async def halfway(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"half", True)
        await trio.sleep(3600)

    async with serving(halfway, only(handler=3)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        assert trio.current_time() == 3.0
        record = await site.ended()
        assert record.reason is Reason.HANDLER_TIMEOUT
        assert site.records.requests[0].status == 200


async def test_each_request_has_its_own_handler_deadline(autojump_clock: MockClock) -> None:
    async with serving(after(2), only(handler=3)) as site:
        client = await site.connect()
        for _ in range(4):
            assert (await client.get()).status == 200
        await trio.sleep(100)
        assert (await client.get()).status == 200


async def test_the_handlers_deadline_covers_its_reading_and_writing(autojump_clock: MockClock) -> None:
    async with serving(echo, only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 504
        assert trio.current_time() == 3.0


async def test_a_peer_is_told_of_one_deadline_only(autojump_clock: MockClock) -> None:
    async def goes_on(exchange: Exchange) -> None:
        with pytest.raises(Disconnected):
            await exchange.receive()
        await trio.sleep(3600)

    seen = Seen()
    async with serving(seen.watch(goes_on), only(body_grace=2, handler=3)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert await client.rest() == b""
        assert await site.reason() is Reason.BODY_RATE
        assert seen.ended == [("cancelled", 3.0)]
        assert site.records.requests[0].status == 408


# an application moves its own


async def test_a_handler_can_move_its_deadline_both_ways(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        now = trio.current_time()
        assert exchange.deadline == now + 3
        when = now + (10 if exchange.request.target == b"/later" else 1)
        exchange.set_handler_deadline(when)
        assert exchange.deadline == when
        await trio.sleep(5)
        await answer(exchange)

    async with serving(moves, only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(GET.replace(b"/", b"/later", 1))).status == 200
        assert (await client.get()).status == 504
        assert trio.current_time() == 6.0


async def test_a_handler_can_set_a_deadline_where_none_was(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        assert exchange.deadline == INF
        exchange.set_handler_deadline(trio.current_time() + 1)
        await trio.sleep(5)

    async with serving(moves) as site:
        client = await site.connect()
        assert (await client.get()).status == 504
        assert trio.current_time() == 1.0


async def test_a_handlers_deadline_does_not_outlive_its_request(autojump_clock: MockClock) -> None:
    exchanges: list[Exchange] = []

    async def keeps(exchange: Exchange) -> None:
        exchanges.append(exchange)
        if len(exchanges) == 1:
            exchange.set_handler_deadline(trio.current_time() + 2)
        else:
            # somebody kept what was the first request's
            exchanges[0].set_handler_deadline(trio.current_time() + 1)
            exchanges[0].set_read_deadline(trio.current_time() + 1)
            exchanges[0].set_write_deadline(trio.current_time() + 1)
            await trio.sleep(5)
        await answer(exchange)

    async with serving(keeps) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        assert (await client.get()).status == 200


@pytest.mark.parametrize(("moved", "cut"), [(50.0, 50.0), (5.0, 5.0)])
async def test_a_read_deadline_replaces_those_of_the_body(moved: float, cut: float, autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        exchange.set_read_deadline(moved)
        await whole_body(exchange)

    async with serving(moves, only(read=30, body_grace=20)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert trio.current_time() == cut
        assert await site.reason() is Reason.READ_TIMEOUT


async def test_a_read_deadline_can_be_moved_while_the_handler_receives(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        async def later() -> None:
            await trio.sleep(10)
            exchange.set_read_deadline(40)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            await whole_body(exchange)

    async with serving(moves, only(body_grace=20)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert trio.current_time() == 40.0


@pytest.mark.parametrize("when", [2.0, 50.0])
async def test_a_write_deadline_replaces_those_of_sending(when: float, autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        exchange.set_write_deadline(when)
        await huge(exchange)

    async with serving(moves, only(write=30, write_grace=10, write_min_rate=INF)) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert (record.reason, trio.current_time()) == (Reason.WRITE_TIMEOUT, when)


async def test_a_write_deadline_can_be_moved_while_the_handler_sends(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        async def later() -> None:
            await trio.sleep(5)
            exchange.set_write_deadline(40)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            await huge(exchange)

    async with serving(moves, only(write_grace=10, write_min_rate=INF)) as site:
        client = await site.connect()
        await client.send(GET)
        await site.ended()
        assert trio.current_time() == 40.0


async def test_nan_is_no_deadline(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        for move in (exchange.set_read_deadline, exchange.set_write_deadline, exchange.set_handler_deadline):
            with pytest.raises(ValueError, match="NaN"):
                move(float("nan"))
        await answer(exchange)

    async with serving(moves) as site:
        assert (await (await site.connect()).get()).status == 200
