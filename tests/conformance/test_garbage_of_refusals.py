"""A request that is refused, and a websocket however it ends, leave no reference cycle for the collector: anybody can
send them by the thousand, and each would keep its connection, or what it has for compression."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import echo
from tests.support.websocket import ACCEPT, BINARY, HANDSHAKE, TEXT, UPGRADE, closing, deflated, frame

CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"

REFUSED: dict[str, bytes] = {
    "a chunk": CHUNKED + b"x",
    "a chunk behind another": CHUNKED + b"1\r\na\r\nx",
    "a head that no parser reads": b"GET / HTTP/1.1\r\nhost: x\r\n: a\r\n\r\n",
    "a length": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: a\r\n\r\n",
    "a handshake": HANDSHAKE.replace(b"version: 13", b"version: 12"),
    "a handshake without a key": HANDSHAKE.replace(b"sec-websocket-key", b"x-key"),
    "a handshake with a wrong key": HANDSHAKE.replace(b"key: ", b"key: a"),
}

COMPRESSED = UPGRADE + b"sec-websocket-extensions: permessage-deflate\r\n\r\n"

# what a client sends after its handshake
SESSIONS: dict[str, bytes] = {
    "closed": frame(TEXT, b"a") + closing(1000),
    "compressed": frame(TEXT, deflated(b"a"), rsv=4) + closing(1000),
    "not compressed as it says": frame(TEXT, b"\xff\xff", rsv=4),
    "not masked": frame(TEXT, b"a", mask=b""),
    "no UTF-8": frame(TEXT, b"\xff"),
    "too long": frame(BINARY, length=2**40),
    "left in a message": frame(TEXT, b"a", fin=False),
}


async def leave_and_be_forgotten(loop: Loop, site: Site, sent: bytes) -> None:
    """Send it, read to the end of the server's side, and wait until the server has forgotten the client."""
    client = await site.connect()
    await client.send(sent)
    await client.conn.send_eof()
    await client.end()
    client.conn.close()
    await site.until(lambda: not site.server.statistics().background and not site.server.open_connections)
    await loop.settle()


@on_each_loop
@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_a_request_that_is_refused(loop: Loop, sent: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            continue

    async with site_of(loop, AsgiHandler(app) if sent.startswith(UPGRADE[:3]) else echo) as (site, _):
        await assert_leaves_no_garbage(lambda: leave_and_be_forgotten(loop, site, sent))


@on_each_loop
@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
async def test_a_websocket_that_was_accepted(loop: Loop, session: bytes) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            raise ValueError("the application's")
        except ValueError:
            # the frames are read here: an error of theirs has this one as its context
            await send(ACCEPT)
        while (await receive())["type"] != "websocket.disconnect":
            continue

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        await assert_leaves_no_garbage(lambda: leave_and_be_forgotten(loop, site, COMPRESSED + session))


async def close(send: Send) -> None:
    await send({"type": "websocket.close"})


async def offer_nothing(send: Send) -> None:
    await send({**ACCEPT, "subprotocol": "a"})


async def return_at_once(_: Send) -> None:
    pass


@on_each_loop
@pytest.mark.parametrize("act", [close, offer_nothing, return_at_once])
async def test_a_websocket_that_was_not_accepted(loop: Loop, act: Callable[[Send], Awaitable[None]]) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await act(send)

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        await assert_leaves_no_garbage(lambda: leave_and_be_forgotten(loop, site, COMPRESSED))
