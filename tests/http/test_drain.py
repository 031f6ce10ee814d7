"""The drain: what is idle is closed, what is busy may finish, and what is left is cut."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import open_tcp_listeners, open_tcp_stream
from deadlined.http import Exchange, HttpServer, Phase, Reason
from deadlined.http.policy import IDLE_GRACE
from tests.support.handlers import HUGE, never, slow
from tests.support.http import GET, LAST_GET, Seen, answer, hello, only, serving
from tests.support.net import LOCALHOST
from tests.support.parsers import Choice

pytestmark = pytest.mark.usefixtures("parser")


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
