"""A client that leaves while its handler moves its deadline: the moment that it leaves the handler stays as it is. And
one that has left already when its request is read: its handler is not called."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import pytest

from deadlined import current_time
from deadlined.http import Exchange, Limits, Reason
from deadlined.http.policy import DISCONNECT_GRACE
from tests.support.conformance import Loop, in_virtual_time, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import GET, Client, answer, post
from tests.support.websocket import HANDSHAKE

HOUR = 3600.0

Move = Callable[[Loop, Exchange], Awaitable[None]]
Leave = Callable[[Client], object]


async def remove_once(loop: Loop, exchange: Exchange) -> None:
    """As a stream of events does, before all."""
    exchange.set_handler_deadline(math.inf)
    await loop.sleep(HOUR)


async def renew(loop: Loop, exchange: Exchange) -> None:
    """As a worker does that is given some time for each step."""
    while True:
        exchange.set_handler_deadline(loop.after(30))
        await loop.sleep(0.3)


async def renew_from_a_short_one(loop: Loop, exchange: Exchange) -> None:
    """Its own deadline is always sooner than what the client leaves it, until it is moved."""
    while True:
        exchange.set_handler_deadline(loop.after(0.5))
        await loop.sleep(0.3)


async def remove_when_told(loop: Loop, exchange: Exchange) -> None:
    await exchange.wait_disconnected()
    exchange.set_handler_deadline(math.inf)
    await loop.sleep(HOUR)


def close(client: Client) -> None:
    client.conn.close()


def end_side(client: Client) -> None:
    client.conn.shutdown_write()


@in_virtual_time
@pytest.mark.parametrize("move", [remove_once, renew, renew_from_a_short_one, remove_when_told])
@pytest.mark.parametrize("later", [0.0, 10.0], ids=["with the request", "later"])
@pytest.mark.parametrize("leave", [close, end_side])
async def test_a_handler_that_moves_its_deadline_has_no_more_time_for_a_client_that_has_left(
    loop: Loop, leave: Leave, later: float, move: Move
) -> None:
    ended: list[float] = []

    async def moves(exchange: Exchange) -> None:
        try:
            await move(loop, exchange)
        finally:
            ended.append(current_time())

    async with site_of(loop, moves, handler=100) as (site, _):
        client = await site.connect()
        client.conn.try_send(GET)
        if later:
            await loop.sleep(later)
        left = current_time()
        leave(client)
        assert await site.reason() is Reason.CLIENT_CLOSED
        await site.until(lambda: ended)
        assert ended == [pytest.approx(left + DISCONNECT_GRACE)]


@in_virtual_time
async def test_what_a_handler_does_after_its_response_has_the_time_that_it_has_set(loop: Loop) -> None:
    """Before and after it, also if its own deadline was sooner than what its client left it."""
    began = current_time()
    ended: list[float] = []

    async def handler(exchange: Exchange) -> None:
        exchange.set_handler_deadline(loop.after(0.5))
        await loop.sleep(0.25)
        await answer(exchange)
        exchange.set_handler_deadline(began + 20)
        try:
            await loop.sleep(HOUR)
        finally:
            ended.append(current_time())

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        client.conn.try_send(GET)
        client.conn.shutdown_write()
        assert (await client.response()).status == 200
        await site.until(lambda: ended)
        assert ended == [pytest.approx(began + 20)]


@in_virtual_time
async def test_a_handler_that_is_left_alone_has_the_time_that_it_sets(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.set_handler_deadline(math.inf)
        await loop.sleep(10)
        await answer(exchange)

    async with site_of(loop, handler, cancel_on_disconnect=False) as (site, _):
        client = await site.connect()
        client.conn.try_send(GET)
        client.conn.shutdown_write()
        assert (await client.response()).status == 200


# one that has reset already when its request is read


@on_each_loop
@pytest.mark.parametrize("sent", [GET, post(10), HANDSHAKE], ids=["GET", "POST", "websocket"])
async def test_a_request_whose_client_has_reset_with_it_is_recorded_and_not_handled(loop: Loop, sent: bytes) -> None:
    called: list[Exchange] = []

    async def handler(exchange: Exchange) -> None:
        called.append(exchange)
        await loop.forever()

    async with site_of(loop, handler, Limits(max_running=1)) as (site, _):
        for number in (1, 2):
            client = await site.connect()
            await loop.settle()
            client.push(sent)
            client.reset()
            assert await site.reason(number) is Reason.CLIENT_RESET
        found = site.server.statistics()
    assert called == []
    assert [(one.status, one.reason) for one in site.requests] == [(0, Reason.CLIENT_RESET)] * 2
    assert list(found.answered.values()) == [2]
    assert found.admission is not None
    assert (found.admission.running, found.background) == (0, 0)


@on_each_loop
async def test_a_request_whose_client_has_reset_with_it_is_handled_if_handlers_are_left_alone(loop: Loop) -> None:
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        await loop.sleep(10)
        ends.append("end")

    async with site_of(loop, handler, cancel_on_disconnect=False) as (site, _):
        client = await site.connect()
        await loop.settle()
        client.push(GET)
        client.reset()
        await site.until(lambda: ends)


@on_each_loop
async def test_a_request_whose_client_has_ended_its_side_with_it_is_answered(loop: Loop) -> None:
    async with site_of(loop, answer) as (site, _):
        client = await site.connect()
        await loop.settle()
        client.push(GET)
        client.conn.shutdown_write()
        assert (await client.response()).status == 200
