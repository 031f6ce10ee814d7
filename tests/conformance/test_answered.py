"""A handler that has given the whole response: nothing that it does afterwards takes any of it back, and the end of its
client is not its own."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio

from deadlined import BrokenResourceError
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Disconnected, Exchange, Phase, Reason, ResponseError
from tests.support.conformance import Loop, on_asyncio, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client, answer, post

# a piece of so many bytes waits for nobody, and does not fit into the kernel's buffers if both are NARROW
BIG = bytes(60_000)
NARROW = 4096

After = Callable[[Loop], Awaitable[None]]
Respond = Callable[[], Coroutine[Any, Any, None]]
Elsewhere = Callable[[Loop, Respond], Awaitable[None]]


def answering(loop: Loop, after: After, ends: list[str] | None = None) -> Callable[[Exchange], Awaitable[None]]:
    """Return a handler that answers with BIG to the first request, and goes on with `after`."""

    async def handler(exchange: Exchange) -> None:
        if exchange.request.target != b"/":
            await answer(exchange)
            return
        exchange.start(200, [(b"content-length", b"%d" % len(BIG))])
        await exchange.send(BIG, False)
        await after(loop)
        if ends is not None:
            ends.append("returned")

    return handler


async def fail(loop: Loop) -> None:
    raise LookupError


async def fail_later(loop: Loop) -> None:
    await loop.sleep(1)
    raise LookupError


async def work(loop: Loop) -> None:
    await loop.sleep(5)


async def is_waited_for(site: Site) -> None:
    """Wait until the response is blocked by the client, which does not read."""
    await site.until(lambda: site.server.statistics().phases == {Phase.WRITE: 1})


async def next_is_served(client: Client) -> None:
    await client.send(GET.replace(b" / ", b" /next "))
    assert (await client.response()).body == b"hello"


@on_each_loop
@pytest.mark.parametrize("after", [fail, fail_later])
async def test_a_failure_loses_nothing(loop: Loop, after: After, caplog: pytest.LogCaptureFixture) -> None:
    async with site_of(loop, answering(loop, after), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await loop.sleep(2)
        assert (await client.response()).body == BIG
        await next_is_served(client)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == ["GET / failed"]


@on_each_loop
async def test_the_handlers_deadline_cuts_the_handler_alone(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[str] = []
    async with site_of(loop, answering(loop, work, ends), send_buffer=NARROW, handler=2) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await is_waited_for(site)
        await loop.sleep(3)
        assert (await client.response()).body == BIG
        await next_is_served(client)
        await loop.sleep(5)
    assert ends == []
    assert "GET /: cancelled after its response, by the handler deadline" in caplog.messages


@on_each_loop
async def test_a_client_that_has_ended_its_side_ends_no_background_work(loop: Loop) -> None:
    ends: list[str] = []
    async with site_of(loop, answering(loop, work, ends), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await is_waited_for(site)
        client.conn.shutdown_write()
        assert (await client.response()).body == BIG
        await site.until(lambda: ends)


@on_each_loop
async def test_a_client_that_resets_before_it_has_read_all_ends_no_background_work(loop: Loop) -> None:
    ends: list[str] = []
    closed = loop.event()

    async def wait(_: Loop) -> None:
        await closed.wait()

    async with site_of(loop, answering(loop, wait, ends), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await is_waited_for(site)
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        closed.set()
        await site.until(lambda: ends)


@on_each_loop
async def test_a_client_that_does_not_read_ends_no_background_work(loop: Loop) -> None:
    ends: list[str] = []
    grace: dict[str, Any] = {"write_grace": 2.0, "write_min_rate": math.inf}
    async with site_of(loop, answering(loop, work, ends), send_buffer=NARROW, **grace) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        await site.until(lambda: ends)


@on_each_loop
async def test_a_client_that_has_ended_its_side_is_told_that_the_handler_is_late(loop: Loop) -> None:
    """Its deadline is sooner than what a client that has left would leave it."""

    async def handler(exchange: Exchange) -> None:
        await loop.forever()

    async with site_of(loop, handler, handler=0.5) as (site, _):
        client = await site.connect()
        await client.send(GET)
        client.conn.shutdown_write()
        assert (await client.response()).status == 504
        assert await site.reason() is Reason.HANDLER_TIMEOUT


# a send that was given up before


async def send_and_give_up(loop: Loop, exchange: Exchange) -> int:
    """Send pieces until one waits for the client, and give that up. Return how many bytes they have."""
    sent = 0
    while True:
        sent += len(BIG)
        with anyio.move_on_after(loop.seconds(1)) as scope:
            await exchange.send(BIG, True)
        if scope.cancelled_caught:
            return sent


@on_each_loop
@pytest.mark.parametrize("works", [False, True], ids=["returns", "works on"])
async def test_a_body_that_only_the_end_delimits_is_whole_although_a_send_was_given_up(loop: Loop, works: bool) -> None:
    sent: list[int] = []
    all_read = loop.event()

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        sent.append(await send_and_give_up(loop, exchange))
        await all_read.wait()
        await exchange.send(b"end", True)
        await exchange.send(b"", False)
        if works:
            await loop.forever()

    async with site_of(loop, handler, send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        await site.until(lambda: sent)
        received = await client.receive()
        start = received.index(b"\r\n\r\n") + 4
        while len(received) < start + sent[0]:
            received += await client.receive()
        all_read.set()
        # a reset would be an error
        assert await client.rest() == b"end"
        assert await site.reason() is Reason.DONE


@on_each_loop
async def test_a_last_piece_that_was_given_up_is_not_reset_once_it_has_left(loop: Loop) -> None:
    body = bytes(300_000)

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        # so no length is sent
        await exchange.send(b"", True)
        with anyio.move_on_after(loop.seconds(1)) as scope:
            await exchange.send(body, False)
        assert scope.cancelled_caught
        await loop.forever()

    async with site_of(loop, handler, send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        await is_waited_for(site)
        await loop.sleep(2)
        assert (await client.rest()).endswith(b"\r\n\r\n" + body)
        assert await site.reason() is Reason.DONE


@on_each_loop
@pytest.mark.parametrize("leaves", [False, True], ids=["is late", "left alone"])
async def test_a_response_that_was_completed_after_a_send_was_given_up_is_given(loop: Loop, leaves: bool) -> None:
    sent: list[int] = []
    ends: list[str] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        given_up = await send_and_give_up(loop, exchange)
        # pending pieces leave without a send that waits
        exchange.try_send(b"end", False)
        sent.append(given_up + 3)
        await loop.sleep(5)
        ends.append("returned")

    async with site_of(loop, handler, send_buffer=NARROW, handler=math.inf if leaves else 5) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await site.until(lambda: sent)
        if leaves:
            client.reset()
            assert await site.reason() is Reason.CLIENT_RESET
            await site.until(lambda: ends)
        else:
            await loop.sleep(6)
            assert len((await client.response()).body) == sent[0]
            assert not ends


@on_each_loop
async def test_a_last_piece_that_was_given_up_is_taken_back_if_the_handler_fails(loop: Loop) -> None:
    """Its sender has given up on the client, which would be sent the rest for as long as it reads."""

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        with anyio.fail_after(loop.seconds(1)):
            await exchange.send(bytes(300_000), False)

    async with site_of(loop, handler, send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        assert await site.reason() is Reason.SERVER_ERROR
        with pytest.raises(BrokenResourceError):
            await client.rest()


# tasks that still receive


@on_asyncio
async def test_a_task_that_was_left_in_a_receive_is_told(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    left: list[asyncio.Task[bytes]] = []

    async def handler(exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            left.append(asyncio.ensure_future(exchange.receive()))
            await loop.step()
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get(post(10))).status == 200
        await loop.settle()
        await client.send(bytes(10))
        await next_is_served(client)
        assert isinstance(left[0].exception(), Disconnected)
    assert not caplog.records


@on_asyncio
async def test_a_task_that_was_left_waiting_for_the_end_of_the_client_does_not_read_beside_the_connection(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[asyncio.Task[None]] = []

    async def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/":
            left.append(asyncio.ensure_future(exchange.wait_disconnected()))
            await loop.step()
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 200
        await next_is_served(client)
        assert left[0].exception() is None
    assert not caplog.records


@on_each_loop
@pytest.mark.parametrize("fields", [(), (b"expect: 100-continue",)], ids=["incomplete", "not invited"])
async def test_an_application_of_asgi_is_told_that_it_has_answered(loop: Loop, fields: tuple[bytes, ...]) -> None:
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def listen() -> None:
            while True:
                kind = (await receive())["type"]
                told.append(kind)
                if kind == "http.disconnect":
                    return

        async with loop.tasks() as tasks:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"he", "more_body": True})
            listening = tasks.start(listen)
            await loop.sleep(1)
            await send({"type": "http.response.body", "body": b"re"})
            await listening.wait()

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        response = await client.get(post(10, *fields) + (b"" if fields else b"123"))
        assert response.body == b"here"
        await site.until(lambda: "http.disconnect" in told)


@on_asyncio
async def test_a_task_that_moves_its_deadline_does_not_keep_one_that_was_left_in_a_receive(loop: Loop) -> None:
    left: list[asyncio.Task[Any]] = []

    async def handler(exchange: Exchange) -> None:
        async def move() -> None:
            for _ in range(100):
                exchange.set_read_deadline(loop.after(1000))
                await loop.step()

        if exchange.request.method == "POST":
            left.append(asyncio.ensure_future(exchange.receive()))
            left.append(asyncio.ensure_future(move()))
            await loop.step()
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        assert (await client.get(post(10))).status == 200
        await loop.settle()
        await client.send(bytes(10))
        await next_is_served(client)
        assert isinstance(left[0].exception(), Disconnected)
        await left[1]


@on_each_loop
async def test_an_application_of_asgi_is_told_although_it_moves_its_deadline_then(loop: Loop) -> None:
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with loop.tasks() as tasks:
            listening = tasks.start(receive)
            await loop.settle()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"sent"})
            scope["extensions"]["deadlined"].set_read_deadline(loop.after(1000))
            await listening.wait()
            told.append(listening.result["type"])

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        due = loop.after(100)
        client = await site.connect()
        await client.send(post(10))
        assert (await client.response("POST")).body == b"sent"
        await site.until(lambda: told)
        assert not loop.is_virtual or loop.after(0) < due
    assert told == ["http.disconnect"]


# the last piece comes from elsewhere than the handler's own steps


async def in_a_child(loop: Loop, respond: Respond) -> None:
    async with loop.tasks() as tasks:
        await tasks.start(respond).succeeds()
        await loop.forever()


async def in_a_child_after_a_wait(loop: Loop, respond: Respond) -> None:
    async def wait_and_respond() -> None:
        await loop.sleep(1)
        await respond()

    await in_a_child(loop, wait_and_respond)


async def from_a_thread(loop: Loop, respond: Respond) -> None:
    await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(respond))
    await loop.forever()


@on_each_loop
@pytest.mark.parametrize(
    ("fields", "last"),
    [([], b""), ([], b"more"), ([(b"content-length", b"4")], b"")],
    ids=["empty", "with bytes", "empty, after all was sent"],
)
@pytest.mark.parametrize("elsewhere", [in_a_child, in_a_child_after_a_wait, from_a_thread])
async def test_the_connection_goes_on_once_another_task_has_given_the_last_piece(
    loop: Loop, elsewhere: Elsewhere, fields: list[tuple[bytes, bytes]], last: bytes
) -> None:
    async def handler(exchange: Exchange) -> None:
        async def respond() -> None:
            exchange.start(200, fields)
            await exchange.send(b"some", True)
            await exchange.send(last, False)

        await elsewhere(loop, respond)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        for _ in range(2):
            assert (await client.get()).body == b"some" + last
        await site.until(lambda: site.server.statistics().background == 2)


@on_each_loop
async def test_an_event_stream_of_asgi_that_has_ended_does_not_hold_the_connection(loop: Loop) -> None:
    """As sse-starlette does: a child sends, another receives, and the background work comes after both."""
    done: list[None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def stream() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"event", "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async with loop.tasks() as tasks:
            listening = tasks.start(receive)
            await tasks.start(stream).succeeds()
            listening.cancel()
        await loop.sleep(50)
        done.append(None)

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        for _ in range(2):
            assert (await client.get()).body == b"event"
        assert not done
        await site.until(lambda: len(done) == 2)


# a listener beside the task that sends, as Django has one: who ends first, ends the other

LONG = bytes(400_000)


async def send_long(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LONG))]})
    await send({"type": "http.response.body", "body": LONG})


@on_each_loop
@pytest.mark.parametrize("late", [False, True], ids=["receives before", "receives after"])
@pytest.mark.parametrize("request_bytes", [GET, post(10) + b"123"], ids=["complete", "incomplete"])
async def test_a_listener_is_told_that_the_response_is_complete_once_its_last_send_has_returned(
    loop: Loop, request_bytes: bytes, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        one_ended = loop.event()

        async def respond() -> None:
            await send_long(send)
            ends.append("sent")
            one_ended.set()

        async def listen() -> None:
            ends.append((await receive())["type"])
            one_ended.set()

        await receive()
        async with loop.tasks() as tasks:
            if not late:
                tasks.start(listen)
                await loop.settle()
            tasks.start(respond)
            await loop.settle()
            if late:
                tasks.start(listen)
            await one_ended.wait()
        raise LookupError

    async with site_of(loop, AsgiHandler(app), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(request_bytes)
        await is_waited_for(site)
        await loop.sleep(1)
        assert ends == []
        assert (await client.response()).body == LONG
    assert ends[0] == "sent"


@on_each_loop
@pytest.mark.parametrize("resets", [False, True], ids=["send given up", "client gone"])
async def test_a_listener_is_told_if_the_last_send_does_not_wait_for_the_client_any_more(
    loop: Loop, resets: bool
) -> None:
    ends: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with loop.tasks() as tasks:
            listening = tasks.start(receive)
            responding = tasks.start(send_long, send)
            await loop.sleep(1)
            assert (listening.pending, responding.pending) == (True, True)
            if resets:
                client.reset()
            else:
                responding.cancel()
            await listening.wait()
            ends.append(listening.result["type"])

    async with site_of(loop, AsgiHandler(app), send_buffer=NARROW) as (site, _):
        client = await site.connect(receive_buffer=NARROW)
        await client.send(GET)
        await site.until(lambda: ends)
    assert ends == ["http.disconnect"]


# several sends at once


@on_each_loop
async def test_a_send_of_asgi_fails_where_it_is_awaited(loop: Loop) -> None:
    """So one that fails among many that were begun together keeps no other from being sent."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        wrong = send({"type": "http.response.nonsense"})
        last = send({"type": "http.response.body", "body": b"sent"})
        with pytest.raises(RuntimeError, match="nonsense"):
            await wrong
        await last

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        assert (await (await site.connect()).get()).body == b"sent"


@on_each_loop
async def test_a_send_of_asgi_that_fails_is_a_coroutine_as_any_other(loop: Loop) -> None:
    async def app(scope: Scope, receive: Receive, send: Any) -> None:
        found: list[BaseException] = []
        wrong = {"type": "http.response.nonsense"}
        if loop.is_trio:
            with pytest.raises(ExceptionGroup) as caught:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send, wrong)
            found += caught.value.exceptions
        else:
            sends = send(wrong), asyncio.create_task(send(wrong))
            found += await asyncio.gather(*sends, return_exceptions=True)
        assert {type(error) for error in found} == {ResponseError}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"sent"})

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        assert (await (await site.connect()).get()).body == b"sent"
