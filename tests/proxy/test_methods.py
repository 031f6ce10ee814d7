"""Methods that end at the proxy."""

from __future__ import annotations

import pytest

from tests.support.conformance import Loop, on_each_loop
from tests.support.http import GET
from tests.support.proxy import guarding, problem


@on_each_loop
@pytest.mark.parametrize("method", [b"head", b"Head", b"HEAd"])
async def test_head_in_other_letters_reaches_no_upstream(loop: Loop, method: bytes) -> None:
    """Some upstreams take it for HEAD, and send no body, which the proxy would wait for."""
    async with guarding(loop) as guarded:
        client, peer = await guarded.used_once()
        await client.send(method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await problem(client) == (501, "protocol_error")
        (statistics,) = guarded.proxy.statistics().upstreams
        assert (statistics.tries, statistics.idle, statistics.active) == (1, 1, 0)
        await client.send(GET)
        await peer.answer()
        assert (await client.response()).body == b"fine"


@on_each_loop
@pytest.mark.parametrize("method", [b"get", b"BREW"])
async def test_other_methods_are_passed_on_as_they_are(loop: Loop, method: bytes) -> None:
    async with guarding(loop) as guarded:
        client, peer = await guarded.begin(method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await peer.answer()).startswith(method + b" / HTTP/1.1\r\n")
        assert (await client.response()).body == b"fine"
