"""The server through real sockets, in virtual time: each deadline cuts at its exact moment and says what it owes.

Every connection begins at 0.0 of the virtual clock, so a deadline is met if the clock shows it, to the last bit.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Exchange, Limits, Reason, Timeouts
from deadlined.net.sockets import StreamSocket
from deadlined.runtime import current_host
from tests.support.handlers import KIB, after, echo_as_it_comes
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
    post,
    serving,
    whole_body,
)

pytestmark = pytest.mark.usefixtures("parser")


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
    async with serving(echo_as_it_comes, tls=tls) as site:
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
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 400, Reason.PROTOCOL_ERROR),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501, Reason.PROTOCOL_ERROR),
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


async def test_what_is_sent_in_one_turn_leaves_in_one_send(autojump_clock: MockClock) -> None:
    sends: list[int] = []

    class Counting(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:
            sends.append(len(data))
            return super().send(data, flags)

    async def counted(exchange: Exchange) -> None:
        conn = exchange._host.transport.conn
        conn._socket = Counting(fileno=conn._socket.detach())
        conn._kernel = StreamSocket(conn._socket)
        exchange.start(200, [])
        assert sends == []
        await exchange.send(b"hello", True)
        await exchange.send(b" world", True)
        assert sends == []
        await trio.lowlevel.checkpoint()
        assert len(sends) == 1
        await exchange.send(b"", False)
        assert len(sends) == 1

    async with serving(counted) as site:
        client = await site.connect()
        assert (await client.get()).body == b"hello world"
    assert len(sends) == 2


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
        timers = current_host().poller.timers
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
