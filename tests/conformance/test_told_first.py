"""Handlers of asyncio that wait for two tasks, one that receives and one that answers, as those of Quart and Django: a
cancellation would leave both running, so they are told by what they receive before they are cancelled."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deadlined import current_time
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import App, Receive, Scope, Send
from deadlined.http import Limits, Reason
from deadlined.http.policy import DISCONNECT_GRACE, DRAIN_NOTICE
from tests.support.conformance import Loop, on_asyncio, on_each_loop, on_loops
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, post
from tests.support.websocket import ACCEPT, HANDSHAKE

# more than the kernels hold
MUCH = bytes(8 << 20)
NARROW = 4096

# a second request that is longer than a head may be
PIPELINED = GET + b"GET / HTTP/1.1\r\nx: " + b"x" * 2000

Answer = Callable[[Scope, Send], Awaitable[None]]


class Seen:
    """What became of the application's tasks, and when."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answering = ""
        self.app = ""


async def never(scope: Scope, send: Send) -> None:
    await asyncio.Event().wait()


async def send_much(scope: Scope, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": MUCH, "more_body": True})
    await asyncio.Event().wait()


async def send_all_and_wait(scope: Scope, send: Send) -> None:
    """The listener waits for this send to return, which the complete response has told of its end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": MUCH})
    await asyncio.Event().wait()


async def accept_and_wait(scope: Scope, send: Send) -> None:
    await send(ACCEPT)
    await asyncio.Event().wait()


async def accept_with_a_deadline(scope: Scope, send: Send) -> None:
    await send(ACCEPT)
    extension = scope["extensions"]["deadlined"]
    extension.set_handler_deadline(current_time() + 0.5)
    await asyncio.Event().wait()


def two_tasks(seen: Seen, answer: Answer) -> App:
    """Return an application that runs `answer` beside a task that receives. Who ends first has the other one
    cancelled."""

    async def listen(receive: Receive) -> None:
        while not seen.told or not seen.told[-1].endswith(".disconnect"):
            seen.told.append((await receive())["type"])

    async def respond(scope: Scope, send: Send) -> None:
        try:
            await answer(scope, send)
        except asyncio.CancelledError:
            seen.answering = "cancelled"
            for _ in range(50):
                # a second cancellation would interrupt this
                await asyncio.sleep(0)
            seen.answering = "cleaned up"
            raise

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.create_task(listen(receive)), asyncio.create_task(respond(scope, send))]
        try:
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            seen.app = "returned"
        except asyncio.CancelledError:
            seen.app = "cancelled"
            raise

    return app


async def run_to_its_end(site: Site) -> None:
    """Let the deadline of a handler do it."""


async def drain(site: Site) -> None:
    site.server.shutdown()


async def cut(site: Site) -> None:
    site.server.shutdown()
    site.server.cut()


async def cancel(site: Site) -> None:
    site.serving.cancel()


End = Callable[[Site], Awaitable[None]]

# what the client sends, what answers it, how it ends, and by which timeouts
CASES: dict[str, tuple[bytes, Answer, End, dict[str, Any]]] = {
    "handler": (GET, never, run_to_its_end, {"handler": 2}),
    "handler, in a body": (post(10), never, run_to_its_end, {"handler": 2}),
    "handler, in a response": (GET, send_much, run_to_its_end, {"handler": 2}),
    "handler, behind a whole response": (GET, send_all_and_wait, run_to_its_end, {"handler": 2}),
    "handler, before more requests": (PIPELINED, never, run_to_its_end, {"handler": 2}),
    "handler, before the accept": (HANDSHAKE, never, run_to_its_end, {"handler": 2}),
    "handler, of a websocket": (HANDSHAKE, accept_with_a_deadline, run_to_its_end, {}),
    "write": (GET, send_much, run_to_its_end, {"write": 2}),
    "write_grace": (GET, send_much, run_to_its_end, {"write_grace": 2, "write_min_rate": math.inf}),
    "drain": (GET, never, drain, {"drain": 2}),
    "drain, in a body": (post(10), never, drain, {"drain": 2}),
    "drain, in a response": (GET, send_much, drain, {"drain": 2}),
    "drain, behind a whole response": (GET, send_all_and_wait, drain, {"drain": 2}),
    "drain, of a websocket": (HANDSHAKE, accept_and_wait, drain, {"drain": 0.5}),
    "cut": (GET, never, cut, {}),
    "cut, behind a whole response": (GET, send_all_and_wait, cut, {}),
    "cut, of a websocket": (HANDSHAKE, accept_and_wait, cut, {}),
    "cancel": (GET, never, cancel, {}),
    "cancel, in a body": (post(10), never, cancel, {}),
    "cancel, in a response": (GET, send_much, cancel, {}),
    "cancel, behind a whole response": (GET, send_all_and_wait, cancel, {}),
    "cancel, before more requests": (PIPELINED, never, cancel, {}),
    "cancel, of a websocket": (HANDSHAKE, accept_and_wait, cancel, {}),
}


@on_asyncio
@pytest.mark.parametrize("cancels", [True, False], ids=["cancels", "leaves alone"])
@pytest.mark.parametrize("case", CASES)
async def test_one_that_waits_for_two_tasks_learns_by_what_it_receives_that_it_is_cut(
    loop: Loop, case: str, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sent, answer, end, timeouts = CASES[case]
    seen = Seen()
    limits = Limits(max_head=1000)
    async with site_of(
        loop, AsgiHandler(two_tasks(seen, answer)), limits, NARROW, cancel_on_disconnect=cancels, **timeouts
    ) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(sent)
        await loop.sleep(0.1)
        await end(site)
        await site.until(lambda: seen.app)
        if end is not run_to_its_end:
            await site.serving.wait()
    kind = "websocket.disconnect" if sent is HANDSHAKE else "http.disconnect"
    assert (seen.told[-1], seen.app, seen.answering) == (kind, "returned", "cleaned up")
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    # the client has its whole response, so nothing else says that the deadline has passed
    is_late = case == "handler, behind a whole response"
    assert said == ["GET /: cancelled after its response, by the handler deadline"] * is_late


# how long it takes


@on_asyncio
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves its deadline"])
async def test_one_that_stays_is_cancelled_a_second_later_and_its_client_answered_in_time(
    loop: Loop, moves: bool
) -> None:
    ended: list[float] = []

    async def listen(scope: Scope, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        if moves:
            scope["extensions"]["deadlined"].set_handler_deadline(math.inf)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        listening = asyncio.create_task(listen(scope, receive))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(current_time())
            await listening

    async with site_of(loop, AsgiHandler(app), handler=100) as (site, _):
        client = await site.connect()
        await client.send(GET)
        due = loop.after(100)
        response = await client.response()
        assert (response.status, loop.is_at(due)) == (504, True)
        await site.until(lambda: ended)
        assert ended[0] >= due + DISCONNECT_GRACE
        if loop.is_virtual:
            assert ended[0] == pytest.approx(due + DISCONNECT_GRACE)


@on_each_loop
@pytest.mark.parametrize("where", ["in its own task", "in a task of its group", "nowhere"])
async def test_one_that_a_cancellation_reaches_is_cancelled_at_its_deadline(loop: Loop, where: str) -> None:
    """On asyncio a task of a group is told first: its handler may be of any kind."""
    ended: list[float] = []
    told: list[str] = []

    async def listen(receive: Receive) -> None:
        while True:
            told.append((await receive())["type"])
            if told[-1] == "http.disconnect":
                await loop.forever()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if where == "in its own task":
                await listen(receive)
            async with loop.tasks() as tasks:
                if where == "in a task of its group":
                    tasks.start(listen, receive)
                await loop.forever()
        finally:
            ended.append(current_time())

    async with site_of(loop, AsgiHandler(app), handler=100) as (site, _):
        client = await site.connect()
        await client.send(GET)
        due = loop.after(100)
        assert (await client.response()).status == 504
        await site.until(lambda: ended)
    is_told = where == "in a task of its group" and not loop.is_trio
    assert told == ["http.request"] * (where != "nowhere") + ["http.disconnect"] * is_told
    assert ended[0] >= due + DISCONNECT_GRACE * is_told
    if loop.is_virtual:
        assert ended[0] == pytest.approx(due + DISCONNECT_GRACE * is_told)


@on_each_loop
@pytest.mark.parametrize("listens", [False, True])
async def test_a_drain_that_is_over_leaves_no_handler_more_than_a_second(loop: Loop, listens: bool) -> None:
    """A handler that is told as one that catches its cancellation: both are cancelled a second later."""
    ends: list[float] = []

    async def wait(catches: bool) -> None:
        try:
            await loop.forever()
        finally:
            ends.append(current_time())
            if catches and not loop.is_trio:
                await wait(False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if listens and not loop.is_trio:
            await receive()
            listening = asyncio.ensure_future(receive())
            try:
                await wait(False)
            finally:
                listening.cancel()
        await wait(True)

    async with site_of(loop, AsgiHandler(app), drain=100) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await loop.sleep(1)
        due = loop.after(100)
        site.server.shutdown()
        await site.serving.wait()
        grace = 0.0 if loop.is_trio else DISCONNECT_GRACE
        assert current_time() >= due + grace
        if loop.is_virtual:
            assert [ends[-1], site.serving.ended] == [pytest.approx(due + grace)] * 2


# a client that resets before the task that receives has begun to


@on_asyncio
@pytest.mark.parametrize("sent", [GET, HANDSHAKE], ids=["GET", "websocket"])
@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("between", range(4))
async def test_one_whose_client_resets_as_it_begins_is_told_by_its_first_receive(
    loop: Loop, between: int, before: int, sent: bytes
) -> None:
    """It takes `before` steps before it starts its tasks, and that which receives takes `between` before it does."""
    seen = Seen()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        client.reset()
        for _ in range(before):
            await asyncio.sleep(0)
        receives = False

        async def receive_later() -> Any:
            nonlocal receives
            for _ in range(0 if receives else between):
                await asyncio.sleep(0)
            receives = True
            return await receive()

        await two_tasks(seen, never)(scope, receive_later, send)

    async with site_of(loop, AsgiHandler(app), Limits(max_running=1)) as (site, _):
        client = await site.connect()
        await loop.settle()
        await client.send(sent)
        assert await site.reason() is Reason.CLIENT_RESET
        await site.until(lambda: seen.app)
        assert (seen.app, seen.answering) == ("returned", "cleaned up")
        await site.until(lambda: not site.server.background)
        found = site.server.statistics().admission
        assert found is not None
        assert found.running == 0


# the end of the server, a moment after something else has ended the handler


@on_asyncio
@pytest.mark.parametrize("first", ["handler", "reset"])
async def test_one_that_was_cancelled_just_before_the_end_of_a_drain_cleans_up(loop: Loop, first: str) -> None:
    ends: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await loop.forever()
        finally:
            cancelled.set()
            # not by the clock: in real time the end may be late
            for _ in range(30):
                await asyncio.sleep(0)
            ends.append("clean")

    cancelled = asyncio.Event()
    async with site_of(loop, AsgiHandler(app), handler=1 if first == "handler" else math.inf) as (site, _):
        client = await site.connect()
        await loop.settle()
        await client.send(GET)
        await loop.sleep(0.1)
        if first == "reset":
            client.reset()
        await cancelled.wait()
        await cut(site)
        await site.serving.wait()
        assert ends == ["clean"]


@on_asyncio
@pytest.mark.parametrize("end", [cut, cancel])
@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("sent", [GET, post(10), HANDSHAKE], ids=["GET", "POST", "websocket"])
async def test_one_that_was_told_by_its_client_just_before_the_end_of_the_server_cleans_up(
    loop: Loop, sent: bytes, turns: int, end: End
) -> None:
    seen = Seen()
    answer = accept_and_wait if sent is HANDSHAKE else never
    async with site_of(loop, AsgiHandler(two_tasks(seen, answer))) as (site, _):
        client = await site.connect()
        await client.send(sent)
        await loop.sleep(0.1)
        await loop.settle()
        client.reset()
        for _ in range(turns):
            await asyncio.sleep(0)
        await end(site)
        await site.serving.wait()
        assert (seen.app, seen.answering) == ("returned", "cleaned up")


@on_loops("asyncio")
@pytest.mark.parametrize("drain_seconds", [0.5, DRAIN_NOTICE, 1.5])
async def test_a_websocket_that_the_drain_closes_as_it_ends_is_told(loop: Loop, drain_seconds: float) -> None:
    seen = Seen()
    handler = AsgiHandler(two_tasks(seen, accept_and_wait))
    async with site_of(loop, handler, drain=drain_seconds) as (site, _):
        client = await site.connect()
        await client.send(HANDSHAKE)
        await loop.sleep(0.5)
        await drain(site)
        await site.serving.wait()
        assert (seen.told[-1], seen.app, seen.answering) == ("websocket.disconnect", "returned", "cleaned up")


@on_loops("asyncio")
async def test_one_that_begins_as_the_server_ends_is_told(loop: Loop) -> None:
    seen = Seen()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await cut(site)
        await two_tasks(seen, never)(scope, receive, send)

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.serving.wait()
        assert (seen.app, seen.answering) == ("returned", "cleaned up")
