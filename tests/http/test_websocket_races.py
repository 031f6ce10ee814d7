"""Websockets whose client leaves in the turn of the event loop in which the application acts: nothing is left."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Disconnected, Reason
from tests.http.test_websocket_deadlines import accepted, site_of
from tests.support.http import only
from tests.support.websocket import ACCEPT, CONNECT, HANDSHAKE, TEXT, frame, raw


class Mess(BaseException):
    """Not an Exception: it ends the task."""


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_client_that_is_gone_when_another_task_accepts_leaves_nothing(
    cancels: bool, autojump_clock: MockClock
) -> None:
    errors: list[BaseException] = []
    ready, go = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def accept() -> None:
            ready.set()
            await go.wait()
            client.reset()
            try:
                await send(ACCEPT)
                await send({"type": "websocket.send", "text": "x"})
            except BaseException as error:
                errors.append(error)
                raise

        assert await receive() == CONNECT
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)

    async with site_of(app, only(), cancel_on_disconnect=cancels) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        await ready.wait()
        go.set()
        await wait_all_tasks_blocked()
        assert await site.reason() is Reason.CLIENT_RESET
    assert [type(error) for error in errors] == [Disconnected]


@pytest.mark.parametrize("how", ["reset", "eof"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_a_task_that_is_lost_with_its_client_is_counted_once(
    how: str, full: bool, late: bool, autojump_clock: MockClock
) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        if late:
            await trio.sleep(1)
        if how == "reset":
            client.reset()
        else:
            client.conn.socket.shutdown(1)
        raise Mess

    async with site_of(accepted(act), only()) as site:
        client = await raw(site)
        if full:
            await client.send(frame(TEXT, b"x") * 100)
        await site.ended()
        await wait_all_tasks_blocked()
        assert site.server.statistics().background == 0
