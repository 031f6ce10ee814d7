"""Readiness beats expiry: what came while the event loop was blocked came in time, and what did not come is cut.

A handler blocks the loop: it lets peers do something, and jumps the clock beyond every deadline, all in one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Exchange, Reason, Timeouts
from tests.support.handlers import HUGE
from tests.support.http import CHUNKED_POST, GET, Client, Site, answer, chunk, only, post, serving, whole_body

BLOCK = b"GET /block HTTP/1.1\r\nhost: x\r\n\r\n"
BLOCKED = 100.0

# what a connection sends before the loop is blocked, whether that is answered, and what comes meanwhile
BEFORE = {
    "a first request": (b"", False, GET, only(read_header=10)),
    "the rest of a head": (GET[:5], False, GET[5:], only(read_header=10)),
    "the rest of a head, under read": (GET[:5], False, GET[5:], only(read=10)),
    "the rest of a body": (post(5) + b"he", False, b"llo", only(body_grace=10)),
    "the rest of a body, under read": (post(5) + b"he", False, b"llo", only(read=10)),
    "the rest of chunks": (CHUNKED_POST + chunk(b"he"), False, chunk(b"llo") + chunk(b""), only(body_grace=10)),
    "a next request": (GET, True, GET, only(idle=10)),
    "the rest of a next head": (GET + GET[:5], True, GET[5:], only(read_header=10)),
}
# a poll takes 32 events, so that the deadlines of those beyond are seen before their bytes; TLS makes no difference to
# how many polls that takes
NUMBERS = pytest.mark.parametrize(
    ("number", "tls"),
    [
        pytest.param(1, False, id="1-plain"),
        pytest.param(33, False, id="33-plain"),
        pytest.param(100, False, id="100-plain", marks=pytest.mark.thorough),
        pytest.param(1, True, id="1-tls"),
        pytest.param(33, True, id="33-tls", marks=pytest.mark.thorough),
    ],
)


class Blocking:
    """A handler that answers with the body; asked for /block, it calls `meanwhile` and blocks the loop."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/block":
            self.meanwhile()
            self._clock.jump(BLOCKED)
        await answer(exchange, await whole_body(exchange))


async def prepare(site: Site, number: int, before: bytes, answered: bool) -> list[Client]:
    clients = [await site.connect() for _ in range(number)]
    for client in clients:
        if before:
            await client.send(before)
        if answered:
            assert (await client.response()).status == 200
    await wait_all_tasks_blocked()
    return clients


@NUMBERS
@pytest.mark.parametrize(("before", "answered", "rest", "timeouts"), BEFORE.values(), ids=BEFORE)
async def test_bytes_that_came_while_the_loop_was_blocked_are_served(
    before: bytes, answered: bool, rest: bytes, timeouts: Timeouts, number: int, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Blocking(autojump_clock)
    async with serving(handler, timeouts, tls=tls) as site:
        blocker = await site.connect()
        clients = await prepare(site, number, before, answered)

        def send_the_rest() -> None:
            for client in clients:
                client.push(rest)

        handler.meanwhile = send_the_rest
        assert (await blocker.get(BLOCK)).status == 200
        for client in clients:
            response = await client.response()
            assert (response.status, response.closes) == (200, False)
        assert site.records.connections == []


@NUMBERS
@pytest.mark.parametrize(("before", "answered", "rest", "timeouts"), BEFORE.values(), ids=BEFORE)
async def test_bytes_that_did_not_come_are_cut_all_the_same(
    before: bytes, answered: bool, rest: bytes, timeouts: Timeouts, number: int, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Blocking(autojump_clock)
    async with serving(handler, timeouts, tls=tls) as site:
        blocker = await site.connect()
        clients = await prepare(site, number, before, answered)
        assert (await blocker.get(BLOCK)).status == 200
        cut = trio.current_time()
        for client in clients:
            received = await client.rest()
            # a peer that has asked something is told so
            asked = before not in (b"", GET)
            assert received.startswith(b"HTTP/1.1 408 ") if asked else received == b""
            client.conn.close()
        assert trio.current_time() == cut
        for i in range(number):
            assert (await site.ended(i + 1)).lateness >= BLOCKED - 11


@pytest.mark.parametrize("whole", [False, True], ids=["one more byte", "the rest"])
async def test_a_head_that_is_still_not_complete_is_cut(whole: bool, autojump_clock: MockClock) -> None:
    """What came in time is taken, and the deadline counts for what is missing after it."""
    handler = Blocking(autojump_clock)
    async with serving(handler, only(read_header=10)) as site:
        blocker = await site.connect()
        (client,) = await prepare(site, 1, GET[:5], False)
        handler.meanwhile = lambda: client.push(GET[5:] if whole else GET[5:6])
        assert (await blocker.get(BLOCK)).status == 200
        start = trio.current_time()
        assert (await client.response()).status == (200 if whole else 408)
        assert trio.current_time() == start


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_request_behind_an_empty_line_is_looked_for_as_well(tls: bool, autojump_clock: MockClock) -> None:
    """With TLS the empty line is read alone, in a record of its own, and begins no request."""
    handler = Blocking(autojump_clock)
    async with serving(handler, only(idle=10), tls=tls) as site:
        blocker = await site.connect()
        (client,) = await prepare(site, 1, GET, True)

        def push_both() -> None:
            client.push(b"\r\n")
            client.push(GET)

        handler.meanwhile = push_both
        assert (await blocker.get(BLOCK)).status == 200
        assert (await client.response()).status == 200


def read_what_is_there(client: Client, into: bytearray, exchange: Exchange) -> None:
    """Receive without a checkpoint until the server's kernel knows that the client has taken bytes."""
    transport = exchange._host.transport
    before = transport.taken
    while transport.taken == before:
        try:
            into += client.conn.socket.recv(1 << 20)
        except BlockingIOError:
            # on a busy machine it learns of that later
            time.sleep(0.001)


@pytest.mark.parametrize("others", [0, 40])
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not"])
async def test_a_peer_that_accepted_bytes_while_the_loop_was_blocked_is_not_cut(
    reads: bool, others: int, autojump_clock: MockClock
) -> None:
    """A send of this length has hours; what counts is the progress of the last minute."""

    async def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/block":
            # these are ready before it
            for other in ready:
                other.push(GET)
            if reads:
                read_what_is_there(client, received, huge[0])
            autojump_clock.jump(700)
        elif exchange.request.target == b"/huge":
            huge.append(exchange)
        await answer(exchange, bytes(HUGE if exchange.request.target == b"/huge" else 1))

    received = bytearray()
    huge: list[Exchange] = []
    async with serving(handler, only(write_grace=10)) as site:
        blocker, client = await site.connect(), await site.connect()
        ready = await prepare(site, others, GET, True)
        await client.send(GET.replace(b"/", b"/huge", 1))
        await wait_all_tasks_blocked()
        assert (await blocker.get(BLOCK)).status == 200
        if reads:
            while len(received) < HUGE:
                received += await client.receive()
            assert site.records.connections == []
        else:
            assert await site.reason() is Reason.WRITE_TIMEOUT
            assert await client.end() == "reset"
