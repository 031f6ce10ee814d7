"""What other tasks do while one accepts a websocket, and after an accept that has failed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import ResponseError
from tests.support.http import serving
from tests.support.websocket import ACCEPT, HANDSHAKE, handler, peer


async def test_what_is_sent_while_another_task_accepts_follows_the_accept(autojump_clock: MockClock) -> None:
    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        accepts = trio.Event()

        async def say_soon() -> None:
            await accepts.wait()
            await send({"type": "websocket.send", "text": "by another task"})
            with pytest.raises(ResponseError, match="accepted twice"):
                await send(ACCEPT)
            await send({"type": "websocket.close", "code": 4000})

        async with trio.open_nursery() as nursery:
            # the accept has to wait for a task that receives
            nursery.start_soon(receive)
            nursery.start_soon(say_soon)
            await wait_all_tasks_blocked()
            accepts.set()
            await send(ACCEPT)

    async with serving(handler(act)) as site:
        # trio's order of tasks is a matter of chance
        for _ in range(10):
            client = await peer(site)
            assert await client.message() == "by another task"
            assert await client.closed() == (4000, "")


async def test_what_is_sent_after_an_accept_that_has_found_the_client_gone_raises_oserror() -> None:
    raised: list[str] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        assert [(await receive())["type"], (await receive())["type"]] == ["websocket.connect", "websocket.disconnect"]
        for message in (ACCEPT, {"type": "websocket.send", "text": "late"}):
            with pytest.raises(OSError, match="gone"):
                await send(message)
            raised.append(message["type"])

    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        await wait_all_tasks_blocked()
        client.reset()
        await site.ended()
        await wait_all_tasks_blocked()
    assert raised == ["websocket.accept", "websocket.send"]
