"""A client that leaves cancels its handler: when, and when not. Over TCP and TLS, on a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Exchange, Limits, Reason
from deadlined.http.policy import DISCONNECT_GRACE
from tests.support.http import GET, Client, Site, answer, hello, only, post, serving

Handler = Callable[[Exchange], Awaitable[object]]
Leave = Callable[[Client], object]

HOUR = 3600.0


class Watched:
    """A handler that runs `act`, and notes when it was cancelled, or returned."""

    def __init__(self, act: Handler) -> None:
        self._act = act
        self.cancelled: list[float] = []
        self.returned: list[float] = []

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await self._act(exchange)
        except trio.Cancelled:
            self.cancelled.append(trio.current_time())
            raise
        self.returned.append(trio.current_time())


async def sleeps(exchange: Exchange) -> None:
    await trio.sleep(HOUR)


async def streams(exchange: Exchange) -> None:
    exchange.start(200, [])
    await exchange.send(b"first", True)
    await trio.sleep(HOUR)


async def reads_a_piece_and_sleeps(exchange: Exchange) -> None:
    await exchange.receive()
    await trio.sleep(HOUR)


async def answers_and_works_on(exchange: Exchange) -> None:
    await answer(exchange)
    await trio.sleep(10)


async def leave_after(site: Site, seconds: float, leave: Leave, data: bytes = GET) -> Client:
    client = await site.connect()
    await client.send(data)
    await trio.sleep(seconds)
    leave(client)
    return client


def close(client: Client) -> None:
    client.conn.close()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("act", "data"),
    [
        (sleeps, GET),
        (streams, GET),
        (sleeps, post(5)),
        (sleeps, post(5) + b"hello"),
        (reads_a_piece_and_sleeps, post(9) + b"hello"),
    ],
    ids=["sleeps", "streams", "body not read", "body not read that came", "body read in part"],
)
@pytest.mark.parametrize(
    ("leave", "reason"), [(close, Reason.CLIENT_CLOSED), (Client.reset, Reason.CLIENT_RESET)], ids=["closes", "resets"]
)
async def test_a_client_that_leaves_cancels_its_handler(
    leave: Leave, reason: Reason, act: Handler, data: bytes, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Watched(act)
    async with serving(handler, tls=tls) as site:
        await leave_after(site, 4, leave, data)
        # a close with unread bytes is a reset, too
        assert await site.reason() is (Reason.CLIENT_RESET if act is streams else reason)
        assert handler.cancelled == [4.0 if leave is Client.reset or act is streams else 4.0 + DISCONNECT_GRACE]
        assert site.server.statistics().background == 0


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("more", [b"", bytes(100_000)], ids=["nothing is left", "more has come"])
async def test_a_client_that_leaves_after_the_handler_has_waited_for_its_body_cancels_it(
    more: bytes, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Watched(reads_a_piece_and_sleeps)
    async with serving(handler, tls=tls) as site:
        client = await site.connect()
        await client.send(post(1_000_000))
        await trio.sleep(1)
        await client.send(b"hello")
        await trio.sleep(1)
        await client.send(more)
        await trio.sleep(2)
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        assert handler.cancelled == [4.0]


async def test_a_server_may_leave_its_handlers_alone(autojump_clock: MockClock) -> None:
    handler = Watched(sleeps)
    async with serving(handler, cancel_on_disconnect=False) as site:
        await leave_after(site, 4, close)
        await site.ended()
        assert (handler.cancelled, handler.returned) == ([], [HOUR])


async def test_a_handler_that_is_told_has_a_moment_to_return(autojump_clock: MockClock) -> None:
    told: list[float] = []

    async def tidies_up(exchange: Exchange) -> None:
        await exchange.wait_disconnected()
        told.append(trio.current_time())
        await trio.sleep(DISCONNECT_GRACE / 2)

    handler = Watched(tidies_up)
    async with serving(handler) as site:
        await leave_after(site, 4, close)
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert (told, trio.current_time()) == ([4.0], 4.0)
        await trio.sleep(DISCONNECT_GRACE)
        assert (handler.cancelled, handler.returned) == ([], [4 + DISCONNECT_GRACE / 2])


async def test_a_handler_that_is_told_and_goes_on_is_cancelled_after_a_moment(autojump_clock: MockClock) -> None:
    """As behind a middleware that keeps the news to itself."""

    async def hides(exchange: Exchange) -> None:
        await exchange.wait_disconnected()
        await trio.sleep(HOUR)

    handler = Watched(hides)
    async with serving(handler) as site:
        await leave_after(site, 4, close)
        assert await site.reason() is Reason.CLIENT_CLOSED
        await trio.sleep(HOUR)
        assert handler.cancelled == [4 + DISCONNECT_GRACE]


async def test_a_handler_that_asks_and_stops_asking_is_watched_as_before(autojump_clock: MockClock) -> None:
    async def asks_for_a_second(exchange: Exchange) -> None:
        with trio.move_on_after(1):
            await exchange.wait_disconnected()
        await trio.sleep(HOUR)

    handler = Watched(asks_for_a_second)
    async with serving(handler) as site:
        await leave_after(site, 4, close)
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert handler.cancelled == [4 + DISCONNECT_GRACE]


async def asks_once(exchange: Exchange) -> None:
    await exchange.wait_disconnected()
    # it was told, and goes on
    await trio.sleep(HOUR)


async def asks_again_and_again(exchange: Exchange) -> None:
    """As an application does by Starlette's `request.is_disconnected()`."""
    while True:
        with trio.move_on_after(0):
            await exchange.wait_disconnected()
            return
        await trio.sleep(0.25)


# more than the server reads while a handler runs
SMALL = Limits(max_head=4096)
FURTHER = post(20_000) + bytes(20_000)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("act", [asks_once, asks_again_and_again])
@pytest.mark.parametrize("leave", [close, Client.reset])
async def test_a_client_that_leaves_is_noticed_behind_requests_that_are_not_read(
    leave: Leave, act: Handler, tls: bool, autojump_clock: MockClock
) -> None:
    handler = Watched(act)
    async with serving(handler, limits=SMALL, tls=tls) as site:
        await leave_after(site, 4, leave, GET + FURTHER)
        assert await site.reason() in {Reason.CLIENT_CLOSED, Reason.CLIENT_RESET}
        await wait_all_tasks_blocked()
        ended = handler.cancelled + handler.returned
        assert 4 <= ended[0] <= 4 + DISCONNECT_GRACE
        assert site.server.statistics().background == 0


async def test_a_handler_that_is_left_alone_is_told_when_it_asks_again(autojump_clock: MockClock) -> None:
    handler = Watched(asks_again_and_again)
    async with serving(handler, limits=SMALL, cancel_on_disconnect=False) as site:
        await leave_after(site, 4, close, GET + FURTHER)
        await site.ended()
        # at 4, or with the next question
        assert (handler.cancelled, handler.returned) in [([], [4.0]), ([], [4.25])]


async def test_what_a_handler_does_after_its_response_is_not_cancelled(autojump_clock: MockClock) -> None:
    handler = Watched(answers_and_works_on)
    async with serving(handler) as site:
        client = await leave_after(site, 4, close)
        del client
        await trio.sleep(HOUR)
        assert (handler.cancelled, handler.returned) == ([], [10.0])


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_the_connection(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def stubborn(exchange: Exchange) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)
        ended.append(trio.current_time())

    async with serving(stubborn) as site:
        await leave_after(site, 4, close)
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert trio.current_time() == 4.0 + DISCONNECT_GRACE
        assert site.server.statistics().background == 1
        await trio.sleep(HOUR)
        assert ended == [100.0]
        assert site.server.statistics().background == 0


@pytest.mark.parametrize("tls", [False, True])
async def test_a_next_request_is_not_taken_for_the_end(tls: bool, autojump_clock: MockClock) -> None:
    async def slow(exchange: Exchange) -> None:
        await trio.sleep(5)
        await answer(exchange)

    handler = Watched(slow)
    async with serving(handler, tls=tls) as site:
        client = await site.connect()
        for _ in range(3):
            await client.send(GET)
            await trio.sleep(1)
        assert [(await client.response()).status for _ in range(3)] == [200] * 3
        assert handler.cancelled == []
        await client.send(GET + GET)
        await trio.sleep(1)
        close(client)
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert len(handler.cancelled) == 1


async def test_the_deadline_of_the_head_does_not_matter_any_more(autojump_clock: MockClock) -> None:
    handler = Watched(sleeps)
    async with serving(handler, only(read_header=2.0)) as site:
        await leave_after(site, 10, close)
        await site.ended()
        assert handler.cancelled == [10.0 + DISCONNECT_GRACE]


async def quick(exchange: Exchange) -> None:
    await trio.sleep(DISCONNECT_GRACE / 2)
    await answer(exchange)


@pytest.mark.parametrize(("act", "answered"), [(hello, True), (quick, True), (sleeps, False)])
@pytest.mark.parametrize("later", [0.0, 0.1])
async def test_a_client_that_ends_its_side_gets_the_answer_of_a_quick_handler(
    later: float, act: Handler, answered: bool, autojump_clock: MockClock
) -> None:
    """As `nc` does: with the request or a moment later."""
    handler = Watched(act)
    async with serving(handler) as site:
        client = await site.connect()
        client.conn.try_send(GET)
        await trio.sleep(later)
        client.conn.shutdown_write()
        if answered:
            assert (await client.response()).status == 200
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert handler.cancelled == ([] if answered else [later + DISCONNECT_GRACE])


async def streams_and_watches(exchange: Exchange) -> None:
    exchange.start(200, [])
    await exchange.send(b"first", True)
    await exchange.wait_disconnected()
    await trio.sleep(HOUR)


@pytest.mark.parametrize("act", [streams, streams_and_watches])
async def test_a_client_that_ends_its_side_does_not_take_a_part_for_the_whole(
    act: Handler, autojump_clock: MockClock
) -> None:
    """In HTTP/1.0 only the end of the connection ends a body without a length."""
    async with serving(act) as site:
        client = await site.connect()
        client.conn.try_send(b"GET / HTTP/1.0\r\n\r\n")
        client.conn.shutdown_write()
        assert await client.end() == "reset"
        assert await site.reason() is Reason.CLIENT_CLOSED


async def test_a_client_whose_body_is_late_does_not_take_a_part_for_the_whole(autojump_clock: MockClock) -> None:
    async def streams_and_receives(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"first", True)
        await exchange.receive()

    async with serving(streams_and_receives, only(read=2)) as site:
        client = await site.connect()
        client.conn.try_send(b"POST / HTTP/1.0\r\ncontent-length: 100\r\n\r\n")
        assert await client.end() == "reset"
        assert await site.reason() is Reason.READ_TIMEOUT


async def gives_all_and_cleans_up(exchange: Exchange) -> None:
    """Return after the client's moment is over, without the empty piece that ends a response."""
    exchange.start(200, [(b"content-length", b"5")])
    await exchange.send(b"bytes", True)
    await trio.sleep(HOUR)


@pytest.mark.parametrize(
    ("act", "told"), [(gives_all_and_cleans_up, b"\r\n\r\nbytes"), (streams, b"\r\n\r\n5\r\nfirst\r\n")]
)
async def test_a_client_that_ends_its_side_gets_what_it_can_tell_from_the_whole(
    act: Handler, told: bytes, autojump_clock: MockClock
) -> None:
    async with serving(act) as site:
        client = await site.connect()
        client.conn.try_send(GET)
        client.conn.shutdown_write()
        await trio.sleep(2 * DISCONNECT_GRACE)
        received = b""
        while data := await client.receive():
            received += data
        assert received.endswith(told)


async def test_a_handler_that_cleans_up_after_its_cancellation_is_not_cancelled_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def cleans_up(exchange: Exchange) -> None:
        try:
            await trio.sleep(HOUR)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(HOUR)

    handler = Watched(cleans_up)
    async with serving(handler) as site:
        client = await site.connect()
        await client.send(GET)
        client.conn.shutdown_write()
        await trio.sleep(DISCONNECT_GRACE / 2)
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        await trio.sleep(2 * HOUR)
    assert handler.cancelled == [HOUR + DISCONNECT_GRACE / 2]
    assert caplog.messages == []


@pytest.mark.parametrize(("handler_deadline", "ends"), [(None, 5.5), (3.0, 3.0)])
async def test_what_a_client_that_has_ended_its_side_is_answered_before_is_not_cancelled(
    handler_deadline: float | None, ends: float, autojump_clock: MockClock
) -> None:
    async def answers_and_cleans_up(exchange: Exchange) -> None:
        await trio.sleep(0.5)
        await answer(exchange)
        await trio.sleep(5)

    handler = Watched(answers_and_cleans_up)
    async with serving(handler, only() if handler_deadline is None else only(handler=handler_deadline)) as site:
        client = await site.connect()
        await client.send(GET)
        client.conn.shutdown_write()
        assert (await client.response()).status == 200
        await trio.sleep(20)
    ended = handler.returned if handler_deadline is None else handler.cancelled
    assert ended == [ends]


async def test_a_handler_that_sends_to_a_client_that_does_not_read_is_told_by_its_send(
    autojump_clock: MockClock,
) -> None:
    errors: list[OSError] = []

    async def floods(exchange: Exchange) -> None:
        exchange.start(200, [])
        try:
            while True:
                await exchange.send(bytes(65536), True)
        except OSError as error:
            errors.append(error)

    handler = Watched(floods)
    async with serving(handler) as site:
        await leave_after(site, 4, Client.reset)
        assert await site.reason() is Reason.CLIENT_RESET
        assert len(errors) == 1
        assert handler.cancelled == []


async def test_a_client_is_watched_after_a_send_in_which_it_has_sent_and_its_deadline_has_passed(
    autojump_clock: MockClock,
) -> None:
    async def receives_sends_and_sleeps(exchange: Exchange) -> None:
        await exchange.receive()
        exchange.start(200, [])
        await exchange.send(bytes(3_000_000), True)
        await trio.sleep(HOUR)

    handler = Watched(receives_sends_and_sleeps)
    async with serving(handler, only(body_grace=5.0)) as site:
        client = await site.connect()
        await client.send(post(100))
        for piece in (b"one", b"two"):
            await trio.sleep(1)
            await client.send(piece)
        # the deadline for the rest of the body passes while the response waits for the client
        await trio.sleep(10)
        received = 0
        while received < 3_000_000:
            received += len(await client.conn.receive_some())
        await trio.sleep(1)
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        assert handler.cancelled == [13.0]


async def test_the_beginning_of_a_drain_is_told_to_handlers(autojump_clock: MockClock) -> None:
    begun: list[float] = []

    async def until_the_drain(exchange: Exchange) -> None:
        assert not exchange.draining.is_set()
        exchange.start(200, [])
        await exchange.send(b"event", True)
        await exchange.draining
        begun.append(trio.current_time())
        await exchange.send(b"goodbye", False)

    async with serving(until_the_drain, only(drain=30.0)) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        await trio.sleep(7)
        site.server.shutdown()
        assert (await client.response()).body == b"eventgoodbye"
        assert await site.reason() is Reason.DONE
        assert begun == [7.0]
