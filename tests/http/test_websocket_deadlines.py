"""Every wait of a websocket ends on time, with one close, one reason and nothing left: in virtual time."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from wsproto.events import CloseConnection, Ping, TextMessage

from deadlined import current_time, open_unix_listener, open_unix_stream, statistics
from deadlined.asgi import App
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import HttpServer, Phase, Reason, Timeouts
from deadlined.http.timeouts import INF
from deadlined.runtime import current_host
from tests.support.http import Records, Site, only, serving
from tests.support.websocket import (
    CLOSE,
    CONT,
    HANDSHAKE,
    PING,
    TEXT,
    Told,
    accepting,
    all_ended,
    close_frame,
    frame,
    handler,
    peer,
    raw,
)

Act = Callable[[Scope, Receive, Send], Awaitable[object]]


@asynccontextmanager
async def site_of(app: App, timeouts: Timeouts, **options: Any) -> AsyncIterator[Site]:
    """Serve `app`; check afterwards that no timer and no descriptor of a websocket is left."""
    closing = replace(timeouts, ws_close=min(timeouts.ws_close, 5))
    async with serving(handler(app), closing, **options) as site:
        yield site
        site.hang_up()
        await all_ended(site)
        # a drain stops waiting
        await wait_all_tasks_blocked()
        poller = current_host().statistics().poller
        assert poller.timers.stored == poller.timers.zombies
        assert poller.descriptors == (0 if site.server.draining else 1), "the listener is left"


def accepted(act: Act) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await act(scope, receive, send)

    return app


async def sleeps(scope: Scope, receive: Receive, send: Send) -> None:
    """Neither receive nor send."""
    await trio.sleep_forever()


# silence


@pytest.mark.parametrize("ws_pong", [5, 20, 60, INF])
async def test_a_silent_client_is_asked_for_a_sign_of_life_as_often_as_it_is_silent(
    ws_pong: float, autojump_clock: MockClock
) -> None:
    async with site_of(Told(), only(ws_ping=20, ws_pong=ws_pong)) as site:
        client = await peer(site)
        with trio.fail_after(1000):
            for _ in range(3):
                before = current_time()
                assert isinstance(await client.event(), Ping)
                assert current_time() - before == pytest.approx(20, abs=0.01)
            await trio.sleep(15)
            await client.say("a message moves the ping")
            await client.message()
            before = current_time()
            assert isinstance(await client.event(), Ping)
            assert current_time() - before == pytest.approx(20, abs=0.01)


async def test_a_client_that_gives_no_sign_of_life_is_closed(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, only(ws_ping=20, ws_pong=5)) as site:
        client = await peer(site, answers=False)
        assert isinstance(await client.event(), Ping)
        assert await client.closed() == (1011, "pong_timeout")
        ended = await site.ended()
        assert (ended.reason, ended.phase) == (Reason.PONG_TIMEOUT, Phase.WEBSOCKET)
        assert ended.elapsed == pytest.approx(25, abs=0.01)
        assert ended.lateness < 0.01
        await wait_all_tasks_blocked()
    assert told.disconnect == (1011, "pong_timeout")


async def test_a_client_that_falls_silent_after_a_sign_of_life_is_closed(autojump_clock: MockClock) -> None:
    async with site_of(Told(), only(ws_ping=5, ws_pong=20)) as site:
        client = await peer(site)
        assert isinstance(await client.event(), Ping)
        client.answers = False
        assert await client.closed() == (1011, "pong_timeout")
        # silent since the answer at 5
        assert (await site.ended()).elapsed == pytest.approx(5 + 5 + 20, abs=0.01)


@pytest.mark.parametrize(("takes", "ends"), [(0, 25), (90_000, 30)])
async def test_a_client_that_takes_what_was_before_a_ping_has_as_long_again_for_the_answer(
    tmp_path: Path, takes: int, ends: int, autojump_clock: MockClock
) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.send", "bytes": bytes(100_000)})
        await trio.sleep_forever()

    records = Records()
    timeouts = only(ws_ping=20, ws_pong=5, write_min_rate=200)
    server = HttpServer(handler(accepted(act)), timeouts=timeouts, observer=records)
    # what its end has not read is in the kernel, which for TCP may have a buffer of any size beyond that
    listener = await open_unix_listener(tmp_path / "socket")
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        async with await open_unix_stream(tmp_path / "socket") as client:
            await client.send_all(HANDSHAKE)
            await trio.sleep(22)
            while takes > 0:
                takes -= len(await client.receive_some(takes))
            ended = await records.ended()
        nursery.cancel_scope.cancel()
    assert ended.reason is Reason.PONG_TIMEOUT
    assert ended.elapsed == pytest.approx(ends, abs=0.01)


async def test_any_bytes_are_a_sign_of_life(autojump_clock: MockClock) -> None:
    async with site_of(Told(), only(ws_ping=20, ws_pong=5)) as site:
        client = await raw(site)
        await trio.sleep(23)
        await client.send(frame(TEXT, b"x" * 100)[:50])
        await trio.sleep(19)
        assert site.server.statistics().open == 1


async def test_a_client_is_not_blamed_while_the_application_does_not_receive(autojump_clock: MockClock) -> None:
    async with site_of(accepted(sleeps), only(ws_ping=20, ws_pong=5), cancel_on_disconnect=True) as site:
        client = await peer(site, answers=False)
        # more than the server takes, and less than fills the kernel's buffers: an end behind those would not be seen
        for _ in range(90):
            await client.say("x" * 1000)
        await trio.sleep(300)
        assert site.server.statistics().open == 1
        # its leaving is noticed nevertheless
        client.client.conn.close()
        assert (await site.ended()).reason in (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)


# a reload


async def test_a_silent_client_is_asked_once_a_reload_has_set_the_time_for_that(autojump_clock: MockClock) -> None:
    async with site_of(Told(), only()) as site:
        client = await peer(site)
        await trio.sleep(50)
        site.server.configure(timeouts=only(ws_ping=60, ws_pong=5))
        with trio.fail_after(100):
            assert isinstance(await client.event(), Ping)
        assert current_time() == pytest.approx(110, abs=0.01)


CHANGES = {
    "an answer to a ping": (only(ws_ping=20), only(ws_ping=20, ws_pong=5), Reason.PONG_TIMEOUT, 25),
    "a message": (only(), only(body_grace=15, body_min_rate=100, ws_close=0), Reason.BODY_RATE, 20),
    "a faster message": (
        only(body_grace=5000),
        only(body_grace=15, body_min_rate=100, ws_close=0),
        Reason.BODY_RATE,
        20,
    ),
    "an answer to a close": (only(), only(ws_close=5), Reason.CLOSE_TIMEOUT, 5),
    "a sooner answer to a close": (only(ws_close=5000), only(ws_close=5), Reason.CLOSE_TIMEOUT, 5),
}


@pytest.mark.parametrize(("before", "then", "reason", "after"), CHANGES.values(), ids=CHANGES)
async def test_a_wait_that_a_reload_ends_counts_from_the_reload(
    before: Timeouts, then: Timeouts, reason: Reason, after: float, autojump_clock: MockClock
) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        if reason is Reason.CLOSE_TIMEOUT:
            await send({"type": "websocket.close"})
        await receive()

    async with serving(handler(accepted(act)), before) as site:
        client = await raw(site)
        if reason is Reason.BODY_RATE:
            await client.send(frame(TEXT, bytes(1000))[:508])
        await trio.sleep(1000)
        site.server.configure(timeouts=then)
        with trio.fail_after(100):
            ended = await site.ended()
        assert ended.reason is reason
        assert ended.elapsed == pytest.approx(1000 + after, abs=0.1)
        assert ended.lateness < 0.01


# messages


async def test_a_message_that_stays_incomplete_is_closed_by_the_formula_of_a_body(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, only(body_grace=20, body_min_rate=100)) as site:
        client = await raw(site)
        await trio.sleep(1000)
        await client.send(frame(TEXT, b"x" * 1000)[:508])
        before = current_time()
        assert await close_frame(client) == (1008, "body_rate")
        # 500 bytes have 5 seconds, and the close has waited for its answer
        assert current_time() - before == pytest.approx(30, abs=0.1)
        ended = await site.ended()
        assert ended.reason is Reason.BODY_RATE
        assert ended.elapsed == pytest.approx(1030, abs=0.1)
        counted = site.server.statistics()
        assert counted.expired == {Phase.WEBSOCKET: 1}
        assert sum(counted.lateness.counts) == 1
    assert told.disconnect == (1008, "body_rate")


async def test_a_message_that_stays_incomplete_while_the_others_are_received_is_closed(
    autojump_clock: MockClock,
) -> None:
    async def receives(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(100)
        while (await receive())["type"] != "websocket.disconnect":
            continue

    async with site_of(accepted(receives), only(body_grace=20, body_min_rate=100)) as site:
        client = await raw(site)
        # the inbox is full with the first 64, and while it is, no deadline runs
        await client.send(frame(TEXT, b"x") * 64 + frame(TEXT, b"x" * 1000)[:508])
        with trio.fail_after(1000):
            assert await close_frame(client) == (1008, "body_rate")
        ended = await site.ended()
        assert ended.elapsed == pytest.approx(125, abs=0.1)


async def test_a_message_that_trickles_is_closed_and_one_that_keeps_the_rate_is_not(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, only(body_grace=20, body_min_rate=100, ws_close=5)) as site:
        client = await raw(site)
        slow = await raw(site)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def keep_the_rate() -> None:
                for piece in range(60):
                    await client.send(frame(CONT if piece else TEXT, b"x" * 300, fin=piece == 59))
                    await trio.sleep(2)

            before = current_time()
            for piece in range(100):
                await slow.send_what_is_taken(frame(CONT if piece else TEXT, b"", fin=False))
                await trio.sleep(0.5)
                if site.records.connections:
                    break
            assert site.records.connections[0].reason is Reason.BODY_RATE
            assert current_time() - before < 30
    texts = [len(message["text"]) for message in told.messages if "text" in message]
    assert texts == [18000]


@pytest.mark.parametrize("by", ["the server", "the application"])
async def test_the_answer_to_a_close_in_the_middle_of_a_message_is_no_error(by: str, autojump_clock: MockClock) -> None:
    async def closes(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(20 if by == "the application" else 1000)
        await send({"type": "websocket.close", "code": 1000, "reason": "done"})

    async with site_of(accepted(closes), only(body_grace=20, body_min_rate=100)) as site:
        client = await raw(site)
        await client.send(frame(TEXT, b"x", fin=False))
        await trio.sleep(21)
        await client.send(frame(CLOSE, struct.pack("!H", 1000)))
        expected = ((1000, "done"), Reason.DONE) if by == "the application" else ((1008, "body_rate"), Reason.BODY_RATE)
        assert (await close_frame(client), (await site.ended()).reason) == expected


# sending


async def test_a_client_that_does_not_read_is_reset_and_the_application_told(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        began = current_time()
        with pytest.raises(OSError, match="gone"):
            while True:
                await send({"type": "websocket.send", "bytes": bytes(65536)})
        seen.append(current_time() - began)
        seen.append(await receive())

    async with site_of(accepted(act), only(write_grace=10, write_min_rate=100_000)) as site:
        client = await peer(site, receive_buffer=4096)
        ended = await site.ended()
        assert (ended.reason, ended.phase) == (Reason.WRITE_TIMEOUT, Phase.WRITE)
        assert ended.lateness < 0.01
        assert await client.client.end() == "reset"
    # the kernel of the client may have taken some more
    assert 10 <= seen[0] <= 30
    assert seen[1] == {"type": "websocket.disconnect", "code": 1006, "reason": ""}


async def test_a_send_that_waits_does_not_keep_another_client_waiting(autojump_clock: MockClock) -> None:
    """A broadcast: each client costs no more than its own deadline."""
    channels: list[Send] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        channels.append(send)
        while (await receive())["type"] != "websocket.disconnect":
            continue

    async with site_of(accepted(act), only(write_grace=10, write_min_rate=100_000)) as site:
        good, bad = await peer(site), await peer(site, receive_buffer=4096)
        got: list[int] = []

        async def read() -> None:
            got.extend([len(await good.message()) for _ in range(200)])

        async def flood(send: Send) -> None:
            try:
                for _ in range(200):
                    await send({"type": "websocket.send", "bytes": bytes(65536)})
            except OSError:
                got.append(-1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for send in channels:
                nursery.start_soon(flood, send)
        assert sorted(got) == [-1] + [65536] * 200
        assert await bad.client.end() == "reset"
        assert await site.reason() is Reason.WRITE_TIMEOUT


async def test_pings_of_a_client_that_does_not_read_are_answered_once(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            await send({"type": "websocket.send", "bytes": bytes(65536)})

    async with site_of(accepted(act), only(write_grace=100)) as site:
        client = await raw(site)
        await wait_all_tasks_blocked()
        (connection,) = site.server._connections
        pending = connection.output.size
        for number in range(2000):
            await client.send(frame(PING, b"%d" % number))
        await wait_all_tasks_blocked()
        assert connection.output.blocked
        assert connection.output.size <= pending
        upgraded: Any = connection._upgraded
        assert upgraded._pong == b"\x8a\x041999"


# the connection


async def test_an_old_connection_is_closed_with_1001(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, only(connection_age=100)) as site:
        client = await peer(site)
        assert await client.closed() == (1001, "connection_age")
        ended = await site.ended()
        assert ended.reason is Reason.CONNECTION_AGE
        assert ended.elapsed == pytest.approx(100, abs=11)
    assert told.disconnect == (1001, "connection_age")


async def test_a_drain_closes_with_1012(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, only(drain=30)) as site:
        client = await peer(site)
        site.server.shutdown()
        before = current_time()
        assert await client.closed() == (1012, "drain")
        assert current_time() - before == pytest.approx(1, abs=0.1)
        assert await site.reason() is Reason.DONE
    assert told.disconnect == (1012, "drain")


async def test_a_drain_leaves_the_application_time_for_a_last_message(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await scope["extensions"]["deadlined"]["draining"]
        await trio.sleep(0.5)
        await send({"type": "websocket.send", "text": "goodbye"})
        await send({"type": "websocket.close", "code": 4000})

    async with site_of(accepted(act), only(drain=30)) as site:
        client = await peer(site)
        site.server.shutdown()
        assert await client.message() == "goodbye"
        assert await client.closed() == (4000, "")


async def test_a_websocket_that_is_left_at_the_end_of_the_drain_is_reset(autojump_clock: MockClock) -> None:
    async with site_of(accepted(sleeps), only(drain=4)) as site:
        client = await peer(site, answers=False)
        await wait_all_tasks_blocked()
        site.server.shutdown()
        ended = await site.ended()
        assert ended.reason is Reason.DRAIN_TIMEOUT
        assert await client.client.end() == "reset"


async def test_a_websocket_that_is_accepted_in_a_drain_is_closed(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await scope["extensions"]["deadlined"]["draining"]
        await accepting(receive, send)
        await receive()

    async with site_of(app, only(drain=30)) as site, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _() -> None:
            await trio.sleep(5)
            site.server.shutdown()

        client = await peer(site)
        assert await client.closed() == (1012, "drain")


# deadlines of the application


@pytest.mark.parametrize(
    ("kind", "ending", "reason"),
    [
        ("read", (1008, "read_timeout"), Reason.READ_TIMEOUT),
        ("handler", (1011, "handler_timeout"), Reason.HANDLER_TIMEOUT),
    ],
)
async def test_a_deadline_of_the_application_closes(
    autojump_clock: MockClock, kind: str, ending: tuple[int, str], reason: Reason
) -> None:
    ends: list[str] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        deadlines = scope["extensions"]["deadlined"]
        deadlines[f"set_{kind}_deadline"](current_time() + 50)
        await trio.sleep(30)
        deadlines[f"set_{kind}_deadline"](current_time() + 50)
        try:
            await receive()
            ends.append("told")
        except trio.Cancelled:
            ends.append("cancelled")
            raise

    async with site_of(accepted(act), only()) as site:
        client = await peer(site)
        assert await client.closed() == ending
        ended = await site.ended()
        assert ended.reason is reason
        assert ended.elapsed == pytest.approx(80, abs=0.1)
    assert ends == ["cancelled" if kind == "handler" else "told"]


async def test_a_write_deadline_of_the_application_resets(autojump_clock: MockClock) -> None:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"]["set_write_deadline"](current_time() + 3)
        with pytest.raises(OSError, match="gone"):
            while True:
                await send({"type": "websocket.send", "bytes": bytes(65536)})

    async with site_of(accepted(act), only(write_grace=100)) as site:
        await peer(site, receive_buffer=4096)
        ended = await site.ended()
        assert ended.reason is Reason.WRITE_TIMEOUT
        assert ended.elapsed == pytest.approx(3, abs=0.5)


async def test_a_deadline_for_a_whole_response_does_not_concern_a_websocket(autojump_clock: MockClock) -> None:
    async with site_of(Told(), only(write=5)) as site:
        client = await peer(site)
        await trio.sleep(100)
        await client.say("still there")
        assert await client.message() == "still there"


# the handler after the end


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_handler_that_does_not_notice_the_end_is_cancelled_later(
    autojump_clock: MockClock, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[tuple[str, float]] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await trio.sleep(100)
            ends.append(("slept", current_time()))
        except trio.Cancelled:
            ends.append(("cancelled", current_time()))
            raise

    async with site_of(accepted(act), only(), cancel_on_disconnect=cancels) as site:
        client = await peer(site)
        began = current_time()
        await client.close()
        assert await site.reason() is Reason.DONE
        assert site.server.statistics().background == 1
        await trio.sleep(200)
    ((how, when),) = ends
    assert how == ("cancelled" if cancels else "slept")
    assert when == pytest.approx(began + (10 if cancels else 100), abs=0.1)
    logged = [text for text in caplog.messages if "cancelled" in text]
    assert logged == (["GET /: cancelled 10 s after its end"] if cancels else [])


async def test_a_handler_that_has_closed_goes_on_as_long_as_it_likes(autojump_clock: MockClock) -> None:
    ends: list[float] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close"})
        await trio.sleep(100)
        ends.append(current_time())

    async with site_of(accepted(act), only()) as site:
        client = await peer(site)
        assert await client.closed() == (1000, "")
        await trio.sleep(200)
    assert ends == [pytest.approx(100, abs=0.1)]


@pytest.mark.parametrize("by", ["the application", "the client"])
async def test_a_deadline_of_the_application_cancels_it_after_the_end(
    by: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[float] = []

    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["deadlined"]["set_handler_deadline"](current_time() + 5)
        if by == "the application":
            await send({"type": "websocket.close"})
        try:
            await trio.sleep(100)
        finally:
            ends.append(current_time())

    async with site_of(accepted(act), only()) as site:
        client = await peer(site)
        began = current_time()
        await (client.closed() if by == "the application" else client.close())
        assert await site.reason() is Reason.DONE
        await trio.sleep(200)
    assert ends == [pytest.approx(began + 5, abs=0.1)]
    logged = [text for text in caplog.messages if "cancelled" in text]
    assert logged == ["GET /: cancelled after its end, by the handler deadline"]


async def test_a_websocket_shows_its_phase_and_deadline(autojump_clock: MockClock) -> None:
    async with site_of(Told(), only(ws_ping=20, ws_pong=5)) as site:
        client = await peer(site)
        await trio.sleep(15)
        (info,) = site.server.connections()
        assert info.phase is Phase.WEBSOCKET
        assert info.left == pytest.approx(5, abs=0.01)
        await client.send(TextMessage("x"), CloseConnection(1000))
        await site.ended()
        (record,) = site.records.requests
        assert (record.status, record.method, record.reason) == (101, "GET", Reason.DONE)
        assert record.handled == pytest.approx(15, abs=0.1)
        assert statistics() is not None
