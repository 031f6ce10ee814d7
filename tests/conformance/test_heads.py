"""When the head of a response leaves: with the first piece of its body, or alone if its handler waits meanwhile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import anyio
import pytest

from deadlined import current_time
from deadlined.http import Disconnected, Exchange
from deadlined.http.heads import HOLD
from tests.support.conformance import Loop, in_virtual_time, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import GET, answer

pytestmark = pytest.mark.usefixtures("parser")

LONG = 1000

Starts = Callable[[Loop, Exchange], Awaitable[None]]

who: ContextVar[str] = ContextVar("who", default="nobody")


async def in_its_task(loop: Loop, exchange: Exchange) -> None:
    exchange.start(200, [(b"x-here", b"yes")])


async def in_a_task_of_its_own(loop: Loop, exchange: Exchange) -> None:
    async with loop.tasks() as tasks:
        await tasks.start(in_its_task, loop, exchange).succeeds()


async def after_a_sleep(loop: Loop, exchange: Exchange) -> None:
    await loop.sleep(1)
    await in_its_task(loop, exchange)


@in_virtual_time
@pytest.mark.parametrize("start", [in_its_task, in_a_task_of_its_own, after_a_sleep])
async def test_a_client_learns_soon_that_a_handler_has_begun_to_answer(loop: Loop, start: Starts) -> None:
    started: list[float] = []

    async def handler(exchange: Exchange) -> None:
        await start(loop, exchange)
        started.append(current_time())
        await loop.sleep(LONG)
        await exchange.send(b"late", more=False)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        head = await client.receive()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"x-here: yes" in head
        assert b"transfer-encoding: chunked" in head
        assert head.endswith(b"\r\n\r\n")
        assert current_time() == pytest.approx(started[0] + HOLD)
        assert await client.receive() == b"4\r\nlate\r\n0\r\n\r\n"
        assert current_time() == pytest.approx(started[0] + LONG)


@in_virtual_time
async def test_each_of_many_heads_leaves_at_its_time(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        await loop.sleep(LONG)
        await exchange.send(b"", more=False)

    async with site_of(loop, handler) as (site, _):
        clients = [await site.connect() for _ in range(3)]
        came = []
        for client in clients:
            await client.send(GET)
            await loop.sleep(HOLD / 4)
        for client in clients:
            await client.receive()
            came.append(current_time())
        # asked a quarter of HOLD apart
        assert [later - came[0] for later in came] == pytest.approx([0, HOLD / 4, HOLD / 2])


@in_virtual_time
async def test_a_head_leaves_with_a_piece_that_comes_soon(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        await loop.sleep(HOLD / 2)
        await exchange.send(b"soon", more=False)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        whole = await client.receive()
        assert b"content-length: 4\r\n" in whole
        assert whole.endswith(b"\r\n\r\nsoon")
        # what was held before is nothing to the connection's next request
        await loop.sleep(HOLD)
        assert (await client.get()).body == b"soon"


@in_virtual_time
@pytest.mark.parametrize(("seconds", "status"), [(HOLD / 2, 500), (HOLD * 2, 200)])
async def test_a_handler_that_fails_soon_after_its_head_answers_500(loop: Loop, seconds: float, status: int) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        await loop.sleep(seconds)
        raise ValueError("failed")

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        assert (await client.receive()).startswith(b"HTTP/1.1 %d " % status)


@in_virtual_time
async def test_a_client_that_leaves_before_the_head_is_nothing_to_the_next(loop: Loop) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/":
            exchange.start(200, [])
            await loop.sleep(LONG)
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        leaving = await site.connect()
        await leaving.send(GET)
        await loop.settle()
        leaving.reset()
        await loop.sleep(HOLD * 2)
        client = await site.connect()
        assert (await client.get(GET.replace(b" / ", b" /next "))).body == b"hello"


@in_virtual_time
@pytest.mark.parametrize(("piece", "more", "raises"), [(b"", False, False), (b"", True, True), (b"x", False, True)])
async def test_an_empty_end_for_a_client_that_is_gone_is_no_failure(
    loop: Loop, piece: bytes, more: bool, raises: bool
) -> None:
    raised: list[bool] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"piece", more=True)
        with contextlib.suppress(Disconnected):
            await exchange.wait_disconnected()
        try:
            await exchange.send(piece, more)
        except Disconnected:
            raised.append(True)
        else:
            raised.append(False)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await client.receive()
        client.reset()
        await site.until(lambda: raised)
        assert raised == [raises]


@on_each_loop
@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("detached", [False, True])
async def test_a_failure_is_logged_in_the_context_of_its_handler(
    loop: Loop, suspends: bool, detached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, str]] = []

    class Context(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            seen.append((record.getMessage(), who.get()))
            return True

    async def handler(exchange: Exchange) -> None:
        who.set("somebody")
        if detached:
            await answer(exchange)
        if suspends:
            await loop.sleep(0.01)
        raise ValueError("failed")

    context = Context()
    caplog.handler.addFilter(context)
    try:
        async with site_of(loop, handler) as (site, _):
            client = await site.connect()
            await client.get()
            await site.until(lambda: seen)
    finally:
        caplog.handler.removeFilter(context)
    assert seen == [("GET / failed", "somebody")]


@in_virtual_time
async def test_a_head_that_is_begun_as_the_server_ends_leaves_no_timer_behind(loop: Loop) -> None:
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        try:
            await loop.forever()
        finally:
            with anyio.CancelScope(shield=True):
                exchange.start(200, [])
                await loop.sleep(HOLD / 2)
                ends.append("end")

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await loop.sleep(1)
        site.serving.cancel()
        await site.serving.wait()
        assert ends == ["end"]
