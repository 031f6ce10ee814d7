"""What `deadlined proxy` serves: the options of a configuration reach the proxy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from trio.testing import MockClock

from deadlined.net import open_tcp_listeners
from deadlined.proxy import ProxyLimits, ProxyTimeouts
from deadlined.service import ServeConfig
from deadlined.service.content.proxied import Upstreams
from tests.support.http import GET, Site, serving
from tests.support.net import LOCALHOST
from tests.support.proxy import Played


@asynccontextmanager
async def proxying(config: ServeConfig) -> AsyncIterator[tuple[Site, Played]]:
    """Serve what `config` says, in front of one upstream."""
    upstream = Played((await open_tcp_listeners(0, host=LOCALHOST))[0])
    content = Upstreams(msgspec.structs.replace(config, upstream=(str(upstream.address),)))
    try:
        async with content as handler, serving(handler) as site:
            yield site, upstream
    finally:
        upstream.close()


async def test_its_trusted_proxies_are_believed_in_the_fields_that_they_write(autojump_clock: MockClock) -> None:
    config = ServeConfig(trusted_proxies=(LOCALHOST,), forwarded_fields="x-forwarded")
    async with proxying(config) as (site, upstream):
        client = await site.connect()
        # the first one is what a client has sent, and the trusted proxy has passed on
        fields = b"forwarded: for=6.6.6.6\r\nx-forwarded-for: 192.0.2.7\r\n"
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n")
        head = await (await upstream.accept()).answer()
        assert b"\r\nx-forwarded-for: 192.0.2.7, 127.0.0.1\r\n" in head
        assert b"6.6.6.6" not in head
        await client.response()
        client.conn.close()
        await site.ended()
        assert [record.peer for record in site.records.requests] == ["192.0.2.7"]


async def test_nobody_is_believed_by_default(autojump_clock: MockClock) -> None:
    async with proxying(ServeConfig()) as (site, upstream):
        client = await site.connect()
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.7\r\n\r\n")
        assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in await (await upstream.accept()).answer()
        await client.response()


async def test_its_limits_and_timeouts_hold(autojump_clock: MockClock) -> None:
    config = ServeConfig(
        proxy_limits=ProxyLimits(upstream_connections=1), proxy_timeouts=ProxyTimeouts(upstream_queue=5)
    )
    async with proxying(config) as (site, upstream):
        first, second = await site.connect(), await site.connect()
        await first.send(GET)
        peer = await upstream.accept()
        refused = await second.get(GET)
        assert (refused.status, json.loads(refused.body)["reason"]) == (503, "overloaded")
        await peer.answer()
        assert (await first.response()).status == 200
