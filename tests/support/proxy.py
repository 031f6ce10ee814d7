"""A proxy in front of upstreams that a test plays by hand."""

from __future__ import annotations

import json
import os
import ssl
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import ioctl
from typing import Any

import pytest
import trio

from deadlined import Conn, Listener, open_tcp_listeners
from deadlined.http import Limits
from deadlined.http.trusted import TrustedProxies
from deadlined.net import race
from deadlined.net.names import AddressInfo
from deadlined.proxy import Address, BaseProxy, Proxy, ProxyLimits, ProxyTimeouts, RawProxy
from tests.support.conformance import Loop, Tasks
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client, post
from tests.support.net import LOCALHOST

INF = float("inf")

# real seconds, at least, before Linux sends what the receiver's window has room for but not for a segment (tcp(7))
RTO_MIN = 0.2

OFF = {
    "upstream_connect": INF,
    "upstream_first_byte": INF,
    "upstream_idle": INF,
    "upstream_queue": INF,
    "upstream_per_try": INF,
    "upstream_reuse": INF,
}

POST = post(3) + b"abc"

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"


class Peer:
    """One connection that an upstream has accepted."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self._held = bytearray()

    async def head(self) -> bytes:
        """Return the next head, its empty line included."""
        return await self.until(b"\r\n\r\n")

    async def until(self, end: bytes) -> bytes:
        """Return what comes up to `end`. EOFError if the proxy ends before it, BrokenResourceError if it resets."""
        while end not in self._held:
            await self._receive()
        return await self.read(self._held.index(end) + len(end))

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._held) < size:
            await self._receive()
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    async def _receive(self) -> None:
        data = await self.conn.receive_some()
        if not data:
            raise EOFError(bytes(self._held))
        self._held += data

    async def end(self) -> str:
        """Read to the end: "eof" or "reset"."""
        try:
            while await self.conn.receive_some():
                continue
        except trio.BrokenResourceError:
            return "reset"
        return "eof"

    async def send(self, data: bytes) -> None:
        await self.conn.send_all(data)

    async def answer(self, response: bytes = OK) -> bytes:
        """Read a head, answer it, and return it."""
        head = await self.head()
        await self.send(response)
        return head


class Played:
    """An upstream that a test plays."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.address = Address(LOCALHOST, listener.socket.getsockname()[1])
        self.peers: list[Peer] = []

    @property
    def accepted(self) -> int:
        """Connections that were accepted so far."""
        return len(self.peers)

    async def accept(self) -> Peer:
        peer = Peer(await self._listener.accept())
        self.peers.append(peer)
        return peer

    async def serve(self, response: bytes = OK) -> None:
        """Answer one request on each connection, for ever."""
        while True:
            peer = await self.accept()
            await peer.answer(response)

    def stop(self) -> None:
        """Accept no connection any more."""
        self._listener.close()

    def close(self) -> None:
        self.stop()
        for peer in self.peers:
            peer.conn.close()


class Guarded:
    """A proxy, its upstreams and its site."""

    def __init__(self, loop: Loop, proxy: BaseProxy, upstreams: list[Played], site: Site, tasks: Tasks) -> None:
        self.loop = loop
        self.proxy = proxy
        self.upstreams = upstreams
        self.site = site
        self.tasks = tasks

    @property
    def upstream(self) -> Played:
        return self.upstreams[0]

    async def begin(self, request: bytes = GET) -> tuple[Client, Peer]:
        """Return a client that has sent `request`, and the upstream's end of the new connection that it goes to."""
        client = await self.site.connect()
        await client.send(request)
        return client, await self.upstream.accept()

    async def used_once(self) -> tuple[Client, Peer]:
        """Return a client that was answered, and the upstream's end of the connection that is idle now."""
        client, peer = await self.begin()
        await peer.answer()
        await client.response()
        return client, peer

    async def come_to_rest(self) -> None:
        """Let everybody send what the kernel takes, in no virtual time: bytes that are taken later move deadlines. A
        busy machine delivers late, and a window that is too small for a segment is used only after RTO_MIN."""
        held, since = self._held(), time.monotonic()
        while time.monotonic() < since + 1.5 * RTO_MIN:
            time.sleep(0.01)  # noqa: ASYNC251, virtual time must not pass
            for _ in range(100):
                await self.loop.step()
            before, held = held, self._held()
            if held != before:
                since = time.monotonic()

    def _held(self) -> list[bytes]:
        """Return how many bytes the kernel holds for the upstreams."""
        files = [peer.conn.socket.fileno() for upstream in self.upstreams for peer in upstream.peers]
        return [ioctl(file, termios.FIONREAD, bytes(4)) for file in files if file >= 0]


@asynccontextmanager
async def guarding(
    loop: Loop,
    count: int = 1,
    *,
    most: float = INF,
    trusted: TrustedProxies | None = None,
    limits: Limits | None = None,
    send_buffer: int | None = None,
    server: dict[str, Any] | None = None,
    raw: bool = False,
    ssl_context: ssl.SSLContext | None = None,
    **timeouts: float,
) -> AsyncIterator[Guarded]:
    """Put a proxy in front of `count` upstreams; `raw`: one for TCP. All timeouts are off but those given, in the
    seconds of a test."""
    upstreams = [Played((await open_tcp_listeners(0, host=LOCALHOST))[0]) for _ in range(count)]
    scaled: dict[str, Any] = {**OFF, **{name: loop.seconds(value) for name, value in timeouts.items()}}
    addresses = [upstream.address for upstream in upstreams]
    waits, bounds = ProxyTimeouts(**scaled), ProxyLimits(upstream_connections=most)
    proxy: BaseProxy
    if raw:
        proxy = RawProxy(addresses, timeouts=waits, limits=bounds)
    else:
        proxy = Proxy(addresses, timeouts=waits, limits=bounds, trusted=trusted)
    try:
        options: dict[str, Any] = {"respond": proxy.respond, "raw": raw, "ssl_context": ssl_context, **(server or {})}
        async with site_of(loop, proxy, limits, send_buffer, **options) as (site, tasks):
            yield Guarded(loop, proxy, upstreams, site, tasks)
    finally:
        proxy.close()
        for upstream in upstreams:
            upstream.close()


async def end(guarded: Guarded, client: Client, peer: Peer, how: str) -> None:
    """End a tunnel by the client's reset, or by the end of both sides, and wait until the guard has forgotten it."""
    if how == "reset":
        client.reset()
    else:
        await peer.conn.send_eof()
        await client.conn.send_eof()
        assert await client.end() == "eof"
    await peer.end()
    client.conn.close()
    peer.conn.close()
    await guarded.site.until(lambda: not guarded.site.server.open_connections)


def fail_to_connect(monkeypatch: pytest.MonkeyPatch, upstream: Played, code: int) -> None:
    """Let connects to `upstream` fail with this error of the kernel."""
    before = race.connect

    async def connect(address: AddressInfo, deadline: float) -> Conn:
        if address[-1][1] == upstream.address.port:
            raise OSError(code, os.strerror(code))
        return await before(address, deadline)

    monkeypatch.setattr(race, "connect", connect)


async def problem(client: Client) -> tuple[int, str]:
    """Return the status and the reason of an answer of the proxy itself."""
    response = await client.response()
    assert response.headers["content-type"] == "application/problem+json"
    # only what has no room now is to come again
    assert ("retry-after" in response.headers) == (response.status == 503)
    return response.status, json.loads(response.body)["reason"]
