"""A handler that ends its task leaves no reference cycle for the collector, with its connection and its context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Disconnected, Exchange
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, cancel_own_task, site_of
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import GET

Act = Callable[[Loop], Awaitable[None]]


async def be_late(loop: Loop) -> None:
    await loop.forever()


async def be_left(loop: Loop) -> None:
    await loop.forever()


async def be_cancelled(loop: Loop) -> None:
    cancel_own_task(loop)
    await loop.step()


async def exit_process(_: Loop) -> None:
    raise SystemExit


async def fail_while_cleaning_up(loop: Loop) -> None:
    try:
        await loop.forever()
    finally:
        raise LookupError


@on_each_loop
@pytest.mark.parametrize("act", [be_late, be_left, be_cancelled, exit_process, fail_while_cleaning_up])
async def test_a_handler_that_is_cut_leaves_no_cycle(loop: Loop, act: Act) -> None:
    began: list[None] = []

    async def handler(_: Exchange) -> None:
        began.append(None)
        await act(loop)

    async def ask(site: Site) -> None:
        before = len(began)
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: len(began) > before)
        if act is be_left:
            client.reset()
        else:
            await client.end()
        client.conn.close()
        site.hang_up()
        await site.until(lambda: not site.server.statistics().background and not site.server.open_connections)
        await loop.settle()

    async with site_of(loop, handler, handler=1) as (site, _):
        await assert_leaves_no_garbage(lambda: ask(site))


@on_each_loop
async def test_a_send_to_nobody_leaves_no_cycle(loop: Loop) -> None:
    """Its error would keep what the application has sent from, an async generator for example."""
    told: list[None] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        with suppress(Disconnected):
            await send({"type": "http.response.start", "status": 200})
        told.append(None)

    async def ask(site: Site) -> None:
        before = len(told)
        client = await site.connect()
        await client.send(GET)
        client.conn.close()
        site.hang_up()
        await site.until(lambda: len(told) > before and not site.server.open_connections)
        await loop.settle()

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        await assert_leaves_no_garbage(lambda: ask(site))
