"""The drain: what is idle is closed, what is busy may finish, and what is left is cut."""

from __future__ import annotations

import logging
import math
import socket
from contextlib import ExitStack

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import open_tcp_listeners, open_tcp_stream
from deadlined.http import Exchange, HttpServer, Phase, Reason
from deadlined.http.policy import IDLE_GRACE, LINGER, NEW_GRACE, REUSE_GRACE
from deadlined.http.settings import Handler
from deadlined.runtime import LOOPS, run
from tests.support.handlers import HUGE, never, slow
from tests.support.http import GET, LAST_GET, Client, Records, Seen, Site, answer, hello, only, post, serving
from tests.support.net import LOCALHOST
from tests.support.parsers import Choice

pytestmark = pytest.mark.usefixtures("parser")


async def test_a_drain_closes_what_is_idle_after_a_moment_and_accepts_nothing(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75, drain=30)) as site:
        client = await site.connect()
        await client.get()
        await trio.sleep(10)
        site.server.shutdown()
        assert site.server.connections()[0].left == pytest.approx(IDLE_GRACE)
        assert await client.receive() == b""
        record = await site.ended()
        assert (record.reason, record.phase, trio.current_time()) == (Reason.DONE, Phase.IDLE, 10 + IDLE_GRACE)
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


async def streams_until_the_drain(exchange: Exchange) -> None:
    exchange.start(200, [])
    await exchange.send(b"event", True)
    await exchange.draining


async def waits_for_the_drain(exchange: Exchange) -> None:
    await exchange.draining


@pytest.mark.parametrize(("handler", "reason", "levels"), [
    (streams_until_the_drain, Reason.DONE, [logging.INFO]),
    (waits_for_the_drain, Reason.SERVER_ERROR, [logging.ERROR]),
])  # fmt: skip
async def test_a_stream_that_its_application_leaves_for_the_drain_is_no_failure(
    handler: Handler, reason: Reason, levels: list[int], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """So do frameworks: each event stream is cut, and its client connects again."""
    caplog.set_level(logging.INFO, "deadlined.http")
    async with serving(handler, only(drain=30)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        site.server.shutdown()
        assert await site.reason() is reason
    assert [record.levelno for record in caplog.records] == levels


@pytest.mark.parametrize("read", [8, math.inf])
async def test_a_drain_gives_a_new_connection_five_seconds(read: float, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=10, read=read, drain=30)) as site:
        silent, late = await site.connect(), await site.connect()
        await wait_all_tasks_blocked()
        site.server.shutdown()
        await trio.sleep(4.9)
        response = await late.get()
        assert (response.status, response.closes) == (200, True)
        assert await silent.receive() == b""
        assert trio.current_time() == 5.0
        assert [await site.reason(1), await site.reason(2)] == [Reason.DONE, Reason.DONE]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize(("drain", "seconds"), [(30, NEW_GRACE), (math.inf, NEW_GRACE), (2, 1.0), (0.5, 0.25)])
async def test_a_head_that_has_begun_has_as_long_and_the_first_half_of_the_drain_at_most(
    drain: float, seconds: float, used: bool, tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=10, idle=75, drain=drain), tls=tls) as site:
        ends, stays = await site.connect(), await site.connect()
        for client in (ends, stays):
            if used:
                await client.get()
            await client.send(GET[:-2])
        await trio.sleep(1)
        site.server.shutdown()
        # nothing is longer because it is said again
        site.server.shutdown(0.0)
        await trio.sleep(0.99 * seconds)
        await ends.send(GET[-2:])
        response = await ends.response()
        assert (response.status, response.closes) == (200, True)
        response = await stays.response()
        assert (response.status, response.closes) == (408, True)
        assert trio.current_time() == 1 + seconds
        assert {await site.reason(1), await site.reason(2)} == {Reason.DONE, Reason.HEADER_TIMEOUT}
        # it reads on for a moment, so that the answer arrives
        assert trio.current_time() <= 1 + min(seconds + LINGER, drain)
    assert not site.server.was_cut


@pytest.mark.parametrize(("used", "begins", "seconds"), [(True, 1.4, 5.0), (True, 4.4, 5.9), (False, 4.9, 5.0)])
async def test_so_has_one_that_begins_in_the_drain(
    used: bool, begins: float, seconds: float, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=10, idle=75, drain=30)) as site:
        client = await site.connect()
        if used:
            await client.get()
        await wait_all_tasks_blocked()
        site.server.shutdown(4.5)
        await trio.sleep(begins)
        await client.send(GET[:-2])
        assert (await client.response()).status == 408
        assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("read_header", "read", "seconds"), [(3, math.inf, 3.0), (10, 4, 4.0), (math.inf, math.inf, 6.0)]
)
async def test_a_drain_moves_no_deadline_of_a_head_but_forward(
    read_header: float, read: float, seconds: float, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(read_header=read_header, read=read, drain=30)) as site:
        client = await site.connect()
        await client.send(GET[:-2])
        await trio.sleep(1)
        site.server.shutdown()
        assert (await client.response()).status == 408
        assert trio.current_time() == seconds


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


async def test_a_handshake_that_goes_on_in_the_drain_has_no_longer(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10, drain=30), tls=True) as site:
        client = await site.connect(tls=False)
        # the beginning of a record
        await client.send(b"\x16\x03\x01")
        await wait_all_tasks_blocked()
        site.server.shutdown()
        await trio.sleep(4)
        await client.send(b"\x02")
        assert await client.end() == "eof"
        assert trio.current_time() == 5.0
        assert await site.reason() is Reason.DONE


async def test_one_that_ends_in_the_drain_leaves_the_request_a_moment(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(handshake=10, read_header=20, drain=30), tls=True) as site:
        silent, asks = [await site.connect(tls=False) for _ in range(2)]
        await wait_all_tasks_blocked()
        site.server.shutdown()
        await trio.sleep(4)
        shaken = [await site.shake_hands(client) for client in (silent, asks)]
        await trio.sleep(1.4)
        response = await shaken[1].get()
        assert (response.status, response.closes) == (200, True)
        assert await shaken[0].end() == "eof"
        assert trio.current_time() == 4 + REUSE_GRACE
        assert {await site.reason(number) for number in (1, 2)} == {Reason.DONE}


# what was asked before the drain is answered


@pytest.mark.parametrize("asked_before", [True, False], ids=["idle", "new"])
@pytest.mark.parametrize(("number", "tls"), [(1, False), (300, False), (1, True), (40, True)])
async def test_requests_that_are_in_the_socket_when_a_drain_begins_are_answered(
    number: int, tls: bool, asked_before: bool, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=75, drain=30), tls=tls) as site:
        clients = [await site.connect() for _ in range(number)]
        if asked_before:
            for client in clients:
                assert not (await client.get()).closes
        await wait_all_tasks_blocked()
        for client in clients:
            client.push(GET)
        site.server.shutdown()
        for client in clients:
            response = await client.response()
            assert (response.status, response.closes) == (200, True)
            client.conn.close()
        await site.ended(number)
        assert set(site.server.statistics().reasons) <= {Reason.DONE, Reason.CLIENT_CLOSED}
        assert trio.current_time() == 0.0


@pytest.mark.parametrize("number", [1, 300])
async def test_connections_that_wait_to_be_accepted_when_a_drain_begins_are_served(
    number: int, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(drain=30)) as site:
        await wait_all_tasks_blocked()
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection((LOCALHOST, site.port))) for _ in range(number)]
            for client in clients:
                client.sendall(GET)
            site.server.shutdown()
            await wait_all_tasks_blocked()
            assert site.server.statistics().accepted == number
            for client in clients:
                client.setblocking(False)
                answered = client.recv(65536)
                assert answered.startswith(b"HTTP/1.1 200 ")
                assert b"connection: close\r\n" in answered


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("idle", "pause", "grace"),
    [
        (0.0, 0.0, REUSE_GRACE),
        (0.0, 0.99, REUSE_GRACE),
        # used a second ago
        (1.0, 0.99, REUSE_GRACE - 1.0),
        # a client that has been silent for longer is not about to ask
        (REUSE_GRACE - IDLE_GRACE, 0.99, IDLE_GRACE),
        (REUSE_GRACE, 0.0, IDLE_GRACE),
        (60.0, 0.5, IDLE_GRACE),
        (60.0, 0.99, IDLE_GRACE),
    ],
)
async def test_an_idle_connection_has_time_for_one_more_request(
    idle: float, pause: float, grace: float, tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=75, drain=30), tls=tls) as site:
        client, silent = await site.connect(), await site.connect()
        await client.get()
        await silent.get()
        await trio.sleep(idle)
        site.server.shutdown()
        await trio.sleep(pause * grace)
        response = await client.get()
        assert (response.status, response.closes) == (200, True)
        assert await silent.end() == "eof"
        assert trio.current_time() == pytest.approx(idle + grace, abs=1e-9)
        assert {await site.reason(1), await site.reason(2)} == {Reason.DONE}


@pytest.mark.parametrize(
    ("reuse_grace", "drain", "seconds"),
    [
        (4.5, 30, 4.5),
        (0.0, 30, IDLE_GRACE),
        (-1.0, 30, IDLE_GRACE),
        # it ends in the first half of the drain, by a close in place of a reset
        (4.5, 5, 2.5),
        (4.5, 0.1, 0.05),
        (math.inf, 30, 15.0),
    ],
)
async def test_how_long_that_is_can_be_chosen(
    reuse_grace: float, drain: float, seconds: float, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(drain=drain)) as site:
        client = await site.connect()
        await client.get()
        site.server.shutdown(reuse_grace)
        # the first one counts
        site.server.shutdown(75.0)
        assert await client.end() == "eof"
        assert trio.current_time() == seconds
        assert await site.reason() is Reason.DONE
        assert not site.server.was_cut


@pytest.mark.parametrize(("after", "seconds"), [(1.0, 1.5), (3.0, 3.0 + IDLE_GRACE)])
async def test_it_can_be_made_shorter_in_the_drain(after: float, seconds: float, autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(drain=30)) as site:
        client = await site.connect()
        await client.get()
        site.server.shutdown(4.5)
        await trio.sleep(after)
        site.server.shutdown()
        assert await client.end() == "eof"
        assert trio.current_time() == seconds
        assert await site.reason() is Reason.DONE


async def test_a_grace_that_is_no_number_is_refused_and_nothing_has_begun(autojump_clock: MockClock) -> None:
    async with serving() as site:
        with pytest.raises(ValueError, match="NaN"):
            site.server.shutdown(math.nan)
        assert not site.server.draining
        assert not (await (await site.connect()).get()).closes


async def test_clients_that_ask_in_a_rhythm_lose_nothing_and_are_told_to_leave(autojump_clock: MockClock) -> None:
    """They do not notice a close before they send."""
    told: list[float] = []

    async def ask(client: Client, period: float) -> None:
        closes = False
        while not closes:
            await trio.sleep(period)
            closes = (await client.get()).closes
        told.append(trio.current_time())

    async with serving(timeouts=only(idle=75, drain=30)) as site:
        async with trio.open_nursery() as nursery:
            for tenth in range(1, 15):
                client = await site.connect()
                await client.get()
                nursery.start_soon(ask, client, tenth / 10)
            await trio.sleep(10.05)
            site.server.shutdown()
        assert len(told) == 14
        assert max(told) < 10.05 + REUSE_GRACE


async def test_a_response_that_is_being_sent_keeps_its_phase_in_a_drain(autojump_clock: MockClock) -> None:
    """Its handler has left, and the connection waits for its next request already."""
    body = bytes(250_000)

    async def large(exchange: Exchange) -> None:
        await answer(exchange, body)

    async with serving(large, only(write_grace=100, write_min_rate=1e9, drain=30)) as site:
        client = await site.connect(receive_buffer=4096)
        await client.send(GET)
        await wait_all_tasks_blocked()
        (before,) = site.server.connections()
        assert (before.phase, before.left) == (Phase.WRITE, 100.0)
        await trio.sleep(10)
        site.server.shutdown()
        (after,) = site.server.connections()
        assert (after.phase, after.left) == (Phase.WRITE, 90.0)
        # it has not been idle before all has left
        assert (await client.response()).body == body
        await trio.sleep(0.99 * REUSE_GRACE)
        await client.send(GET)
        response = await client.response()
        assert (response.body, response.closes) == (body, True)
        assert await site.reason() is Reason.DONE


async def test_a_drain_does_not_prolong_an_idle_connection(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=5, drain=30)) as site:
        client = await site.connect()
        await client.get()
        # half of the least grace before its end
        await trio.sleep(6 - IDLE_GRACE / 2)
        site.server.shutdown()
        assert await client.receive() == b""
        assert trio.current_time() == 6.0


async def test_a_second_request_of_a_drain_is_not_awaited_for_long(autojump_clock: MockClock) -> None:
    """A response that was begun before the drain does not say that it is the last, so the client may ask again."""

    async def stream(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"some", True)
        await trio.sleep(1)
        await exchange.send(b"", False)

    async with serving(stream, only(idle=75, drain=30)) as site:
        asks, silent = await site.connect(), await site.connect()
        await asks.send(GET)
        await silent.send(GET)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        assert not (await asks.response()).closes
        assert not (await silent.response()).closes
        assert trio.current_time() == 1.0
        await asks.send(GET)
        assert await silent.end() == "eof"
        assert trio.current_time() == 1.0 + REUSE_GRACE
        assert (await asks.response()).closes
        assert await asks.end() == "eof"


async def begun(kind: str, site: Site) -> Client:
    """Return a client that has begun nothing, or to whom nothing is owed any more."""
    client = await site.connect(tls=False)
    if kind in ("idle", "answered"):
        await client.send(GET if kind == "idle" else post(100_000))
        assert (await client.response()).status == 200
    await wait_all_tasks_blocked()
    return client


@pytest.mark.parametrize(
    ("kind", "tls"), [("new", False), ("new", True), ("idle", False), ("answered", False)], ids=str
)
async def test_what_loses_nothing_is_not_cut_by_a_second_signal(
    kind: str, tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=75, drain=30), tls=tls) as site:
        client = await begun(kind, site)
        site.server.shutdown()
        site.server.cut()
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE
        assert not site.server.was_cut


async def test_a_request_that_has_begun_is_cut_by_a_second_signal(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75, drain=30)) as site:
        client = await site.connect()
        await client.send(GET[:5])
        await wait_all_tasks_blocked()
        site.server.shutdown()
        site.server.cut()
        assert await client.end() == "reset"
        assert await site.reason() is Reason.DRAIN_TIMEOUT
        assert site.server.was_cut


async def test_a_handler_that_reads_on_after_its_answer_is_cut(autojump_clock: MockClock) -> None:
    async def reads_on(exchange: Exchange) -> None:
        await answer(exchange)
        while await exchange.receive():
            pass

    async with serving(reads_on, only(drain=30)) as site:
        client = await site.connect()
        await client.send(post(100_000))
        assert (await client.response()).status == 200
        await wait_all_tasks_blocked()
        site.server.shutdown()
        site.server.cut()
        await site.ended()
        assert site.server.was_cut


@pytest.mark.parametrize("loop", LOOPS)
def test_a_response_that_has_left_is_not_cut_before_its_close_begins(loop: str) -> None:
    async def main() -> HttpServer:
        def cut(_: object) -> None:
            server.cut()

        (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
        client.connect(listener.socket.getsockname())
        client.sendall(GET)
        records = Records()
        server = HttpServer(hello, timeouts=only(drain=30), observer=records)
        records.request = cut  # type: ignore[assignment,method-assign]
        server.shutdown()
        await server.serve([listener])
        return server

    with socket.socket() as client:
        server = run(loop, main)
        assert client.recv(1000).endswith(b"hello")
        assert not server.was_cut
