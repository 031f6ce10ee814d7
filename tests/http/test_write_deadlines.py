"""The deadlines of writing: of each send, and of the whole response."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Exchange, Phase, Reason, ResponseError, Timeouts
from deadlined.http.policy import STALL, STALL_CHECK
from deadlined.net.sockets import unsent
from tests.support.handlers import HUGE, KIB, after, huge, slow
from tests.support.http import GET, Client, Seen, Site, answer, endless, only, post, serving
from tests.support.net import INF

pytestmark = pytest.mark.usefixtures("parser")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="what a kernel acknowledges when is its own choice")


def read_some(site: Site, client: Client, size: int) -> None:
    """Receive so much, and again so much every tenth of a second until the server's kernel knows of it: one that is
    busy may not acknowledge a little."""
    (connection,) = site.server._connections
    before = unsent(connection.conn.socket)
    attempts = 0
    while unsent(connection.conn.socket) == before:
        if attempts % 10 == 0:
            with suppress(BlockingIOError):
                client.conn.socket.recv(size)
        attempts += 1
        time.sleep(0.01)


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
    async with serving(huge, only(write_grace=10, write_min_rate=HUGE / 50)) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert 50 <= trio.current_time() < 50.1
        assert record.reason is Reason.WRITE_TIMEOUT


async def test_nobody_stalls_for_longer_than_a_minute_however_long_the_send(autojump_clock: MockClock) -> None:
    async with serving(huge, only(write_grace=10, write_min_rate=HUGE / 100_000)) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        # what was under way at the beginning has arrived by the first look
        assert trio.current_time() == STALL + STALL_CHECK
        assert record.reason is Reason.WRITE_TIMEOUT
        assert await client.end() == "reset"


@on_linux
async def test_a_peer_that_reads_too_little_to_make_room_is_not_stalled(autojump_clock: MockClock) -> None:
    """Its acknowledgements show in the kernel's buffer long before that has room."""
    seen = Seen()
    async with serving(seen.watch(huge), only(write_grace=10, write_min_rate=HUGE / 100_000)) as site:
        client = await site.connect(receive_buffer=4096)
        await client.send(GET)
        for _ in range(20):
            await trio.sleep(STALL - STALL_CHECK)
            read_some(site, client, 4096)
        assert site.server.connections()[0].phase is Phase.WRITE
        read = trio.current_time()
        await site.ended()
        # a part of what it had read made room, and began a new wait
        assert read + STALL <= trio.current_time() <= read + STALL + 2 * STALL_CHECK
        assert seen.ended[0][0] == "cancelled"


async def test_a_deadline_for_receiving_counts_while_a_send_waits(autojump_clock: MockClock) -> None:
    async def both(exchange: Exchange) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(huge, exchange)
            await trio.sleep(1)
            nursery.start_soon(exchange.receive)
            await trio.sleep(20)
            exchange.set_read_deadline(trio.current_time() + 1)

    async with serving(both, only(write_grace=1000)) as site:
        client = await site.connect()
        await client.send(post(100))
        assert await site.reason() is Reason.READ_TIMEOUT


async def test_each_send_has_a_grace_of_its_own(mock_clock: MockClock) -> None:
    # the clock is moved by the test alone: the kernel may pause a stream for a moment of real time
    async def three(exchange: Exchange) -> None:
        exchange.start(200, [])
        for _ in range(3):
            await exchange.send(bytes(HUGE), True)
        await exchange.send(b"", False)

    async with serving(three, only(write_grace=10, write_min_rate=INF)) as site:
        client = await site.connect()
        await client.send(GET)
        got = pauses = 0
        while got < 3 * HUGE:
            got += len(await client.receive())
            # once per 4 MiB, in however small pieces they come
            if got // (4 * KIB * KIB) > pauses:
                pauses += 1
                mock_clock.jump(1)
        assert pauses > 10


async def ticking(exchange: Exchange) -> None:
    exchange.start(200, [])
    while True:
        await exchange.send(b"tick", True)
        await trio.sleep(1)


async def test_write_ends_an_endless_response_to_a_willing_reader(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(ticking), only(write=4.5)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        record = await site.ended()
        # the send that comes too late notices it
        assert (record.reason, trio.current_time()) == (Reason.WRITE_TIMEOUT, 5.0)
        assert seen.ended == [("cancelled", 5.0)]


async def test_a_response_of_which_nothing_was_sent_has_no_status(autojump_clock: MockClock) -> None:
    async with serving(slow, only(write=2)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        record = await site.ended()
        assert (record.reason, record.sent, trio.current_time()) == (Reason.WRITE_TIMEOUT, 0, 3.0)
        assert site.records.requests[0].status == 0
        assert site.server.statistics().answered == {("GET", 0): 1}


async def test_a_piece_after_the_end_of_a_response_is_a_mistake_at_any_time(autojump_clock: MockClock) -> None:
    async def goes_on(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(3)
        with pytest.raises(ResponseError, match="after the response was complete"):
            await exchange.send(b"more", True)

    async with serving(goes_on, only(write=2)) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        await trio.sleep(5)
        assert not site.records.connections


async def gives_all_its_bytes(exchange: Exchange) -> None:
    exchange.start(200, [(b"content-length", b"5")])
    await exchange.send(b"bytes", True)
    await trio.sleep(3)
    await exchange.send(b"", False)


async def ends_late_for_a_head(exchange: Exchange) -> None:
    exchange.start(200, [])
    await exchange.send(b"not sent", True)
    await trio.sleep(3)
    await exchange.send(b"", False)


@pytest.mark.parametrize(("handler", "method"), [(gives_all_its_bytes, "GET"), (ends_late_for_a_head, "HEAD")])
async def test_a_response_whose_bytes_are_all_sent_is_in_time(
    handler: Callable[[Exchange], Awaitable[None]], method: str, autojump_clock: MockClock
) -> None:
    """Frameworks end a response by an empty piece, which may be late: its client waits for nothing."""
    async with serving(handler, only(write=2)) as site:
        client = await site.connect()
        for _ in range(2):
            await client.send(GET.replace(b"GET", method.encode()))
            assert (await client.response(method)).status == 200
        await trio.sleep(5)
        assert not site.records.connections


async def test_write_ends_an_endless_response_to_a_head(autojump_clock: MockClock) -> None:
    async with serving(ticking, only(write=2)) as site:
        client = await site.connect()
        await client.send(GET.replace(b"GET", b"HEAD"))
        assert await client.end() == "reset"
        assert await site.reason() is Reason.WRITE_TIMEOUT


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
