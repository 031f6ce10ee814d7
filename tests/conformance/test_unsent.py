"""What a handler leaves behind when it returns before its client has taken the response: its deadlines hold, and the
time of the next request has not begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from deadlined import BrokenResourceError, current_time
from deadlined.http import Exchange, Phase, Reason
from deadlined.http.policy import STALL_CHECK
from tests.support.conformance import Loop, Tasks, in_virtual_time
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client, answer
from tests.support.net import INF, certificates
from tests.support.tls import ByHand

# bytes that the kernel takes of the server, about, and those that it takes for a client that does not read
SEND_BUFFER, RECEIVE_BUFFER = 4096, 2048

PIECE = bytes(16 * 1024)

MORE = b"GET /more HTTP/1.1\r\nhost: x\r\n\r\n"

# the end of a response in chunks, and the body of the response to MORE
LAST, HELLO = b"0\r\n\r\n", b"hello"


class Leaving:
    """A handler that returns while a part of its response waits for the client, and no send does. `close`: it is the
    last response. `first`: seconds before it begins. `before`: called when the rest of it waits."""

    def __init__(
        self,
        loop: Loop,
        *,
        close: bool = False,
        first: float = 0.0,
        before: Callable[[Exchange], Awaitable[object]] | None = None,
    ) -> None:
        self._loop = loop
        self._first = first
        self._fields = [(b"connection", b"close")] if close else []
        self._before = before
        self._left = loop.event()
        self.left_at = 0.0

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/more":
            await answer(exchange, HELLO)
            return
        await self._loop.sleep(self._first)
        exchange.start(200, self._fields)
        while not await self._waits(exchange):
            await exchange.send(PIECE, True)
        if self._before is not None:
            await self._before(exchange)
        await exchange.send(b"", False)
        self.left_at = current_time()
        self._left.set()

    async def _waits(self, exchange: Exchange) -> bool:
        """Return True if the kernel takes no more, also when it is asked again."""
        output = exchange._host.output
        await self._loop.step()
        if output.blocked:
            await self._loop.sleep(2 * STALL_CHECK)
        return output.blocked

    async def asked(self, site: Site, tls: bool = False) -> Client | ByHand:
        """Return a client that does not read what this handler has left for it."""
        client = await site.connect(receive_buffer=RECEIVE_BUFFER)
        asking: Client | ByHand = client
        if tls:
            asking = by_hand = ByHand(client.conn)
            await by_hand.shake_hands()
        await asking.send(GET)
        await self._left.wait()
        await self._loop.settle()
        (info,) = site.server.connections()
        assert info.phase is Phase.WRITE
        return asking


async def read_until(loop: Loop, tasks: Tasks, client: Client | ByHand, end: bytes) -> bytes:
    """Return all up to `end`. Virtual time stands still meanwhile: the kernel may take its time to open a small
    window."""

    async def spin() -> None:
        while True:
            await loop.step()

    spinning = tasks.start(spin)
    data = b""
    while not data.endswith(end):
        piece = await client.receive()
        assert piece, data[-100:]
        data += piece
    spinning.cancel()
    await spinning.wait()
    return data


async def end_of(client: Client | ByHand) -> str:
    try:
        while await client.receive():
            continue
    except BrokenResourceError:
        return "reset"
    return "eof"


# the time of the next request


@in_virtual_time
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_the_idle_time_begins_when_all_of_the_response_has_left(loop: Loop, tls: bool) -> None:
    handler = Leaving(loop)
    context = certificates().server if tls else None
    async with site_of(loop, handler, None, SEND_BUFFER, ssl_context=context, idle=20) as (site, tasks):
        client = await handler.asked(site, tls)
        await loop.sleep(50)
        await read_until(loop, tasks, client, LAST)
        await loop.sleep(20)
        await client.send(MORE)
        assert (await read_until(loop, tasks, client, HELLO)).startswith(b"HTTP/1.1 200 ")
        assert await end_of(client) == "eof"
        assert await site.reason() is Reason.IDLE_TIMEOUT


@in_virtual_time
async def test_a_request_that_comes_before_all_of_the_response_has_left_is_served(loop: Loop) -> None:
    handler = Leaving(loop)
    async with site_of(loop, handler, None, SEND_BUFFER, idle=20) as (site, tasks):
        client = await handler.asked(site)
        await client.send(MORE)
        await loop.sleep(50)
        await read_until(loop, tasks, client, HELLO)


@in_virtual_time
async def test_another_idle_timeout_begins_no_idle_time(loop: Loop) -> None:
    handler = Leaving(loop)
    async with site_of(loop, handler, None, SEND_BUFFER, idle=100) as (site, tasks):
        client = await handler.asked(site)
        site.server.configure(timeouts=replace(site.server.timeouts, idle=20.0))
        (info,) = site.server.connections()
        assert info.phase is Phase.WRITE
        await loop.sleep(50)
        await read_until(loop, tasks, client, LAST)
        began = current_time()
        assert await end_of(client) == "eof"
        assert 20 <= current_time() - began <= 21


@in_virtual_time
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not"])
async def test_a_drain_has_cut_a_response_only_if_it_was_not_taken(loop: Loop, reads: bool) -> None:
    handler = Leaving(loop)
    async with site_of(loop, handler, None, SEND_BUFFER, idle=75, drain=30) as (site, tasks):
        client = await handler.asked(site)
        site.server.shutdown()
        await loop.sleep(20)
        if reads:
            await read_until(loop, tasks, client, LAST)
        assert await site.reason() is (Reason.DONE if reads else Reason.DRAIN_TIMEOUT)
        await site.serving.wait()
        assert site.server.was_cut is not reads


# the deadlines of the response


async def cut_at(loop: Loop, site: Site, when: float) -> None:
    """Wait until the only connection is cut, which must be at `when`."""
    await loop.sleep(when - 0.1 - current_time())
    assert not site.connections
    await loop.sleep(0.2)
    (record,) = site.connections
    assert (record.reason, record.phase) == (Reason.WRITE_TIMEOUT, Phase.WRITE)


@in_virtual_time
@pytest.mark.parametrize("close", [False, True], ids=["keep-alive", "close"])
@pytest.mark.parametrize("grace", [10.0, INF], ids=["beside write_grace", "alone"])
async def test_a_deadline_of_the_application_outlives_its_handler(loop: Loop, grace: float, close: bool) -> None:
    """In place of the others, whether they are sooner or later."""

    async def set_deadline(exchange: Exchange) -> None:
        exchange.set_write_deadline(loop.after(50))

    handler = Leaving(loop, close=close, before=set_deadline)
    async with site_of(loop, handler, None, SEND_BUFFER, write_grace=grace + 20) as (site, _):
        client = await handler.asked(site)
        await cut_at(loop, site, handler.left_at + 50)
        assert await end_of(client) == "reset"


@in_virtual_time
@pytest.mark.parametrize("close", [False, True], ids=["keep-alive", "close"])
async def test_the_time_of_the_whole_response_does_not_begin_again(loop: Loop, close: bool) -> None:
    handler = Leaving(loop, close=close, first=20)
    async with site_of(loop, handler, None, SEND_BUFFER, write=80) as (site, _):
        began = current_time()
        await handler.asked(site)
        await cut_at(loop, site, began + 80)
