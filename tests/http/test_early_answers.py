"""Answers that are complete before their requests: whether they say that the connection ends."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Exchange, Reason
from tests.support.handlers import KIB, Handler, after, echo_as_it_comes
from tests.support.http import CHUNKED_POST, Client, Site, answer, chunk, post, serving, whole_body

PIECE = chunk(bytes(50 * KIB))
END = chunk(b"")

# what has come when the server answers, and whether its answer says that the connection ends
COME: dict[str, tuple[bytes, bool]] = {
    "no chunk": (CHUNKED_POST, True),
    "a small one": (CHUNKED_POST + chunk(b"body"), True),
    "a small body": (CHUNKED_POST + chunk(b"body") + END, False),
    "an empty body": (CHUNKED_POST + END, False),
    "most of a body": (CHUNKED_POST + 2 * PIECE, True),
    "a longer body": (CHUNKED_POST + PIECE + END, False),
    "more than the kernel keeps": (CHUNKED_POST + 60 * PIECE + END, True),
    "a length": (post(200 * KIB), False),
    "a long one": (post(300 * KIB), True),
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("data", "closes"), COME.values(), ids=COME)
async def test_an_answer_says_that_the_connection_ends_if_the_rest_may_be_long(
    data: bytes, closes: bool, tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(after(1), tls=tls) as site:
        client = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_what_is_taken, data)
            response = await client.response()
        assert (response.body, response.closes) == (b"hello", closes)
        if closes:
            assert await site.reason() is Reason.DONE
        else:
            await client.send(bytes(200 * KIB) if data.startswith(post(200 * KIB)) else b"")
            assert (await client.get()).body == b"hello"


async def test_a_body_that_comes_behind_its_head_keeps_the_connection(autojump_clock: MockClock) -> None:
    """It is in the socket when the handler answers."""
    clients: list[Client] = []

    async def handler(exchange: Exchange) -> None:
        clients[0].push(chunk(b"body") + END)
        await answer(exchange)

    async with serving(handler) as site:
        clients.append(await site.connect())
        for _ in range(2):
            assert not (await clients[0].get(CHUNKED_POST)).closes


async def send_in_two(exchange: Exchange) -> None:
    """Answer in two pieces, without reading the body."""
    exchange.start(200, [])
    await exchange.send(b"hel", True)
    await exchange.send(b"lo", False)


async def receive_beside(exchange: Exchange) -> None:
    """Begin to answer while another task waits for the body."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(whole_body, exchange)
        await trio.sleep(1)
        exchange.start(200, [])
        await exchange.send(b"hel", True)
    await exchange.send(b"lo", False)


@pytest.mark.parametrize(
    ("handler", "closes"),
    [(send_in_two, True), (echo_as_it_comes, False), (receive_beside, False)],
    ids=["reads nothing", "an echo", "reads in another task"],
)
async def test_a_body_may_be_read_while_it_is_answered(
    handler: Handler, closes: bool, autojump_clock: MockClock
) -> None:
    async with serving(handler) as site:
        client = await site.connect()
        await client.send(CHUNKED_POST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_later, client, chunk(b"hel"), chunk(b"lo") + END)
            response = await client.response()
        assert (response.body, response.closes) == (b"hello", closes)


async def send_later(client: Client, *pieces: bytes) -> None:
    for piece in pieces:
        await trio.sleep(2)
        await client.send_what_is_taken(piece)


async def test_an_answer_in_a_drain_that_has_begun_since_its_start_says_that_the_connection_ends(
    autojump_clock: MockClock,
) -> None:
    sites: list[Site] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        sites[0].server.shutdown()
        await exchange.send(b"hello", False)

    async with serving(handler) as site:
        sites.append(site)
        client = await site.connect()
        assert (await client.get()).closes
