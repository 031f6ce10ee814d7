"""Connections that still have something to send when they end: it arrives, or the peer sees that it was cut."""

from __future__ import annotations

from typing import Any

import pytest

from deadlined import BrokenResourceError, current_time
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Disconnected, Exchange, Phase, Reason
from deadlined.http.policy import LINGER
from tests.support.conformance import Loop, Running, Tasks, in_virtual_time, on_each_loop
from tests.support.conformance_http import Site, cancel_workers, site_of
from tests.support.http import GET, Client, answer, hello, post
from tests.support.net import certificates
from tests.support.tls import ByHand
from tests.support.websocket import ACCEPT, HANDSHAKE, TEXT, closing, frame

BAD = b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"

# bytes that the kernel takes of the server, about, and those that it takes for a client that does not read
SEND_BUFFER, RECEIVE_BUFFER = 4096, 2048

# so little that the application does not wait
MESSAGE = bytes(60_000)

# messages that wait for the application; then nothing is read
INBOX = 64

# a server's close frame
CLOSED = b"\x88\x02\x03\xe8"

# seconds between two cancellations; no multiple of it is a deadline of a close
OFTEN = 0.75


async def connected(site: Site, tls: bool) -> Client | ByHand:
    client = await site.connect(receive_buffer=RECEIVE_BUFFER)
    if not tls:
        return client
    by_hand = ByHand(client.conn)
    await by_hand.shake_hands()
    return by_hand


async def spin(loop: Loop) -> None:
    while True:
        await loop.step()


async def rest(loop: Loop, tasks: Tasks, client: Client | ByHand) -> tuple[bytes, str]:
    """Read to the end, and return what has come and how it has ended. Virtual time stands still meanwhile: the kernel
    may take its time to open a small window."""
    spinning = tasks.start(spin, loop)
    data, end = b"", "eof"
    try:
        while piece := await client.receive():
            data += piece
    except BrokenResourceError:
        end = "reset"
    spinning.cancel()
    await spinning.wait()
    return data, end


async def says_much_and_closes(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send(ACCEPT)
    await send({"type": "websocket.send", "bytes": MESSAGE})
    await send({"type": "websocket.close"})


async def unread_websocket(site: Site, tls: bool = False) -> Client | ByHand:
    """Return a client that has not read what was sent before the close of its websocket."""
    client = await connected(site, tls)
    await client.send(HANDSHAKE)
    await site.until(lambda: site.requests or site.server.statistics().phases.get(Phase.WRITE))
    return client


async def ended_websocket(loop: Loop, site: Site, tls: bool = False) -> Client | ByHand:
    """Return such a client, which has not answered the close in time either: what is left is sent by the close of the
    connection."""
    client = await unread_websocket(site, tls)
    await site.until(lambda: site.requests)
    await loop.settle()
    assert not site.connections
    return client


@on_each_loop
@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_what_is_left_of_a_websocket_is_sent_whatever_task_is_cancelled(
    loop: Loop, tls: bool, times: int
) -> None:
    context = certificates().server if tls else None
    async with site_of(loop, AsgiHandler(says_much_and_closes), None, SEND_BUFFER, ssl_context=context, ws_close=0) as (
        site,
        tasks,
    ):
        client = await ended_websocket(loop, site, tls)
        for _ in range(times):
            assert cancel_workers(loop)
            await loop.settle()
        data, end = await rest(loop, tasks, client)
        assert end == "eof"
        assert data.partition(b"\r\n\r\n")[2].endswith(MESSAGE + CLOSED)
        client.conn.close()
        assert await site.reason() is Reason.CLOSE_TIMEOUT
        assert site.connections[0].sent == len(data)


@on_each_loop
@pytest.mark.parametrize("by", ["the server", "the client"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_websocket_ends_once_what_was_sent_before_its_close_was_read(loop: Loop, tls: bool, by: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if by == "the server":
            await says_much_and_closes(scope, receive, send)
            return
        await receive()
        await send(ACCEPT)
        await send({"type": "websocket.send", "bytes": MESSAGE})
        assert (await receive())["type"] == "websocket.disconnect"

    context = certificates().server if tls else None
    async with site_of(loop, AsgiHandler(app), None, SEND_BUFFER, ssl_context=context) as (site, tasks):
        client = await unread_websocket(site, tls)
        await client.send(closing(1000))
        await loop.settle()
        assert not site.requests
        data, end = await rest(loop, tasks, client)
        assert end == "eof"
        assert data.partition(b"\r\n\r\n")[2].endswith(MESSAGE + CLOSED)
        client.conn.close()
        assert await site.reason() is Reason.DONE


@on_each_loop
async def test_the_application_is_told_the_close_of_a_client_that_has_reset_the_connection_since(loop: Loop) -> None:
    told: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(ACCEPT)
        told.append(await receive())

    async with site_of(loop, AsgiHandler(app)) as (site, _):
        client = await site.connect()
        await client.send(HANDSHAKE)
        assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
        client.conn.socket.send(closing(1001, "bye"))
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        await site.until(lambda: told)
        assert told == [{"type": "websocket.disconnect", "code": 1001, "reason": "bye"}]


@on_each_loop
@pytest.mark.parametrize("early", [True, False], ids=["told before the answer", "told after it"])
@pytest.mark.parametrize(
    ("own", "ending"),
    [((4000, "mine"), (4000, "mine")), (None, (1001, "connection_age"))],
    ids=["by the application", "by the server"],
)
async def test_the_application_is_told_the_close_that_has_begun_whatever_its_client_answers(
    loop: Loop, own: tuple[int, str] | None, ending: tuple[int, str], early: bool
) -> None:
    told: list[tuple[int, str]] = []
    answered = loop.event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def note() -> None:
            message = await receive()
            told.append((message["code"], message["reason"]))

        await receive()
        await send(ACCEPT)
        if own is not None:
            await send({"type": "websocket.close", "code": own[0], "reason": own[1]})
        if early:
            await note()
        await answered.wait()
        await note()

    age: dict[str, Any] = {} if own else {"connection_age": 1.0}
    async with site_of(loop, AsgiHandler(app), **age) as (site, _):
        client = await site.connect()
        await client.send(HANDSHAKE)
        received = b""
        while not received.endswith(ending[1].encode()):
            received += await client.receive()
        await site.until(lambda: len(told) == early)
        await client.send(closing(1001, "bye"))
        assert await client.rest() == b""
        await site.reason()
        answered.set()
        await site.until(lambda: len(told) == 1 + early)
    assert set(told) == {ending}


@in_virtual_time
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_close_that_is_read_before_a_message_is_flushed_waits_for_its_client(loop: Loop, tls: bool) -> None:
    go = loop.event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(ACCEPT)
        await go.wait()
        # in one turn of the event loop: the receive lets the rest be read
        await send({"type": "websocket.send", "bytes": MESSAGE})
        while (await receive())["type"] != "websocket.disconnect":
            continue

    context = certificates().server if tls else None
    async with site_of(loop, AsgiHandler(app), None, SEND_BUFFER, ssl_context=context) as (site, tasks):
        client = await connected(site, tls)
        await client.send(HANDSHAKE)
        await loop.sleep(1)
        await client.send(frame(TEXT, b"x") * INBOX)
        await loop.sleep(1)
        await client.send(closing(1000))
        await loop.sleep(1)
        go.set()
        await loop.sleep(3 * LINGER)
        data, end = await rest(loop, tasks, client)
        assert end == "eof"
        assert data.partition(b"\r\n\r\n")[2].endswith(MESSAGE + CLOSED)
        client.conn.close()
        assert await site.reason() is Reason.DONE


@on_each_loop
@pytest.mark.parametrize("by", ["the server", "the client"])
async def test_the_handlers_deadline_leaves_a_close_that_has_begun(loop: Loop, by: str) -> None:
    ended: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(ACCEPT)
        await send({"type": "websocket.send", "bytes": MESSAGE})
        if by == "the server":
            await send({"type": "websocket.close"})
        else:
            assert (await receive())["type"] == "websocket.disconnect"
        scope["extensions"]["deadlined"]["set_handler_deadline"](loop.after(1))
        try:
            await loop.sleep(1000)
        finally:
            ended.append(True)

    async with site_of(loop, AsgiHandler(app), None, SEND_BUFFER) as (site, tasks):
        client = await unread_websocket(site)
        if by == "the client":
            await client.send(closing(1000))
        await site.until(lambda: ended)
        if by == "the server":
            await client.send(closing(1000))
        data, end = await rest(loop, tasks, client)
        assert end == "eof"
        assert data.partition(b"\r\n\r\n")[2].endswith(MESSAGE + CLOSED)
        client.conn.close()
        assert await site.reason() is Reason.DONE


@in_virtual_time
async def test_a_peer_that_does_not_read_the_rest_is_reset_whatever_task_is_cancelled(loop: Loop) -> None:
    async with site_of(loop, AsgiHandler(says_much_and_closes), None, SEND_BUFFER, ws_close=0) as (site, tasks):
        client = await ended_websocket(loop, site)
        began = current_time()
        while not site.connections:
            assert cancel_workers(loop)
            await loop.sleep(OFTEN)
        assert 0 <= current_time() - began - 2 * LINGER < OFTEN
        assert (await rest(loop, tasks, client))[1] == "reset"
        assert site.connections[0].reason is Reason.CLOSE_TIMEOUT


@in_virtual_time
async def test_a_cancelled_linger_is_not_prolonged(loop: Loop) -> None:
    async with site_of(loop, hello) as (site, _):
        client = await site.connect()
        assert (await client.get(BAD)).status == 400
        began = current_time()
        while not site.connections:
            assert cancel_workers(loop)
            await loop.sleep(OFTEN)
        assert 0 <= current_time() - began - LINGER < OFTEN


@on_each_loop
async def test_a_server_that_is_cancelled_does_not_make_the_rest_look_complete(loop: Loop) -> None:
    async with site_of(loop, AsgiHandler(says_much_and_closes), None, SEND_BUFFER, ws_close=0) as (site, tasks):
        client = await ended_websocket(loop, site)
        site.serving.cancel()
        await site.serving.wait()
        assert (await rest(loop, tasks, client))[1] == "reset"
        assert site.connections[0].reason is Reason.CLOSE_TIMEOUT


# a last response before all of the request has come


@on_each_loop
@pytest.mark.parametrize("how", ["returns", "is late"])
async def test_a_last_response_arrives_also_if_a_task_of_the_handler_still_receives(loop: Loop, how: str) -> None:
    """Nobody could read on to the end of the request, and a close with unread bytes would be a reset."""
    receiving: list[Running] = []

    async def receive_all(exchange: Exchange) -> None:
        while await exchange.receive():
            continue

    async def handler(exchange: Exchange) -> None:
        receiving.append(tasks.start(receive_all, exchange))
        await loop.settle()
        if how == "is late":
            await loop.forever()
        await answer(exchange)

    async with site_of(loop, handler, handler=5) as (site, tasks):
        client = await site.connect()
        await client.send(post(5_000_000) + bytes(10_000))
        assert (await client.response()).status == (200 if how == "returns" else 504)
        for _ in range(3):
            await client.send(bytes(10_000))
            await loop.settle()
        assert not site.connections
        client.conn.close()
        assert await site.reason() is (Reason.DONE if how == "returns" else Reason.HANDLER_TIMEOUT)
        (running,) = receiving
        await running.fails_with(Disconnected)


# the last response of the server itself


@on_each_loop
@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_refusal_arrives_whole_however_much_of_it_the_kernel_takes_at_once(
    loop: Loop, tls: bool, cancels: bool
) -> None:
    """The sizes differ by less than the length of a refusal, so that of some the kernel takes a part at once."""
    context = certificates().server if tls else None
    size = 0

    async def handler(exchange: Exchange) -> None:
        await answer(exchange, bytes(size))

    async with site_of(loop, handler, None, SEND_BUFFER, ssl_context=context) as (site, tasks):
        for number, size in enumerate(range(5000, 14_000, 100)):
            client = await connected(site, tls)
            await client.send(GET + BAD)
            await loop.settle()
            if cancels:
                cancel_workers(loop)
                await loop.settle()
            data, end = await rest(loop, tasks, client)
            assert end == "eof"
            head, _, body = data[size:].partition(b"HTTP/1.1 400 Bad Request\r\n")[2].partition(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % len(body) in head
            assert body.endswith(b"}\n")
            client.conn.close()
            assert await site.reason(number + 1) is Reason.PROTOCOL_ERROR
            assert site.connections[number].sent == len(data)
            assert site.requests[number].status == 200
