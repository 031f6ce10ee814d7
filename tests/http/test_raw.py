"""A server of raw connections, without a proxy: who is called when, and how a failure of the handler ends it."""

from __future__ import annotations

import pytest
import trio

from deadlined.http import Exchange, Reason, ResponseCut, ResponseError
from deadlined.http.seams import Upgraded
from tests.http.test_upgrade import Lengths
from tests.support.builds import interpreted_only
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Handler, site_of
from tests.support.http import GET


async def returns(exchange: Exchange) -> None:
    """Forget to hand the connection over."""


async def fails(exchange: Exchange) -> None:
    raise LookupError("lost")


async def blames_the_upstream(exchange: Exchange) -> None:
    raise ResponseCut(502, "it does not answer")


async def starts_a_response(exchange: Exchange) -> None:
    exchange.start(200, [])
    await exchange.send(b"fine", False)


async def sends_a_body(exchange: Exchange) -> None:
    await exchange.send(b"fine", False)


async def upgrades(exchange: Exchange) -> None:
    await exchange.upgrade(Upgraded(), [(b"upgrade", b"lengths")])


@on_each_loop
@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (returns, Reason.SERVER_ERROR),
        (fails, Reason.SERVER_ERROR),
        (blames_the_upstream, Reason.UPSTREAM_FAILED),
        (starts_a_response, Reason.SERVER_ERROR),
        (sends_a_body, Reason.SERVER_ERROR),
        (upgrades, Reason.SERVER_ERROR),
    ],
)
async def test_a_handler_that_fails_resets_its_client_without_a_word(
    loop: Loop, handler: Handler, reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    async with site_of(loop, handler, raw=True) as (site, _):
        client = await site.connect()
        with pytest.raises(trio.BrokenResourceError):
            assert await client.receive() == b"no byte"
        assert await site.reason() is reason
        if handler in (starts_a_response, sends_a_body, upgrades):
            assert "a raw connection has no response: hand it over with `Exchange.hand_over`" in caplog.text
        assert (site.requests, site.connections[0].requests, site.connections[0].sent) == ([], 0, 0)


@interpreted_only
@on_each_loop
async def test_a_handler_that_has_tried_to_respond_can_hand_the_connection_over_once(loop: Loop) -> None:
    async def responds_first(exchange: Exchange) -> None:
        for responds in (starts_a_response, sends_a_body, upgrades):
            with pytest.raises(ResponseError, match="raw connection has no response"):
                await responds(exchange)
        await exchange.hand_over(Lengths())
        for responds in (starts_a_response, sends_a_body, upgrades):
            with pytest.raises(ResponseError, match="raw connection has no response"):
                await responds(exchange)
        with pytest.raises(ResponseError, match="already"):
            await exchange.hand_over(Lengths())

    async with site_of(loop, responds_first, raw=True) as (site, _):
        client = await site.connect()
        await client.send(b"some\n")
        assert await client.receive() == b"4\n"
        await client.send(b"\n")
        assert await site.reason() is Reason.DONE


@interpreted_only
@on_each_loop
async def test_no_other_connection_can_be_handed_over(loop: Loop) -> None:
    async def hands_over(exchange: Exchange) -> None:
        with pytest.raises(ResponseError, match="only a raw connection"):
            await exchange.hand_over(Lengths())
        exchange.start(200, [])
        await exchange.send(b"fine", False)

    async with site_of(loop, hands_over) as (site, _):
        client = await site.connect()
        await client.send(GET)
        assert (await client.response()).body == b"fine"


@on_each_loop
async def test_the_handlers_deadline_resets_its_client_without_a_word(loop: Loop) -> None:
    async def sleeps(exchange: Exchange) -> None:
        await loop.forever()

    async with site_of(loop, sleeps, raw=True, handler=10) as (site, _):
        client = await site.connect()
        due = loop.after(10)
        with pytest.raises(trio.BrokenResourceError):
            assert await client.receive() == b"no byte"
        assert loop.is_at(due)
        assert await site.reason() is Reason.HANDLER_TIMEOUT


@on_each_loop
async def test_the_handler_is_called_at_once_and_for_each_connection_once(loop: Loop) -> None:
    seen: list[tuple[str, bool]] = []

    async def sleeps(exchange: Exchange) -> None:
        seen.append((exchange.request.line, exchange.client is not None))
        await loop.forever()

    async with site_of(loop, sleeps, raw=True, read_header=10, idle=10, body_grace=10) as (site, _):
        for _ in range(3):
            await site.connect()
        await site.until(lambda: len(seen) == 3)
        # no deadline of HTTP runs meanwhile
        await loop.sleep(100)
        assert site.server.open_connections == 3
        assert seen == [("TCP connection", True)] * 3


@on_each_loop
async def test_a_client_that_resets_cancels_the_handler_and_one_that_ends_its_side_does_not(loop: Loop) -> None:
    ended: list[str] = []

    async def sleeps(exchange: Exchange) -> None:
        try:
            await loop.forever()
        finally:
            ended.append("cancelled")

    async with site_of(loop, sleeps, raw=True) as (site, _):
        client = await site.connect()
        await client.send(b"all")
        await client.conn.send_eof()
        await loop.sleep(100)
        assert (ended, site.server.open_connections) == ([], 1)
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        await site.until(lambda: ended == ["cancelled"])
        await site.until(lambda: site.server.background == 0)
