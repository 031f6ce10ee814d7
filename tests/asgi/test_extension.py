"""The `deadlined` extension: an application moves the deadlines of its own request."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import h11
import pytest
import trio
from trio.testing import MockClock

from deadlined import statistics
from deadlined.asgi.handler import Message, Receive, Scope, Send
from deadlined.http import Phase, Reason, Timeouts
from tests.support.serving import GET, Answer, Client, Served, hello, post, say, serving

pytestmark = pytest.mark.usefixtures("parser")

INF = math.inf


def by_attribute(scope: Scope, name: str) -> Any:
    return getattr(scope["extensions"]["deadlined"], name)


def by_key(scope: Scope, name: str) -> Any:
    return scope["extensions"]["deadlined"][name]


Lookup = Callable[[Scope, str], Any]
either_way = pytest.mark.parametrize("lookup", [by_attribute, by_key])


async def timed_answer(client: Client) -> tuple[float, Answer]:
    """Return how long the next response takes, and the response."""
    begun = trio.current_time()
    answer = await client.answer()
    return trio.current_time() - begun, answer


@either_way
async def test_the_handler_deadline_is_answered_504_at_its_time(lookup: Lookup, autojump_clock: MockClock) -> None:
    cancelled: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        lookup(scope, "set_handler_deadline")(trio.current_time() + 3)
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(trio.current_time())

    async with serving(app) as served, served.client() as client:
        begun = trio.current_time()
        await client.send(GET)
        taken, answer = await timed_answer(client)
        assert (taken, answer.status) == (3.0, 504)
        assert await client.at_end()
        record = await served.ended()
    assert cancelled == [begun + 3]
    assert (record.reason, record.lateness) == (Reason.HANDLER_TIMEOUT, 0.0)


async def test_a_deep_copy_of_a_scope_belongs_to_the_same_request(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        copied = copy.deepcopy(dict(scope))
        assert {**copied, "extensions": None} == {**scope, "extensions": None}
        copied["extensions"]["deadlined"].set_handler_deadline(trio.current_time() + 3)
        await trio.sleep_forever()

    async with serving(app) as served, served.client() as client:
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.status) == (3.0, 504)


async def test_a_handler_deadline_that_has_passed_is_504_now(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"].set_handler_deadline(-INF)
        await trio.sleep_forever()

    async with serving(app) as served, served.client() as client:
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.status) == (0.0, 504)


async def test_the_handler_deadline_within_a_response_cuts_it_short(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send, b"half", more=True)
        scope["extensions"]["deadlined"].set_handler_deadline(trio.current_time() + 3)
        await trio.sleep_forever()

    async with serving(app) as served:
        begun = trio.current_time()
        with pytest.raises((trio.BrokenResourceError, h11.RemoteProtocolError)):
            await served.ask(GET)
        assert trio.current_time() == begun + 3
        assert (await served.ended()).reason is Reason.HANDLER_TIMEOUT


@pytest.mark.parametrize("when", [60.0, INF])
async def test_the_handler_deadline_can_be_moved_beyond_the_servers(when: float, autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"].set_handler_deadline(trio.current_time() + when)
        await trio.sleep(50)
        await say(send, b"late")

    async with serving(app, timeouts=Timeouts(handler=5.0)) as served, served.client() as client:
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.body) == (50.0, b"late")


@pytest.mark.parametrize("pause", [0.0, 40.0])
async def test_a_handler_deadline_of_an_earlier_request_does_not_cut_a_later_one(
    pause: float, autojump_clock: MockClock
) -> None:
    """The timer belongs to the connection and stays pending between two requests."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            scope["extensions"]["deadlined"].set_handler_deadline(trio.current_time() + 5)
        else:
            await trio.sleep(100)
        await say(send, b"done")

    async with serving(app) as served, served.client() as client:
        assert (await client.ask(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n")).body == b"done"
        await trio.sleep(pause)
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.body) == (100.0, b"done")


async def test_each_request_has_the_whole_of_the_handlers_time(autojump_clock: MockClock) -> None:
    pauses = [4.0, 4.0, 0.0, 6.0]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(pauses.pop(0))
        await say(send)

    async with serving(app, timeouts=Timeouts(handler=5.0, idle=60.0)) as served, served.client() as client:
        for idle in (0.0, 50.0, 2.0):
            assert (await client.ask(GET)).status == 200
            await trio.sleep(idle)
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.status) == (5.0, 504)


async def test_between_requests_the_handlers_timer_is_an_entry_that_is_not_filed_again(
    autojump_clock: MockClock,
) -> None:
    async with serving(hello, timeouts=Timeouts(handler=5.0)) as served, served.client() as client:
        await client.ask(GET)
        before = statistics()
        for _ in range(100):
            await client.ask(GET)
        after = statistics()
    assert before is not None
    assert after is not None
    assert after.poller.timers.stored == before.poller.timers.stored
    assert after.poller.timers.zombies == 0
    assert after.poller.timers.fired == before.poller.timers.fired


async def test_a_moved_deadline_is_the_requests_and_not_the_connections(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            scope["extensions"]["deadlined"].set_handler_deadline(INF)
            await say(send)
        else:
            await trio.sleep_forever()

    async with serving(app, timeouts=Timeouts(handler=5.0)) as served, served.client() as client:
        assert (await client.ask(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n")).status == 200
        await client.send(GET)
        taken, answer = await timed_answer(client)
    assert (taken, answer.status) == (5.0, 504)


@either_way
async def test_the_deadline_is_when_the_application_must_be_done(lookup: Lookup, autojump_clock: MockClock) -> None:
    seen: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(lookup(scope, "deadline") - trio.current_time())
        lookup(scope, "set_handler_deadline")(trio.current_time() + 8)
        seen.append(lookup(scope, "deadline") - trio.current_time())
        await say(send)

    async def ask(served: Served) -> list[float]:
        seen.clear()
        await served.ask(GET)
        return seen

    async with serving(app, timeouts=Timeouts(handler=5.0)) as served:
        assert await ask(served) == [5.0, 8.0]
    async with serving(app) as served:
        assert await ask(served) == [INF, 8.0]


@either_way
async def test_the_read_deadline_is_a_disconnect_and_408(lookup: Lookup, autojump_clock: MockClock) -> None:
    seen: list[tuple[float, Message]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun = trio.current_time()
        lookup(scope, "set_read_deadline")(begun + 2)
        while not seen or seen[-1][1]["type"] == "http.request":
            message = await receive()
            seen.append((trio.current_time() - begun, message))

    async with serving(app) as served, served.client() as client:
        await client.send(post(6, b"one"))
        taken, answer = await timed_answer(client)
        assert (taken, answer.status) == (2.0, 408)
        record = await served.ended()
    assert seen == [
        (0.0, {"type": "http.request", "body": b"one", "more_body": True}),
        (2.0, {"type": "http.disconnect"}),
    ]
    assert (record.reason, record.phase) == (Reason.READ_TIMEOUT, Phase.BODY)


async def test_the_read_deadline_can_be_set_while_the_body_is_awaited(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(1)
            scope["extensions"]["deadlined"].set_read_deadline(trio.current_time() + 2)

    async with serving(app) as served, served.client() as client:
        await client.send(post(6))
        taken, answer = await timed_answer(client)
        assert (taken, answer.status) == (3.0, 408)
        assert await client.at_end()
        assert (await served.ended()).reason is Reason.READ_TIMEOUT


async def test_the_read_deadline_can_be_moved_beyond_the_servers(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"].set_read_deadline(INF)
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await say(send, body)

    async with serving(app, timeouts=Timeouts(body_grace=1.0, read=2.0)) as served, served.client() as client:
        await client.send(post(6, b"one"))
        await trio.sleep(100)
        await client.send(b"two")
        assert (await client.answer()).body == b"onetwo"


@either_way
async def test_the_write_deadline_cancels_the_application_and_resets(lookup: Lookup, autojump_clock: MockClock) -> None:
    taken: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun = trio.current_time()
        lookup(scope, "set_write_deadline")(begun + 4)
        try:
            while True:
                await say_more(send)
        finally:
            taken.append(trio.current_time() - begun)

    started = False

    async def say_more(send: Send) -> None:
        nonlocal started
        if not started:
            started = True
            await say(send, b"", more=True)
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})

    async with serving(app) as served, served.client() as client:
        await client.send(GET)
        record = await served.ended()
        with pytest.raises(trio.BrokenResourceError):
            while await client.receive():
                pass
    assert taken == [4.0]
    assert (record.reason, record.lateness) == (Reason.WRITE_TIMEOUT, 0.0)


async def test_the_write_deadline_can_be_moved_beyond_the_servers(autojump_clock: MockClock) -> None:
    size = 16 << 20

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"].set_write_deadline(INF)
        await say(send, bytes(size))

    async with (
        serving(app, timeouts=Timeouts(write_grace=1.0, write_min_rate=INF)) as served,
        served.client() as client,
    ):
        await client.send(GET)
        await trio.sleep(100)
        assert len((await client.answer()).body) == size


@pytest.mark.parametrize("name", ["set_read_deadline", "set_write_deadline", "set_handler_deadline"])
async def test_nan_is_no_deadline(name: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ValueError, match="NaN"):
            scope["extensions"]["deadlined"][name](math.nan)
        await say(send, b"unharmed")

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"unharmed"


async def test_a_moved_handler_deadline_is_seen_from_outside(autojump_clock: MockClock) -> None:
    left: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"].set_handler_deadline(trio.current_time() + 8)
        left.append(served.server.connections()[0].left)
        await say(send)

    async with serving(app, timeouts=Timeouts(handler=5.0)) as served:
        await served.ask(GET)
    assert left == [8.0]
