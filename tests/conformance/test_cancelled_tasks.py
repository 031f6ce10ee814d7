"""Tasks of a server that are cancelled: the connection goes on in another one, and no failure is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio

from deadlined.http import Disconnected, Exchange, Phase, Reason
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import cancel_own_task, cancel_workers, site_of
from tests.support.http import CHUNKED_POST, GET, answer, chunk, echo, hello, post
from tests.support.net import certificates
from tests.support.tls import ByHand, encrypt

AFTER_THE_END = "ended its task after the end of its connection"

# connections that somebody else's cancellation hits

BODIES = {"length": (post(6) + b"abc", b"def"), "chunked": (CHUNKED_POST + chunk(b"abc"), chunk(b"def") + chunk(b""))}


@on_each_loop
@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_the_rest_of_a_body_is_discarded_in_another_task(
    loop: Loop, body: tuple[bytes, bytes], suspends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(exchange: Exchange) -> None:
        # it might be about to read the rest, so the response does not say that the connection ends
        await exchange.receive()
        exchange.start(200, [])
        await exchange.send(b"hel", True)
        await exchange.send(b"lo", False)
        if suspends and exchange.request.method == "POST":
            await loop.forever()

    first, rest = body
    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get(first)).status == 200
        await loop.settle()
        for _ in range(2):
            assert cancel_workers(loop)
            await loop.settle()
        await client.send(rest + GET)
        assert (await client.response()).status == 200
        assert site.server.statistics().accepted == 1
    # of the handler that was cancelled nothing but its end is told
    assert {record.getMessage() for record in caplog.records} <= {"POST / ended its task after its response"}


@on_each_loop
async def test_a_server_that_is_cancelled_in_an_upload_ends_it_in_the_phase_of_the_body(loop: Loop) -> None:
    async with site_of(loop, echo) as (site, _):
        client = await site.connect()
        await client.send(post(6))
        await site.until(lambda: site.server.statistics().phases.get(Phase.BODY))
        site.serving.cancel()
        assert await site.reason() is Reason.DRAIN_TIMEOUT
        assert [record.phase for record in site.connections] == [Phase.BODY]


@on_each_loop
async def test_a_cancelled_discarding_still_ends_by_its_deadline(loop: Loop) -> None:
    async with site_of(loop, hello, body_grace=5) as (site, _):
        client = await site.connect()
        await client.get(post(6) + b"abc")
        await loop.settle()
        assert cancel_workers(loop)
        assert await site.reason() == Reason.BODY_RATE
        assert site.server.statistics().answered == {("POST", 200): 1}


@on_each_loop
@pytest.mark.parametrize(
    ("first", "rest"), [(GET + GET, b""), (post(6) + b"abc", b"def" + GET)], ids=["in one piece", "after a body"]
)
async def test_a_handler_that_cancels_its_task_at_its_end_harms_no_other_request(
    loop: Loop, first: bytes, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    async def handler(exchange: Exchange) -> None:
        asked.append(exchange.request.method)
        if len(asked) == 1:
            await answer(exchange)
            cancel_own_task(loop)
        else:
            await loop.step()
            await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get(first)).status == 200
        await loop.settle()
        await client.send(rest)
        assert (await client.response()).status == 200
        assert len(asked) == 2
    assert caplog.records == []


@on_each_loop
async def test_a_response_that_waits_for_its_client_is_sent_in_another_task(loop: Loop) -> None:
    # so little that the handler does not wait
    size = 60_000

    async def handler(exchange: Exchange) -> None:
        await answer(exchange, bytes(size if exchange.request.method == "POST" else 1))

    async with site_of(loop, handler, send_buffer=4096) as (site, _):
        client = await site.connect(receive_buffer=4096)
        await client.send(post(6) + b"abc")
        await site.until(lambda: site.server.statistics().phases.get(Phase.WRITE))
        assert cancel_workers(loop)
        await loop.settle()
        assert len((await client.response()).body) == size
        await client.send(b"def" + GET)
        assert (await client.response()).status == 200


@on_each_loop
async def test_a_head_is_read_on_in_another_task(loop: Loop) -> None:
    async with site_of(loop, hello) as (site, _):
        client = await site.connect()
        await client.send(GET[:9])
        await loop.settle()
        assert cancel_workers(loop)
        await loop.settle()
        await client.send(GET[9:])
        assert (await client.response()).status == 200


@on_each_loop
@pytest.mark.parametrize("part", ["in the hello", "after the hello"])
async def test_a_tls_handshake_goes_on_in_another_task(loop: Loop, part: str) -> None:
    async with site_of(loop, hello, ssl_context=certificates().server, handshake=60) as (site, _):
        client = ByHand((await site.connect()).conn)
        said = client.hello()
        now = said if part == "after the hello" else said[:100]
        await client.conn.send_all(now)
        await loop.settle()
        for _ in range(2):
            assert cancel_workers(loop)
            await loop.settle()
        await client.conn.send_all(said[len(now) :])
        await client.finish()
        await client.conn.send_all(encrypt(client.core, GET))
        assert (await client.receive()).startswith(b"HTTP/1.1 200 ")


@on_each_loop
async def test_a_cancelled_tls_handshake_still_ends_by_its_deadline(loop: Loop) -> None:
    async with site_of(loop, hello, ssl_context=certificates().server, handshake=5) as (site, _):
        client = ByHand((await site.connect()).conn)
        await client.conn.send_all(client.hello())
        await loop.settle()
        assert cancel_workers(loop)
        assert await site.reason() == Reason.HANDSHAKE_TIMEOUT


# handlers that the server cancels, and that fail in their clean-up


async def fail_at_the_end(loop: Loop) -> None:
    try:
        await loop.forever()
    finally:
        raise LookupError("the clean-up has failed")


async def fail_in_anyio(loop: Loop) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(fail_at_the_end, loop)
        await loop.forever()


async def fail_in_a_group(loop: Loop) -> None:
    if loop.is_trio:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_the_end, loop)
            await loop.forever()
    async with asyncio.TaskGroup() as group:
        group.create_task(fail_at_the_end(loop))
        await loop.forever()


WORK = [fail_at_the_end, fail_in_anyio, fail_in_a_group]


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.exc_info]


@on_each_loop
@pytest.mark.parametrize("work", WORK)
async def test_a_clean_up_that_fails_after_the_response_is_logged(
    loop: Loop, work: Callable[[Loop], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await work(loop)

    async with site_of(loop, handler, handler=5) as (site, _):
        assert (await (await site.connect()).get()).status == 200
        await site.until(lambda: not site.server.statistics().background)
    assert failures(caplog) == [(logging.ERROR, "GET / failed")]
    assert "LookupError: the clean-up has failed" in caplog.text


@on_each_loop
@pytest.mark.parametrize("work", WORK)
async def test_a_clean_up_that_fails_in_a_request_that_was_cut_is_logged_for_debugging(
    loop: Loop, work: Callable[[Loop], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "deadlined")
    async with site_of(loop, lambda exchange: work(loop), handler=5) as (site, _):
        assert (await (await site.connect()).get()).status == 504
        await site.until(lambda: not site.server.statistics().background)
    assert failures(caplog) == [(logging.DEBUG, "GET / failed")]
    assert "LookupError: the clean-up has failed" in caplog.text


@on_each_loop
async def test_a_handler_that_is_cut_and_does_not_fail_is_not_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "deadlined")

    async def handler(exchange: Exchange) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(loop.forever)
            await loop.forever()

    async with site_of(loop, handler, handler=5) as (site, _):
        assert (await (await site.connect()).get()).status == 504
        await site.until(lambda: not site.server.statistics().background)
    assert failures(caplog) == []


# handlers that end their task when the connection has gone on without them


async def after_a_response(loop: Loop, exchange: Exchange) -> None:
    await answer(exchange)
    await loop.sleep(1)


async def after_their_client(loop: Loop, exchange: Exchange) -> None:
    await exchange.wait_disconnected()
    await loop.sleep(0.1)


async def after_a_body_that_is_invalid(loop: Loop, exchange: Exchange) -> None:
    with pytest.raises(Disconnected):
        await exchange.receive()
    await loop.sleep(0.1)


@on_each_loop
@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize(
    ("work", "sent", "said"),
    [
        (after_a_response, GET, "GET / ended its task after its response"),
        (after_their_client, GET, "GET / ended its task after the end of its connection"),
        (
            after_a_body_that_is_invalid,
            CHUNKED_POST + b"x\r\n",
            "POST / ended its task after the end of its connection",
        ),
    ],
    ids=["response", "client", "body"],
)
async def test_the_log_tells_whose_handler_has_ended_its_task_and_when(
    loop: Loop,
    work: Callable[[Loop, Exchange], Awaitable[None]],
    sent: bytes,
    said: str,
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(exchange: Exchange) -> None:
        await work(loop, exchange)
        raise error

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(sent)
        if work is after_their_client:
            await loop.settle()
            client.reset()
        else:
            await client.response()
        await site.until(lambda: failures(caplog))
        assert failures(caplog) == [(logging.ERROR, said)]
