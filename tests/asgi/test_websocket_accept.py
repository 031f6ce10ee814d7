"""What other tasks do while one accepts a websocket, and after an accept that has failed."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import ResponseError
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import serving
from tests.support.websocket import ACCEPT, HANDSHAKE, TEXT, all_ended, frame, handler, peer, stranger


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


async def test_a_client_that_says_much_before_it_is_accepted_is_heard_by_a_task_that_receives_already() -> None:
    heard: list[object] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()

        async def hear() -> None:
            heard.append((await receive())["text"])
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            await wait_all_tasks_blocked()
            await send(ACCEPT)

    early, done = "a" * 20_000, trio.Event()
    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE + frame(TEXT, early.encode()))
        with trio.fail_after(30):
            await done.wait()
    assert heard == [early]


async def test_an_accept_that_is_cancelled_while_another_task_receives_has_sent_nothing() -> None:
    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            with trio.CancelScope() as scope:
                scope.cancel()
                await send(ACCEPT)
            assert scope.cancelled_caught
            nursery.cancel_scope.cancel()
        await send({"type": "websocket.close"})

    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        assert (await client.response()).status == 403


@pytest.mark.parametrize("then", ["accepts", "denies", "the client leaves"])
async def test_an_accept_that_is_cancelled_does_not_end_the_receive_of_another_task(
    then: str, autojump_clock: MockClock
) -> None:
    told: list[str] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()

        async def hear() -> None:
            told.append((await receive())["type"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            for _attempt in range(3):
                await wait_all_tasks_blocked()
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await send(ACCEPT)
            await wait_all_tasks_blocked()
            assert told == []
            if then == "accepts":
                await send(ACCEPT)
            elif then == "denies":
                await send({"type": "websocket.close"})

    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        await trio.sleep(1)
        if then == "accepts":
            await client.send(frame(TEXT, b"hello"))
        elif then == "the client leaves":
            client.conn.close()
        await trio.sleep(1)
    assert told == ["websocket.receive" if then == "accepts" else "websocket.disconnect"]


async def test_the_disconnect_of_another_client_is_a_failure_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    others: list[Send] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] != "/chat":
            await send(ACCEPT)
        for other in others:
            await other({"type": "websocket.send", "text": "news"})
        others.append(send)
        await receive()

    async with serving(handler(act)) as site:
        (await peer(site)).client.reset()
        await site.ended()
        client = await peer(site)
        assert (await client.closed())[0] == 1011
        early = await site.connect()
        assert (await early.get(HANDSHAKE)).status == 500
    assert [message for message in caplog.messages if "failed" in message] == ["GET / failed", "GET /chat failed"]


async def test_an_accept_that_fails_leaves_no_reference_cycle() -> None:
    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with pytest.raises(ResponseError, match="has not offered"):
            await send({**ACCEPT, "subprotocol": "nobody's"})
        await send({"type": "websocket.close"})

    async with serving(handler(act)) as site:

        async def refuse() -> None:
            client = await site.connect()
            await client.send(HANDSHAKE)
            assert (await client.response()).status == 403
            client.conn.close()
            await site.ended()
            await wait_all_tasks_blocked()

        await assert_leaves_no_garbage(refuse)


async def test_an_error_that_the_application_handles_keeps_its_traceback() -> None:
    """The error by which `websockets` refuses a frame comes in the middle of the accept."""
    handled = ValueError("the application's")

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            raise handled
        except ValueError:
            await send(ACCEPT)
            assert (await receive())["type"] == "websocket.disconnect"

    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE + frame(TEXT, b"a", mask=b""))
        await client.end()
        client.conn.close()
        await site.ended()
    assert handled.__traceback__ is not None


@pytest.mark.parametrize("none", [{}, {"subprotocol": None}, {"subprotocol": ""}], ids=["missing", "None", "empty"])
async def test_an_application_need_not_choose_a_subprotocol(none: dict[str, Any]) -> None:
    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({**ACCEPT, **none})

    async with serving(handler(act)) as site:
        client = await stranger(site)
        await client.open("/", ["a", "b"])
        assert client.subprotocol is None
        assert await client.closed() == (1000, "")


async def test_a_close_without_a_code_has_the_code_1000() -> None:
    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(ACCEPT)
        await send({"type": "websocket.close"})
        assert (await receive())["code"] == 1000

    async with serving(handler(act)) as site:
        client = await peer(site)
        assert await client.closed() == (1000, "")


async def test_after_a_close_in_place_of_an_accept_nothing_can_be_sent(autojump_clock: MockClock) -> None:
    refused: list[str] = []

    async def act(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.close"})
        for message in (ACCEPT, {"type": "websocket.close"}):
            with pytest.raises(ResponseError, match="the websocket was denied"):
                await send(message)
            refused.append(message["type"])

    async with serving(handler(act)) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        assert (await client.response()).status == 403
        await client.conn.aclose()
        await all_ended(site)
    assert refused == ["websocket.accept", "websocket.close"]
