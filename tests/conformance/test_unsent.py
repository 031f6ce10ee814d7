"""What a handler leaves behind when it returns before its client has taken the response: the time of the next request
has not begun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deadlined import BrokenResourceError, current_time
from deadlined.http import Exchange, Phase, Reason
from deadlined.http.policy import LOOK
from tests.support.conformance import Loop, Tasks, in_virtual_time
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client, answer
from tests.support.net import certificates
from tests.support.tls import ByHand

# bytes that the kernel takes of the server, about, and those that it takes for a client that does not read
SEND_BUFFER, RECEIVE_BUFFER = 4096, 2048

PIECE = bytes(16 * 1024)

MORE = b"GET /more HTTP/1.1\r\nhost: x\r\n\r\n"

# the end of a response in chunks, and the body of the response to MORE
LAST, HELLO = b"0\r\n\r\n", b"hello"


class Leaving:
    """A handler that returns while a part of its response waits for the client, and no send does."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._left = loop.event()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/more":
            await answer(exchange, HELLO)
            return
        exchange.start(200, [])
        while not await self._waits(exchange):
            await exchange.send(PIECE, True)
        await exchange.send(b"", False)
        self._left.set()

    async def _waits(self, exchange: Exchange) -> bool:
        """Return True if the kernel takes no more, also when it is asked again."""
        output = exchange._host.output
        await self._loop.step()
        if output.blocked:
            await self._loop.sleep(2 * LOOK)
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
