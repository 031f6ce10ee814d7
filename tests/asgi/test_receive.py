"""What `receive` gives an application: the body, and the disconnect."""

from __future__ import annotations

import pytest
import trio

from deadlined.asgi.handler import Message, Receive, Scope, Send
from deadlined.http import Limits, Reason
from tests.support.serving import DISCONNECT, GET, echo, failures, post, say, serving, whole_body

pytestmark = pytest.mark.usefixtures("parser")


async def test_a_request_without_a_body_is_one_empty_message() -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        seen.append(await receive())
        await say(send)

    async with serving(app) as served:
        await served.ask(GET)
    assert seen == [{"type": "http.request", "body": b"", "more_body": False}]


async def test_the_body_comes_in_pieces_as_they_arrive() -> None:
    pieces: list[Message] = []
    arrived = trio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        pieces.append(await receive())
        arrived.set()
        while pieces[-1]["more_body"]:
            pieces.append(await receive())
        await say(send)

    async with serving(app) as served, served.client() as client:
        await client.send(post(6, b"one"))
        await arrived.wait()
        assert pieces == [{"type": "http.request", "body": b"one", "more_body": True}]
        await client.send(b"two")
        assert (await client.answer()).status == 200
    assert b"".join(piece["body"] for piece in pieces) == b"onetwo"
    assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]


async def test_a_chunked_body_is_joined_from_its_chunks() -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving(echo) as served:
        assert (await served.ask(head + b"3\r\none\r\n4\r\nfour\r\n0\r\n\r\n")).body == b"onefour"


async def test_a_client_that_waits_for_100_is_invited_when_the_body_is_asked_for() -> None:
    async with serving(echo) as served, served.client() as client:
        await client.send(post(3, b"", b"expect: 100-continue"))
        assert await client.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"yes")
        assert (await client.answer()).body == b"yes"


async def test_a_client_that_leaves_within_its_body_is_a_disconnect() -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())
        seen.append(await receive())

    async with serving(app) as served:
        async with served.client() as client:
            await client.send(post(6, b"one"))
        record = await served.ended()
    assert seen == [{"type": "http.request", "body": b"one", "more_body": True}, DISCONNECT, DISCONNECT]
    assert record.reason is Reason.CLIENT_CLOSED


@pytest.mark.parametrize("request_", [GET, post(3, b"all")], ids=["without a body", "after the body"])
async def test_a_client_that_leaves_while_the_application_works_is_a_disconnect(request_: bytes) -> None:
    seen: list[Message] = []
    waiting = trio.Event()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        await whole_body(receive)
        waiting.set()
        seen.append(await receive())

    async with serving(app) as served:
        async with served.client() as client:
            await client.send(request_)
            await waiting.wait()
        record = await served.ended()
    assert seen == [DISCONNECT]
    assert record.reason is Reason.CLIENT_CLOSED


async def test_an_application_that_raises_because_its_client_left_is_not_logged_as_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await whole_body(receive)
        while (await receive())["type"] != "http.disconnect":
            pass
        await say(send)

    async with serving(app) as served:
        async with served.client() as client:
            await client.send(GET)
        await served.ended()
    assert not failures(caplog)


@pytest.mark.parametrize("request_", [GET, post(3, b"all"), post(3, b"")], ids=["no body", "read body", "unread body"])
async def test_after_the_response_there_is_only_a_disconnect(request_: bytes) -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        if not request_.endswith(b"\r\n\r\n") or request_ == GET:
            await whole_body(receive)
        await say(send, b"done")
        seen.append(await receive())

    async with serving(app) as served:
        assert (await served.ask(request_)).body == b"done"
        await served.ended()
    assert seen == [DISCONNECT]


async def test_waiting_for_the_disconnect_ends_with_the_response() -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            seen.append(await receive())

        await whole_body(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            await say(send, b"done")

    async with serving(app) as served, served.client() as client:
        for number in (1, 2):
            assert (await client.ask(GET)).body == b"done"
            await trio.testing.wait_all_tasks_blocked()
            assert seen == [DISCONNECT] * number
        assert served.server.statistics().accepted == 1


async def test_a_request_pipelined_while_waiting_for_the_disconnect_is_served() -> None:
    paths: list[str] = []
    watched = trio.Event()
    go_on = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await whole_body(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            watched.set()
            await go_on.wait()
            await say(send, scope["path"].encode())

    async with serving(app) as served, served.client() as client:
        await client.send(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n")
        await watched.wait()
        await client.send(b"GET /2 HTTP/1.1\r\nhost: a\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.01)
        go_on.set()
        assert [(await client.answer()).body, (await client.answer()).body] == [b"/1", b"/2"]
    assert paths == ["/1", "/2"]


async def test_many_requests_pipelined_while_waiting_for_the_disconnect_are_served() -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await whole_body(receive)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await say(send, b"x")

    async with serving(app, limits=Limits(max_head=200)) as served, served.client() as client:
        await client.send(GET * 50)
        assert [(await client.answer()).body for _ in range(50)] == [b"x"] * 50


async def test_many_tasks_may_wait_for_the_disconnect_at_once() -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            seen.append(await receive())

        await whole_body(receive)
        async with trio.open_nursery() as nursery:
            for _number in range(3):
                nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            await say(send, b"done")

    async with serving(app) as served, served.client() as client:
        assert (await client.ask(GET)).body == b"done"
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [DISCONNECT] * 3
        assert (await client.ask(GET)).body == b"done"


async def test_a_receive_that_is_cancelled_lets_the_next_one_have_its_turn() -> None:
    cancelled = trio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await receive()
        assert scope.cancelled_caught
        cancelled.set()
        await say(send, await whole_body(receive))

    async with serving(app) as served, served.client() as client:
        await client.send(post(3))
        await cancelled.wait()
        await client.send(b"all")
        assert (await client.answer()).body == b"all"


async def test_a_body_beyond_the_limit_is_413_and_a_disconnect() -> None:
    seen: list[Message] = []

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())

    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serving(app, limits=Limits(max_body=4)) as served:
        assert (await served.ask(head + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")).status == 413
    assert seen[-1] == DISCONNECT
