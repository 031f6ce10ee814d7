"""What an application sends over a websocket whose client is gone: dropped for a while, if a receive tells it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason
from tests.support.http import Site, serving
from tests.support.websocket import HANDSHAKE, TEXT, accepting, all_ended, frame, handler

MESSAGE = {"type": "websocket.send", "text": "anybody?"}
CLOSE = {"type": "websocket.close"}


async def leave(site: Site, said: bytes = b"") -> None:
    """Open a websocket, say something, wait until the application waits for something else, and leave."""
    client = await site.connect()
    await client.send(HANDSHAKE + said)
    await client.receive()
    await wait_all_tasks_blocked()
    client.reset()
    assert (await site.ended()).reason is Reason.CLIENT_RESET


async def test_it_is_dropped_for_a_second_and_then_raises_oserror(autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        assert (await receive())["type"] == "websocket.disconnect"
        for message in (MESSAGE, CLOSE, MESSAGE):
            await send(message)
            await trio.sleep(0.4)
        await trio.sleep(0.1)
        for message in (MESSAGE, CLOSE):
            with pytest.raises(OSError, match="gone"):
                await send(message)
            done.append(message["type"])

    async with serving(handler(act)) as site:
        await leave(site)
        await all_ended(site)
    assert done == ["websocket.send", "websocket.close"]


async def test_a_loop_that_only_sends_ends_after_a_thousand_messages(autojump_clock: MockClock) -> None:
    """It would take the processor for the whole second."""
    sent: list[int] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await receive()
        for number in range(2_000):
            try:
                await send(MESSAGE)
            except OSError:
                sent.append(number)
                return

    async with serving(handler(act)) as site:
        await leave(site)
        await all_ended(site)
    assert sent == [1_000]


async def test_an_application_that_is_busy_is_told_by_its_next_receive(autojump_clock: MockClock) -> None:
    """A consumer of Channels, for example, asks its database, and then answers."""
    told: list[Any] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        while (message := await receive())["type"] == "websocket.receive":
            await trio.sleep(5)
            await send({"type": "websocket.send", "text": message["text"]})
        told.append(message)

    async with serving(handler(act)) as site:
        await leave(site, frame(TEXT, b"question"))
        await all_ended(site)
    assert told == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}]


async def test_a_send_that_waits_for_the_client_returns(autojump_clock: MockClock) -> None:
    told: list[str] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await receive()
        while site.server.open_connections:
            await send({"type": "websocket.send", "bytes": bytes(1 << 20)})
        told.append((await receive())["type"])

    async with serving(handler(act)) as site:
        await leave(site, frame(TEXT, b"all of it"))
        await all_ended(site)
    assert told == ["websocket.disconnect"]


async def test_an_application_that_does_not_receive_is_told_by_the_first_send(autojump_clock: MockClock) -> None:
    raised: list[bool] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await trio.sleep(5)
        with pytest.raises(OSError, match="gone"):
            await send(MESSAGE)
        raised.append(True)

    async with serving(handler(act)) as site:
        await leave(site)
        await all_ended(site)
    assert raised == [True]


async def test_an_application_that_only_sends_after_its_first_message_is_told_by_a_send(
    autojump_clock: MockClock,
) -> None:
    raised: list[bool] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await receive()
        with pytest.raises(OSError, match="gone"):
            while True:
                await send(MESSAGE)
                await trio.sleep(0.3)
        raised.append(True)

    async with serving(handler(act)) as site:
        await leave(site, frame(TEXT, b"begin"))
        await all_ended(site)
    assert raised == [True]
