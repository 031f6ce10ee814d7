"""A failure of an upstream leaves no reference cycle: it would keep both connections, and what has come of the request,
until the garbage collector runs, and failures come in thousands."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from tests.support.conformance import Loop, on_each_loop
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import Client
from tests.support.proxy import OK, POST, Guarded, Peer, guarding

# what the upstream sends before it closes; None for a reset
ANSWERS: dict[str, bytes | None] = {
    "closed": b"",
    "reset": None,
    "malformed": b"no response\r\n\r\n",
    "cut": OK[:-2],
    "cut in chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
}


async def end(guarded: Guarded, client: Client, peer: Peer | None, left: int) -> None:
    """Close both ends once the client has something, and wait until `left` connections are open."""
    with suppress(trio.BrokenResourceError):
        await client.receive()
    client.conn.close()
    if peer is not None:
        peer.conn.close()
    await guarded.site.until(lambda: guarded.site.server.open_connections == left)
    await guarded.loop.settle()


@on_each_loop
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_one_that_breaks_off(loop: Loop, answer: bytes | None) -> None:
    async with guarding(loop) as guarded:

        async def ask() -> None:
            client, peer = await guarded.begin(POST)
            await peer.head()
            if answer is None:
                peer.conn.abort()
            else:
                await peer.send(answer)
                peer.conn.close()
            await end(guarded, client, peer, 0)

        await assert_leaves_no_garbage(ask)


@on_each_loop
@pytest.mark.parametrize("limit", ["upstream_first_byte", "upstream_per_try", "upstream_idle"])
async def test_one_that_is_late(loop: Loop, limit: str) -> None:
    options: dict[str, Any] = {limit: 1.0}
    async with guarding(loop, **options) as guarded:

        async def ask() -> None:
            client, peer = await guarded.begin(POST)
            await peer.head()
            if limit == "upstream_idle":
                await peer.send(OK[:-2])
            await end(guarded, client, peer, 0)

        await assert_leaves_no_garbage(ask)


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["http", "raw"])
async def test_one_that_does_not_listen(loop: Loop, raw: bool) -> None:
    async with guarding(loop, raw=raw) as guarded:
        guarded.upstream.stop()

        async def ask() -> None:
            client = await guarded.site.connect()
            if not raw:
                await client.send(POST)
            await end(guarded, client, None, 0)

        await assert_leaves_no_garbage(ask)


@on_each_loop
@pytest.mark.parametrize("raw", [False, True], ids=["http", "raw"])
async def test_one_that_has_enough_to_do(loop: Loop, raw: bool) -> None:
    async with guarding(loop, most=1, upstream_queue=1.0, raw=raw) as guarded:
        await guarded.begin(POST)

        async def ask() -> None:
            client = await guarded.site.connect()
            await client.send(POST)
            await end(guarded, client, None, 1)

        await assert_leaves_no_garbage(ask)
