"""Go's net/http server tests (serve_test.go, responsecontroller_test.go) where they apply. Each test names the Go test
that it restates.

Go retries its list of timeouts until one is long enough for the machine; under a virtual clock every one is exact.
Where the design departs from Go the test says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import open_tcp_stream
from deadlined.http import Disconnected, Exchange, Limits, Reason
from tests.support.http import (
    CHUNKED_POST,
    GET,
    LAST_GET,
    Client,
    Seen,
    Site,
    answer,
    chunk,
    endless,
    hello,
    only,
    post,
    serving,
    whole_body,
)
from tests.support.net import LOCALHOST, after

pytestmark = pytest.mark.usefixtures("parser")

Handler = Callable[[Exchange], Awaitable[object]]

KIB = 1024
MIB = 1024 * KIB
MILLISECOND = 1e-3


def waits(seconds: float) -> Handler:
    """Answers after a while."""

    async def late(exchange: Exchange) -> None:
        await trio.sleep(seconds)
        await answer(exchange)

    return late


# time limits of reading


@pytest.mark.parametrize("limit", [0.01, 0.05, 0.1, 0.25, 0.5, 1.0])
async def test_server_timeouts(limit: float, autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(hello), only(read=limit, write=limit)) as site:
        assert (await (await site.connect()).get()).status == 200
        silent = await site.connect()
        assert await silent.receive() == b""
        assert trio.current_time() == limit
        assert (await (await site.connect()).get()).status == 200
        assert len(seen.began) == 2
        client = await site.connect()
        for _ in range(5):
            assert (await client.get()).status == 200
            await trio.sleep(limit / 2)


@pytest.mark.parametrize("piece", [b"", b"PRI", b" * ", b"HTT"])
async def test_server_unencrypted_http2_header_timeout(piece: bytes, autojump_clock: MockClock) -> None:
    # Go ends with EOF; here a peer that has sent something is told 408 or 400, but never later
    async with serving(timeouts=only(read_header=1)) as site:
        client = await site.connect()

        async def trickle() -> None:
            for _ in range(20):
                try:
                    await client.send(piece)
                except trio.BrokenResourceError:
                    return
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle)
            await client.receive()
            assert trio.current_time() == (0.0 if piece.startswith(b" ") else 1.0)
            nursery.cancel_scope.cancel()


async def test_server_unencrypted_http2_header_timeout_counts_the_silence_before_a_partial_head(
    autojump_clock: MockClock,
) -> None:
    async with serving(timeouts=only(read_header=1)) as site:
        client = await site.connect()
        await trio.sleep(0.1)
        assert (await client.get(b"GET / HTTP/1.1\r\nHo")).status == 408
        assert trio.current_time() == 1.0


async def test_server_read_header_timeout_is_cleared(autojump_clock: MockClock) -> None:
    async def flushes(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"", True)
        await trio.sleep(2)
        await exchange.send(b"ok", False)

    async with serving(flushes, only(read_header=1)) as site:
        client = await site.connect()
        assert (await client.get()).body == b"ok"


@pytest.mark.parametrize("exponent", range(0, 12, 3))
async def test_server_read_timeout(exponent: int, autojump_clock: MockClock) -> None:
    # Go lets the handler answer after the failed read; here the peer is told 408 in its stead
    timeout = 5 * MILLISECOND * 2**exponent
    failed: list[float] = []

    async def reads(exchange: Exchange) -> None:
        with pytest.raises(Disconnected):
            await whole_body(exchange)
        failed.append(trio.current_time())
        with pytest.raises(Disconnected):
            await answer(exchange, b"response body")

    async with serving(reads, only(read=timeout)) as site:
        client = await site.connect()
        assert (await client.get(post(100))).status == 408
        assert failed == [timeout]


async def test_server_no_read_timeout(autojump_clock: MockClock) -> None:
    async def full_duplex(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"", True)
        await exchange.send(await whole_body(exchange), False)

    async with serving(full_duplex) as site:
        client = await site.connect()
        await client.send(post(3))
        await trio.sleep(3600)
        await client.send(b"foo")
        assert (await client.response()).body == b"foo"


@pytest.mark.parametrize(("read_header", "idle"), [(0.01, 0.02), (0.1, 0.2), (1, 2), (10, 20)])
async def test_server_idle_timeout(read_header: float, idle: float, autojump_clock: MockClock) -> None:
    # closed a second later than in Go
    async with serving(timeouts=only(read_header=read_header, idle=idle)) as site:
        client = await site.connect()
        await client.get()
        assert not (await client.get()).closes
        await trio.sleep(idle + 1)
        assert await client.end() == "eof"
        partial = await site.connect()
        start = trio.current_time()
        await partial.send(b"GET / HTTP/1.1\r\nHost: foo.com\r\n")
        await partial.end()
        assert trio.current_time() == start + read_header


@pytest.mark.parametrize("limit", [0.01, 0.05, 0.25, 1.0, 2.0])
async def test_server_cancels_read_timeout_when_idle(limit: float, autojump_clock: MockClock) -> None:
    async def watches(exchange: Exchange) -> None:
        with trio.move_on_after(2 * limit):
            await exchange.wait_disconnected()
        await answer(exchange, b"ok")

    async with serving(watches, only(read=limit)) as site:
        assert (await (await site.connect()).get()).body == b"ok"


@pytest.mark.parametrize("limit", [0.01, 0.05, 0.25, 1.0, 2.0])
async def test_server_cancels_read_header_timeout_when_idle(limit: float, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=limit)) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        await trio.sleep(1.5 * limit)
        assert (await client.get()).status == 200


async def ignores(exchange: Exchange) -> None:
    return None


async def reads_some(exchange: Exchange) -> None:
    await exchange.receive()


@pytest.mark.parametrize("consume", [whole_body, ignores, reads_some])
async def test_request_body_timeout_closes_connection(consume: Handler, autojump_clock: MockClock) -> None:
    seen = Seen()

    async def consumes(exchange: Exchange) -> None:
        await consume(exchange)
        await answer(exchange)

    async with serving(seen.watch(consumes), only(read=0.4)) as site:
        client = await site.connect()
        await client.send(post(10000) + b"foo bar baz")
        await trio.sleep(0.6)
        try:
            await client.send(b"GET /secret HTTP/1.1\r\nHost: foo.com\r\n\r\n")
        except trio.BrokenResourceError:
            assert site.server.statistics().open == 0
        await client.end()
        assert len(seen.began) == 1
        assert await site.reason() is Reason.READ_TIMEOUT


# time limits of writing


@pytest.mark.parametrize("exponent", range(0, 12, 3))
async def test_server_write_timeout(exponent: int, autojump_clock: MockClock) -> None:
    # where Go's handler has an error from write, here it is cancelled
    timeout = 5 * MILLISECOND * 2**exponent
    seen = Seen()
    async with serving(seen.watch(endless), only(write=timeout)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert seen.ended == [("cancelled", timeout)]
        assert await client.end() == "reset"


async def test_server_no_write_timeout(autojump_clock: MockClock) -> None:
    async with serving(endless) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(3600)
        got = 0
        while got < 20 * MIB:
            got += len(await client.receive())


async def test_write_deadline_extended_on_new_request(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(write=0.25)) as site:
        client = await site.connect()
        for _ in range(3):
            assert (await client.get()).status == 200
            await trio.sleep(0.125)


@pytest.mark.parametrize("limit", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("limited", [True, False])
async def test_write_deadline_enforced_per_stream(limit: float, limited: bool, autojump_clock: MockClock) -> None:
    async def second_is_slow(exchange: Exchange) -> None:
        if site.server.connections()[0].requests == 2:
            await trio.sleep(limit)
        await answer(exchange)

    async with serving(second_is_slow, only(write=limit / 2) if limited else only()) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        await client.send(GET)
        if limited:
            assert await client.end() == "reset"
        else:
            assert (await client.response()).status == 200


async def test_only_write_timeout(autojump_clock: MockClock) -> None:
    async def writes(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(bytes(512 * KIB), True)
        exchange.set_write_deadline(after(-30))
        await exchange.send(b"more", True)

    seen = Seen()
    async with serving(seen.watch(writes)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        assert await site.reason() is Reason.WRITE_TIMEOUT
        # how much the kernel has taken decides whether the deadline or the second send comes first
        assert seen.ended in ([("cancelled", 0.0)], [("disconnected", 0.0)])


async def test_server_keep_alive_after_write_error(autojump_clock: MockClock) -> None:
    async with serving(waits(0.5), only(write=0.25)) as site:
        for number in (1, 2, 3):
            client = await site.connect()
            await client.send(GET)
            assert await client.end() == "reset"
            assert await site.reason(number) is Reason.WRITE_TIMEOUT
        assert [record.requests for record in site.records.connections] == [1, 1, 1]
        assert len({record.peer for record in site.records.connections}) == 3


# TLS


async def test_tls_handshake_timeout(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=0.25), tls=True) as site:
        client = await site.connect(tls=False)
        assert await client.rest() == b""
        assert trio.current_time() == 0.25
        assert await site.reason() is Reason.HANDSHAKE_TIMEOUT


async def test_tls_server(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        stuck = await open_tcp_stream(LOCALHOST, site.port)
        async with stuck:
            assert (await (await site.connect()).get()).status == 200
            assert trio.current_time() == 0.0


# limits


async def test_request_limit(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(hello), limits=Limits(max_headers=1_000_000)) as site:
        client = await site.connect()
        lines = b"".join(b"X-Header-%05d: %05d\r\n" % (i, i) for i in range(16 * KIB // 23 + 1))
        assert (await client.get(b"GET / HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n")).status == 431
        assert seen.began == []


async def test_request_body_limit(autojump_clock: MockClock) -> None:
    got = 0

    async def reads(exchange: Exchange) -> None:
        nonlocal got
        while piece := await exchange.receive():
            got += len(piece)

    sent = 0

    async def sends(client: Client) -> None:
        nonlocal sent
        try:
            await client.send(CHUNKED_POST)
            for _ in range(200 * MIB // (64 * KIB)):
                await client.send(chunk(bytes(64 * KIB)))
                sent += 64 * KIB
        except trio.BrokenResourceError:
            return

    async with serving(reads, limits=Limits(max_body=MIB)) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sends, client)
            assert (await client.response()).status == 413
        assert got <= MIB
        assert sent < 100 * MIB


async def test_server_unread_request_body_large(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        assert (await client.get(post(MIB))).closes
        record = await site.ended()
        assert record.received < MIB


async def test_server_graceful_close(autojump_clock: MockClock) -> None:
    async def denies(exchange: Exchange) -> None:
        await answer(exchange, b"bye", 401)

    async with serving(denies) as site:
        client = await site.connect()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_what_is_taken, post(5 * MIB) + bytes(5 * MIB))
            await wait_all_tasks_blocked()
            response = await client.response()
            assert (response.status, response.body) == (401, b"bye")


@pytest.mark.parametrize("expect", [(), (b"expect: 100-continue",)])
@pytest.mark.parametrize(("length", "kept"), [(1, True), (300_000, False)])
async def test_server_connection_reuse(
    length: int, kept: bool, expect: tuple[bytes, ...], autojump_clock: MockClock
) -> None:
    async with serving() as site:
        client = await site.connect()
        response = await client.get(post(length, *expect))
        assert response.closes is (not kept or bool(expect))
        if not response.closes:
            await client.send(bytes(length))
            assert (await client.get()).status == 200


# shutdown


async def test_server_shutdown(autojump_clock: MockClock) -> None:
    sites: list[Site] = []

    async def shuts_down(exchange: Exchange) -> None:
        (site,) = sites
        site.server.shutdown()
        await trio.sleep(1)
        with pytest.raises(OSError, match="connect"):
            await open_tcp_stream(LOCALHOST, site.port)
        await answer(exchange)

    async with serving(shuts_down) as site:
        sites.append(site)
        response = await (await site.connect()).get()
        assert (response.status, response.closes) == (200, True)


async def test_server_shutdown_state_new(autojump_clock: MockClock) -> None:
    async with serving() as site:
        client = await site.connect()
        await wait_all_tasks_blocked()
        site.server.shutdown()
        assert await client.receive() == b""
        assert trio.current_time() == 5.0


# the background read


async def test_server_duplicate_background_read(autojump_clock: MockClock) -> None:
    async def watched(exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.wait_disconnected)
            await trio.lowlevel.checkpoint()
            await answer(exchange)

    async with serving(watched) as site, trio.open_nursery() as nursery:
        for _ in range(5):
            client = await site.connect()
            nursery.start_soon(client.send, GET * 200)
            nursery.start_soon(read_responses, client, 200)


async def read_responses(client: Client, number: int) -> None:
    for _ in range(number):
        assert (await client.response()).body == b"hello"


async def test_close_notifier(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(Exchange.wait_disconnected)) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        client.conn.close()
        await site.ended()
        assert seen.ended == [("returned", 0.0)]


async def test_close_notifier_pipelined(autojump_clock: MockClock) -> None:
    async def watches(exchange: Exchange) -> None:
        with trio.move_on_after(0.1) as scope:
            await exchange.wait_disconnected()
        await answer(exchange, b"quiet" if scope.cancelled_caught else b"notified")

    async with serving(watches) as site:
        client = await site.connect()
        await client.send(GET + LAST_GET)
        assert [(await client.response()).body for _ in range(2)] == [b"quiet", b"quiet"]


async def test_request_body_close_doesnt_block(autojump_clock: MockClock) -> None:
    async def leaves(exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(whole_body, exchange)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await answer(exchange)

    async with serving(leaves) as site:
        client = await site.connect()
        assert (await client.get(post(100_000))).status == 200
        assert trio.current_time() == 0.5
