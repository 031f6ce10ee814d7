"""Context variables: a request sees those of the server's start and its own, and no others."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from deadlined.asgi.handler import App, Receive, Scope, Send
from tests.support.net import SERVER_NAME, certificates
from tests.support.serving import GET, say, serving

pytestmark = pytest.mark.usefixtures("parser")

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


async def at_once(_: Scope, receive: Receive, send: Send) -> None:
    """Answer with the name that is set, and set another one."""
    found = NAME.get()
    NAME.set("somebody")
    await say(send, found.encode())


async def after_a_sleep(scope: Scope, receive: Receive, send: Send) -> None:
    await trio.lowlevel.checkpoint()
    await at_once(scope, receive, send)
    await trio.lowlevel.checkpoint()


async def after_its_answer(_: Scope, receive: Receive, send: Send) -> None:
    await say(send, NAME.get().encode())
    await trio.lowlevel.checkpoint()
    NAME.set("somebody")


def in_a_plain_call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
    """Set the name before there is a coroutine."""
    found = NAME.get()
    NAME.set("somebody")
    return say(send, found.encode())


APPS = [at_once, after_a_sleep, after_its_answer, in_a_plain_call]


@pytest.mark.parametrize("app", APPS)
async def test_what_a_request_sets_is_not_seen_by_the_next_of_its_connection(app: App) -> None:
    async with serving(app) as served, served.client() as client:
        assert [(await client.ask(GET)).body for _ in range(3)] == [b"nobody"] * 3


@pytest.mark.parametrize("app", APPS)
async def test_what_a_request_sets_is_not_seen_by_one_that_was_pipelined_with_it(app: App) -> None:
    async with serving(app) as served, served.client() as client:
        await client.send(GET * 3)
        assert [(await client.answer()).body for _ in range(3)] == [b"nobody"] * 3


async def test_what_a_request_sets_is_not_seen_by_one_that_came_while_it_was_served() -> None:
    """The next request is in the kernel's buffer when this one is answered, so nothing waits."""
    asked = trio.Event()
    go_on = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await go_on.wait()
        await at_once(scope, receive, send)

    async with serving(app) as served, served.client() as client:
        await client.send(GET)
        await asked.wait()
        await client.send(GET)
        await wait_all_tasks_blocked()
        go_on.set()
        assert [(await client.answer()).body for _ in range(2)] == [b"nobody"] * 2


async def test_what_a_request_sets_is_not_seen_by_the_next_over_tls() -> None:
    async with (
        serving(at_once, ssl_context=certificates().server) as served,
        httpx.AsyncClient(verify=certificates().client, trust_env=False) as client,
    ):
        for _ in range(3):
            answer = await client.get(
                served.url, headers={"host": SERVER_NAME}, extensions={"sni_hostname": SERVER_NAME}
            )
            assert answer.text == "nobody"
        assert served.server.statistics().accepted == 1


async def test_what_a_request_sets_is_not_seen_by_another_connection() -> None:
    async with serving(at_once) as served:
        assert [(await served.ask(GET)).body for _ in range(3)] == [b"nobody"] * 3


async def test_a_request_sees_what_it_has_set_in_its_tasks_and_threads_too() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(NAME.get())

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        NAME.set("request")
        await trio.lowlevel.checkpoint()
        await look()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
        await trio.to_thread.run_sync(lambda: seen.append(NAME.get()))
        await say(send)

    async with serving(app) as served, served.client() as client:
        await client.ask(GET)
        await client.ask(GET)
    assert seen == ["request"] * 6


@pytest.mark.parametrize("app", APPS)
async def test_every_request_sees_what_was_there_when_the_server_began(app: App) -> None:
    token = NAME.set("main")
    async with serving(app) as served, served.client() as client:
        NAME.set("later")
        assert [(await client.ask(GET)).body for _ in range(3)] == [b"main"] * 3
    NAME.reset(token)
