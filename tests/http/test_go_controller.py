"""Go's tests of ResponseController and TimeoutHandler, where they apply. Each test names the Go test."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Reason
from tests.support.handlers import echo_as_it_comes
from tests.support.http import CHUNKED_POST, GET, Site, answer, chunk, echo, endless, only, post, serving
from tests.support.net import after

pytestmark = pytest.mark.usefixtures("parser")

MILLISECOND = 1e-3


async def test_response_controller_set_past_write_deadline(autojump_clock: MockClock) -> None:
    async def writes(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"one", True)
        exchange.set_write_deadline(trio.current_time())
        with trio.CancelScope(shield=True), pytest.raises(Disconnected):
            await exchange.send(b"two", True)
        exchange.set_write_deadline(after(3600))
        with pytest.raises(Disconnected):
            await exchange.send(b"three", True)

    async with serving(writes) as site:
        client = await site.connect()
        await client.send(GET)
        data = b""
        with pytest.raises(trio.BrokenResourceError):
            while True:
                data += await client.receive()
        assert data.endswith(b"3\r\none\r\n")


async def test_response_controller_set_future_write_deadline(autojump_clock: MockClock) -> None:
    async def writes(exchange: Exchange) -> None:
        exchange.set_write_deadline(after(MILLISECOND))
        await endless(exchange)

    async with serving(writes) as site:
        client = await site.connect()
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert trio.current_time() == MILLISECOND
        assert await client.end() == "reset"


async def test_response_controller_set_past_read_deadline(autojump_clock: MockClock) -> None:
    async def reads(exchange: Exchange) -> None:
        assert await exchange.receive() == b"one"
        exchange.set_read_deadline(trio.current_time())
        with pytest.raises(Disconnected):
            await exchange.receive()
        exchange.set_read_deadline(after(3600))
        with pytest.raises(Disconnected):
            await exchange.receive()

    async with serving(reads) as site:
        client = await site.connect()
        await client.send(CHUNKED_POST + chunk(b"one"))
        await wait_all_tasks_blocked()
        assert (await client.response()).status == 408
        assert trio.current_time() == 0.0


async def test_response_controller_set_future_read_deadline(autojump_clock: MockClock) -> None:
    # as in test_server_read_timeout, the peer is told 408 where Go lets the handler answer
    async def reads(exchange: Exchange) -> None:
        exchange.set_read_deadline(after(MILLISECOND))
        await echo(exchange)

    async with serving(reads) as site:
        client = await site.connect()
        assert (await client.get(post(10))).status == 408
        assert trio.current_time() == MILLISECOND


async def test_response_controller_enable_full_duplex(autojump_clock: MockClock) -> None:
    async with serving(echo_as_it_comes) as site:
        client = await site.connect()
        await client.send(post(10))
        for digit in b"012345678":
            await client.send(bytes([digit]))
            assert (await client.receive()).endswith(b"1\r\n%c\r\n" % digit)
        await client.send(b"9")
        assert await client.receive() == b"1\r\n9\r\n0\r\n\r\n"


async def test_timeout_handler(autojump_clock: MockClock) -> None:
    # 504 where Go says 503: the server is not overloaded, it waited in vain
    go_on = trio.Event()

    async def waits_for_it(exchange: Exchange) -> None:
        if site.server.connections()[0].requests == 2:
            await trio.sleep_forever()
        await go_on.wait()
        await answer(exchange, b"hi")

    async with serving(waits_for_it, only(handler=5)) as site:
        client = await site.connect()
        go_on.set()
        assert (await client.get()).body == b"hi"
        assert (await client.get()).status == 504
        assert trio.current_time() == 5.0


async def test_timeout_handler_race(autojump_clock: MockClock) -> None:
    async def sleeps(exchange: Exchange) -> None:
        await trio.sleep(int(exchange.request.target[1:]) * MILLISECOND)
        await answer(exchange)

    statuses: dict[int, int] = {}

    async def ask(site: Site, i: int) -> None:
        statuses[i] = (await (await site.connect()).get(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % i)).status

    async with serving(sleeps, only(handler=20 * MILLISECOND)) as site, trio.open_nursery() as nursery:
        for i in range(50):
            nursery.start_soon(ask, site, i)
    # where both are due at once, either may be first
    assert all(statuses[i] == (200 if i < 20 else 504) for i in range(50) if i != 20)
    assert statuses[20] in (200, 504)


async def test_timeout_handler_start_timer_when_serving(autojump_clock: MockClock) -> None:
    async def no_content(exchange: Exchange) -> None:
        await answer(exchange, b"", 204)

    async with serving(no_content, only(handler=0.3)) as site:
        client = await site.connect()
        await trio.sleep(0.6)
        assert (await client.get()).status == 204
