"""Receives of a handler that end early, on every event loop."""

from __future__ import annotations

import pytest

from deadlined.http import Exchange
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import site_of
from tests.support.http import CHUNKED_POST, answer, chunk, post

# more than sixteen receives in a row, after which others must run
LONG = bytes(range(256)) * 2**14
CHUNKS = b"".join(chunk(LONG[at : at + 2**16]) for at in range(0, len(LONG), 2**16)) + chunk(b"")

# receives that wait in vain
PATIENCE = 20_000


@on_each_loop
@pytest.mark.parametrize("request_bytes", [post(len(LONG)) + LONG, CHUNKED_POST + CHUNKS], ids=["length", "chunked"])
async def test_a_cancelled_receive_loses_no_bytes(loop: Loop, request_bytes: bytes) -> None:
    """Neither where it waits for the client, nor where it only lets others run."""
    cancelled = 0
    received = bytearray()

    async def impatient(exchange: Exchange) -> None:
        nonlocal cancelled
        async with loop.tasks() as own:
            while not exchange.body_done:
                receiving = own.start(exchange.receive)
                await loop.step()
                receiving.cancel()
                await receiving.wait()
                cancelled += receiving.cancelled
                assert cancelled < PATIENCE, "some of the body is lost"
                received.extend(receiving.result or b"")
        await answer(exchange)

    async with site_of(loop, impatient) as (site, tasks):
        client = await site.connect()
        sending = tasks.start(client.send, request_bytes)
        assert (await client.response("POST")).status == 200
        await sending.succeeds()
    assert cancelled
    assert received == LONG
