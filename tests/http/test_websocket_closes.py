"""The closing handshake of a websocket: who begins it, what waits before its closes, and when it is over."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from wsproto.events import BytesMessage, CloseConnection

from deadlined import current_time
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason
from tests.http.test_websocket_deadlines import accepted, site_of
from tests.support.http import only, serving
from tests.support.websocket import PING, TEXT, close_frame, closing, frame, handler, peer, raw

# more than the kernel takes for a client that does not read
MUCH = 512 * 1024


async def test_a_close_that_is_not_answered_ends_by_its_own_deadline(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1000})

    async with site_of(accepted(act), only(ws_close=5)) as site:
        client = await peer(site, answers=False)
        assert await client.closed() == (1000, "")
        ended = await site.ended()
        assert (ended.reason, ended.lateness < 0.01) == (Reason.CLOSE_TIMEOUT, True)
        assert ended.elapsed == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(("by", "ending"), [("the application", (1000, "")), ("a drain", (1012, "drain"))])
async def test_a_client_that_reads_steadily_gets_all_that_was_sent_before_the_close(
    by: str, ending: tuple[int, str], autojump_clock: MockClock
) -> None:
    sent = 0

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        for _ in range(8 if by == "the application" else 2):
            await send({"type": "websocket.send", "bytes": bytes(64 * 1024)})
            sent += 64 * 1024
        while by == "a drain" and (await receive())["type"] != "websocket.disconnect":
            continue

    timeouts = only(ws_close=5, write_grace=10, write_min_rate=240, drain=1000)
    async with site_of(accepted(act), timeouts) as site:
        client = await peer(site, answers=False, receive_buffer=4096)
        if by == "a drain":
            site.server.shutdown()
        received = 0
        while isinstance(event := await client.event(), BytesMessage):
            received += len(event.data)
            # a message that is not read any more must not cut what is
            await client.client.send_what_is_taken(frame(TEXT, b"late"))
            await trio.sleep(len(event.data) / 4096)
        assert received == sent
        assert isinstance(event, CloseConnection)
        assert (event.code, event.reason or "") == ending


@pytest.mark.parametrize(
    ("last", "ending", "reason"),
    [
        (closing(1000, "bye"), (1000, "bye"), Reason.DONE),
        (frame(TEXT, b"\xff"), (1007, "invalid start byte"), Reason.PROTOCOL_ERROR),
    ],
    ids=["a-close", "an-error"],
)
@pytest.mark.parametrize("then", ["it goes on", "it ends its side"])
async def test_a_client_that_reads_steadily_gets_all_that_was_sent_before_the_answer_to_its(
    last: bytes, ending: tuple[int, str], reason: Reason, then: str, autojump_clock: MockClock
) -> None:
    told: list[Any] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, {"type": "websocket.send", "bytes": bytes(MUCH)})
            told.extend([await receive(), current_time()])

    async with site_of(accepted(act), only(ws_close=5, write_grace=10, write_min_rate=240)) as site:
        client = await peer(site, answers=False, receive_buffer=4096)
        await client.client.send(frame(PING, b"not answered after the close") + last)
        await wait_all_tasks_blocked()
        # the application need not wait for that
        assert told == [{"type": "websocket.disconnect", "code": ending[0], "reason": ending[1]}, current_time()]
        # what it does after that does not cut what is sent to it
        if then == "it goes on":
            await client.client.send(frame(TEXT, b"late"))
        else:
            client.client.conn.shutdown_write()
        received = 0
        while isinstance(event := await client.event(), BytesMessage):
            received += len(event.data)
            await trio.sleep(len(event.data) / 4096)
        assert received == MUCH
        assert isinstance(event, CloseConnection)
        assert (event.code, event.reason or "") == ending
        assert current_time() > 60
        assert await client.client.rest() == b""
        assert await site.reason() is reason


@pytest.mark.parametrize("by", ["the application", "the client"])
async def test_a_handler_that_is_late_does_not_cut_what_was_sent_before_the_close(
    by: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled at its deadline, and the closing handshake goes on."""
    cancelled: list[float] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"]["set_handler_deadline"](current_time() + 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, {"type": "websocket.send", "bytes": bytes(MUCH)})
            await wait_all_tasks_blocked()
            if by == "the application":
                await send({"type": "websocket.close"})
            try:
                await trio.sleep(100)
            finally:
                cancelled.append(current_time())

    async with site_of(accepted(act), only(ws_close=5, write_grace=10, write_min_rate=240)) as site:
        client = await peer(site, receive_buffer=4096)
        began = current_time()
        if by == "the client":
            await client.client.send(closing(1000))
        received = 0
        while isinstance(event := await client.event(), BytesMessage):
            received += len(event.data)
            await trio.sleep(len(event.data) / 4096)
        assert received == MUCH
        assert isinstance(event, CloseConnection)
        assert event.code == 1000
        assert current_time() > 60
        ended = await site.ended()
        assert (ended.reason, ended.lateness) == (Reason.DONE, 0)
    assert cancelled == [pytest.approx(began + 3, abs=0.1)]
    assert "GET /: cancelled after its end, by the handler deadline" in caplog.messages


NOT_READ = [
    ({"ws_close": 5}, Reason.CLOSE_TIMEOUT, 5),
    ({"ws_close": 5, "write_grace": 10, "write_min_rate": 100_000}, Reason.CLOSE_TIMEOUT, 5),
    ({"ws_close": 20, "write_grace": 10, "write_min_rate": 100_000}, Reason.WRITE_TIMEOUT, 10),
    ({"write_grace": 10, "write_min_rate": 100_000}, Reason.WRITE_TIMEOUT, 10),
]


@pytest.mark.parametrize("by", ["the server", "the client"])
@pytest.mark.parametrize(("timeouts", "reason", "after"), NOT_READ, ids=["no-write", "close", "write", "no-close"])
async def test_a_close_behind_what_a_client_does_not_read_ends_by_the_first_deadline(
    timeouts: dict[str, float], reason: Reason, after: float, by: str, autojump_clock: MockClock
) -> None:
    now = trio.Event()

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, {"type": "websocket.send", "bytes": bytes(MUCH)})
            await now.wait()
            await send({"type": "websocket.close"})

    async with serving(handler(accepted(act)), only(**timeouts)) as site:
        client = await peer(site, receive_buffer=4096)
        await wait_all_tasks_blocked()
        if by == "the server":
            now.set()
        else:
            await client.send(CloseConnection(1000))
        await wait_all_tasks_blocked()
        (connection,) = site.server._connections
        upgraded: Any = connection._upgraded
        assert upgraded.closed == (1000, "")
        assert connection.output.blocked
        ended = await site.ended()
        assert (ended.reason, ended.lateness < 0.01) == (reason, True)
        # a part that the kernel of the client takes makes the wait longer, once
        assert after - 0.1 <= ended.elapsed <= 2 * after + 0.1
        assert await client.client.end() == "reset"


async def test_pings_do_not_prolong_the_time_for_the_answer_to_a_close(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1008})

    async with site_of(accepted(act), only(ws_close=5, write_grace=10, write_min_rate=240)) as site:
        client = await raw(site)
        (connection,) = site.server._connections
        for _ in range(3):
            while not (connection.output.blocked or site.records.connections):
                await client.send_what_is_taken(frame(PING, bytes(125)) * 1000)
                await wait_all_tasks_blocked()
            await trio.sleep(2)
            while connection.output.blocked:
                await client.receive()
                await wait_all_tasks_blocked()
        ended = await site.ended()
        assert ended.reason is Reason.CLOSE_TIMEOUT
        assert ended.elapsed == pytest.approx(5, abs=0.1)


async def test_messages_after_the_servers_close_are_read_and_dropped(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1000})
        assert (await receive())["type"] == "websocket.disconnect"

    async with site_of(accepted(act), only(ws_close=5)) as site:
        client = await raw(site)
        for _ in range(200):
            await client.send(frame(TEXT, b"x" * 1000))
        await client.send(frame(8, b"\x03\xe8"))
        assert await close_frame(client) == (1000, "")
        assert await site.reason() is Reason.DONE
