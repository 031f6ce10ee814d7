"""Handlers that go on after their response: the connection does not wait for them, their deadlines and the drain do."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest
import trio
from trio.lowlevel import Task, current_task
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Disconnected, Exchange, Reason
from deadlined.http.policy import REUSE_GRACE
from tests.support.garbage import kept_connections
from tests.support.handlers import HUGE
from tests.support.http import CHUNKED_POST, GET, LAST_GET, WORKER, Seen, answer, chunk, living, only, post, serving

pytestmark = pytest.mark.usefixtures("parser")

BACKGROUND = 1000


async def answer_and_sleep(exchange: Exchange) -> None:
    """Answers, and goes on for BACKGROUND seconds."""
    await answer(exchange)
    await trio.sleep(BACKGROUND)


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_the_next_request_does_not_wait(tls: bool, autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(answer_and_sleep), tls=tls) as site:
        client = await site.connect()
        start = trio.current_time()
        for _ in range(3):
            assert (await client.get()).status == 200
        assert trio.current_time() == start
        assert len(seen.began) == 3
        assert seen.ended == []
        await trio.sleep(BACKGROUND + 1)
        assert seen.ended == [("returned", start + BACKGROUND)] * 3


async def test_requests_that_came_with_the_first_do_not_wait(autojump_clock: MockClock) -> None:
    async with serving(answer_and_sleep) as site:
        client = await site.connect()
        start = trio.current_time()
        await client.send(GET * 3)
        for _ in range(3):
            assert (await client.response()).status == 200
        assert trio.current_time() == start


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_the_end_of_the_connection_does_not_wait(tls: bool, autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(answer_and_sleep), tls=tls) as site:
        client = await site.connect()
        start = trio.current_time()
        assert (await client.get(LAST_GET)).status == 200
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE
        assert trio.current_time() == start
        assert seen.ended == []


async def test_a_body_that_only_the_end_delimits_does_not_wait(autojump_clock: MockClock) -> None:
    async def stream(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"all of it", True)
        await exchange.send(b"", False)
        await trio.sleep(BACKGROUND)

    async with serving(stream) as site:
        client = await site.connect()
        start = trio.current_time()
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.rest()).endswith(b"all of it")
        assert trio.current_time() == start


@pytest.mark.parametrize("rest", [0.0, 1.0], ids=["with the rest of it", "before it"])
async def test_a_response_that_another_task_of_the_handler_sends_is_enough(
    rest: float, autojump_clock: MockClock
) -> None:
    """The handler sleeps for its tasks, and one of them answers and goes on."""
    seen = Seen()

    async def handler(exchange: Exchange) -> None:
        async def respond() -> None:
            exchange.start(200, [])
            await exchange.send(b"some of it", True)
            await trio.sleep(rest)
            await exchange.send(b"", False)
            await trio.sleep(BACKGROUND)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(respond)

    async with serving(seen.watch(handler)) as site:
        client = await site.connect()
        start = trio.current_time()
        for number in range(1, 3):
            assert (await client.get()).body == b"some of it"
            assert trio.current_time() == start + number * rest
        assert seen.ended == []


async def test_idle_begins_with_the_response(autojump_clock: MockClock) -> None:
    async with serving(answer_and_sleep, only(idle=75)) as site:
        client = await site.connect()
        await client.get()
        start = trio.current_time()
        assert await client.end() == "eof"
        assert await site.reason() is Reason.IDLE_TIMEOUT
        assert trio.current_time() - start == pytest.approx(76)


async def test_a_handler_that_does_not_sleep_after_its_response_keeps_its_task(autojump_clock: MockClock) -> None:
    tasks: list[Task] = []

    async def hello(exchange: Exchange) -> None:
        tasks.append(current_task())
        await trio.sleep(1)
        await answer(exchange)

    async with serving(hello) as site:
        before = living()
        client = await site.connect()
        for _ in range(3):
            await client.get()
        assert len(set(tasks)) == 1
        assert living() == before + WORKER


async def test_a_response_that_is_not_out_keeps_the_connection(autojump_clock: MockClock) -> None:
    """All is said, but the peer has not taken it yet: the next response must not overtake it."""
    body = bytes(8 << 20)

    async def large(exchange: Exchange) -> None:
        await answer(exchange, body)

    async with serving(large) as site:
        client = await site.connect()
        await client.send(GET * 2)
        await trio.sleep(1)
        assert site.server.statistics().background == 0
        for _ in range(2):
            assert (await client.response()).body == body


async def test_a_task_that_was_left_behind_serves_again(autojump_clock: MockClock) -> None:
    tasks: list[Task] = []

    async def handler(exchange: Exchange) -> None:
        tasks.append(current_task())
        await answer_and_sleep(exchange)

    async with serving(handler) as site:
        before = living()
        client = await site.connect()
        for _ in range(3):
            await client.get()
            assert site.server.statistics().background == 1
            await trio.sleep(BACKGROUND + 1)
            assert site.server.statistics().background == 0
        assert len(set(tasks)) <= 2
        assert living() == before + 2 * WORKER


async def test_tasks_beyond_those_that_are_kept_end(autojump_clock: MockClock) -> None:
    async with serving(answer_and_sleep) as site:
        before = living()
        client = await site.connect()
        for _ in range(100):
            await client.get()
        # the worker that waits for the next request has only been called
        await wait_all_tasks_blocked()
        assert site.server.statistics().background == 100
        assert living() == before + 101 * WORKER
        await trio.sleep(BACKGROUND + 1)
        assert site.server.statistics().background == 0
        assert living() == before + 64 * WORKER
        assert (await client.get()).status == 200


# deadlines


@pytest.mark.parametrize("moved", [False, True], ids=["the server's", "moved in the background"])
async def test_the_handler_deadline_still_cancels(
    moved: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        if moved:
            exchange.set_handler_deadline(trio.current_time() + 2)
        await trio.sleep(BACKGROUND)

    seen = Seen()
    async with serving(seen.watch(handler), only(handler=10)) as site:
        client = await site.connect()
        start = trio.current_time()
        await client.get()
        await trio.sleep(20)
        assert seen.ended == [("cancelled", start + (3 if moved else 10))]
        # the connection has nothing to do with it
        assert (await client.get()).status == 200
        client.conn.close()
        assert await site.reason() is Reason.CLIENT_CLOSED
    assert "GET /: cancelled after its response, by the handler deadline" in caplog.messages


async def test_the_deadline_of_the_next_handler_is_its_own(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(9)

    seen = Seen()
    async with serving(seen.watch(handler), only(handler=10)) as site:
        client = await site.connect()
        await client.get()
        await trio.sleep(8)
        await client.get()
        await trio.sleep(20)
    assert [how for how, _ in seen.ended] == ["returned"] * 2


async def test_deadlines_that_are_moved_in_the_background_move_nothing_of_the_connection(
    autojump_clock: MockClock,
) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        exchange.set_read_deadline(trio.current_time())
        exchange.set_write_deadline(trio.current_time())
        exchange.set_handler_deadline(math.inf)
        await trio.sleep(BACKGROUND)

    async with serving(handler) as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.get()).status == 200
            await trio.sleep(2)
            (info,) = site.server.connections()
            assert info.left == math.inf


async def test_a_read_deadline_set_in_the_background_does_not_hold_for_the_rest_of_the_body(
    autojump_clock: MockClock,
) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        exchange.set_read_deadline(math.inf)
        await trio.sleep(BACKGROUND)

    async with serving(handler, only(body_grace=10)) as site:
        client = await site.connect()
        await client.send(post(5))
        await trio.sleep(5)
        # what waits for the rest begins a receive of its own
        await client.send(b"a")
        with trio.fail_after(BACKGROUND):
            record = await site.ended()
        assert (record.reason, round(record.elapsed)) == (Reason.BODY_RATE, 10)


async def test_a_write_deadline_set_in_the_background_does_not_hold_for_the_rest_of_the_response(
    autojump_clock: MockClock,
) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        exchange.try_send(bytes(HUGE), False)
        try:
            await trio.sleep(BACKGROUND)
        finally:
            # cancelled by its deadline, after a response that is still being sent
            exchange.set_write_deadline(math.inf)

    async with serving(handler, only(handler=3, write_grace=10, write_min_rate=math.inf)) as site:
        client = await site.connect()
        await client.send(GET)
        with trio.fail_after(BACKGROUND):
            record = await site.ended()
        assert (record.reason, record.elapsed) == (Reason.WRITE_TIMEOUT, 10.0)


# the drain


async def test_the_drain_waits_for_what_runs_in_the_background(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(answer_and_sleep), only(drain=BACKGROUND + 1)) as site:
        client = await site.connect()
        await client.get()
        start = trio.current_time()
        site.server.shutdown()
        # the connection need not wait
        assert await client.end() == "eof"
        assert trio.current_time() == start + REUSE_GRACE
        await wait_all_tasks_blocked()
        assert seen.ended == []
        await trio.sleep(BACKGROUND + 0.5)
        assert seen.ended == [("returned", start + BACKGROUND)]


async def test_the_drain_ends_what_runs_in_the_background(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(answer_and_sleep), only(drain=30)) as site:
        client = await site.connect()
        await client.get()
        start = trio.current_time()
        site.server.shutdown()
        await trio.sleep(31)
        assert seen.ended == [("cancelled", start + 30)]
        assert site.server.statistics().background == 0


# errors


async def test_an_error_in_the_background_is_logged_and_the_connection_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        raise ValueError("in the background")

    async with serving(handler) as site:
        client = await site.connect()
        for number in range(1, 3):
            assert (await client.get()).status == 200
            await trio.sleep(2)
            assert [record.getMessage() for record in caplog.records] == ["GET / failed"] * number
        assert all(record.levelno == logging.ERROR for record in caplog.records)
        assert [record.status for record in site.records.requests] == [200, 200]


async def test_a_second_response_is_an_error_in_the_background(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def twice(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        await answer(exchange)

    async with serving(twice) as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.get()).body == b"hello"
            await trio.sleep(2)
    assert caplog.messages == ["GET / failed"] * 2


async def test_a_client_that_leaves_does_not_end_what_runs_in_the_background(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with serving(seen.watch(answer_and_sleep)) as site:
        client = await site.connect()
        start = trio.current_time()
        await client.get()
        client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        assert trio.current_time() == start
        await trio.sleep(BACKGROUND + 1)
        assert [how for how, _ in seen.ended] == ["returned"]


# bodies


@pytest.mark.parametrize("request_", [post(5) + b"12345", CHUNKED_POST + chunk(b"12345") + chunk(b"")])
async def test_a_body_that_nobody_wants_is_thrown_away(request_: bytes, autojump_clock: MockClock) -> None:
    async with serving(answer_and_sleep) as site:
        client = await site.connect()
        start = trio.current_time()
        for _ in range(3):
            assert (await client.get(request_)).status == 200
        assert trio.current_time() == start


async def test_a_body_that_comes_later_is_not_received_in_the_background(autojump_clock: MockClock) -> None:
    """The connection reads it, to be able to go on: two readers would share it."""
    refused: list[bool] = []

    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        await trio.sleep(1)
        try:
            await exchange.receive()
        except Disconnected:
            refused.append(True)

    async with serving(handler) as site:
        client = await site.connect()
        await client.get(post(5) + b"123")
        await trio.sleep(2)
        await client.send(b"45")
        assert (await client.get()).status == 200
        await trio.sleep(2)
    # the second request has no body: its end can be told at any time
    assert refused == [True]


async def test_a_connection_waits_for_whoever_receives_its_body(autojump_clock: MockClock) -> None:
    """A task of the handler is receiving when the response leaves: what it waits for is its own."""
    received: list[bytes] = []

    async def handler(exchange: Exchange) -> None:
        async def receive() -> None:
            while piece := await exchange.receive():
                received.append(piece)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            await answer(exchange)
        await trio.sleep(BACKGROUND)

    async with serving(handler) as site:
        client = await site.connect()
        await client.get(post(5) + b"123")
        start = trio.current_time()
        await trio.sleep(1)
        await client.send(b"45" + GET)
        assert (await client.response()).status == 200
        assert trio.current_time() == start + 1
    assert received == [b"123", b"45"]


# what others see


async def test_the_record_of_a_request_is_of_its_response(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        await trio.sleep(3)
        await answer_and_sleep(exchange)

    async with serving(handler) as site:
        client = await site.connect()
        await client.get()
        await wait_all_tasks_blocked()
        (record,) = site.records.requests
        assert record.handled == pytest.approx(3)
        assert (record.status, record.received, record.reason) == (200, len(GET), None)
        assert record.sent > len(b"hello")
        await trio.sleep(BACKGROUND)
        assert len(site.records.requests) == 1
        assert site.server.statistics().requests == 1


async def test_a_request_whose_server_is_cancelled_in_that_moment_is_recorded(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        site.stop()
        await trio.sleep(BACKGROUND)

    async with serving(handler) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        await site.ended()
        assert [record.status for record in site.records.requests] == [200]
        statistics = site.server.statistics()
        assert (statistics.open, statistics.background, statistics.requests) == (0, 0, 1)


VARIABLE: ContextVar[int] = ContextVar("VARIABLE")


@pytest.mark.parametrize("resting", [False, True], ids=["a new task", "a task that rested"])
async def test_the_next_request_does_not_see_the_variables_of_what_runs_in_the_background(
    resting: bool, autojump_clock: MockClock
) -> None:
    seen: list[int | None] = []

    async def handler(exchange: Exchange) -> None:
        seen.append(VARIABLE.get(None))
        VARIABLE.set(len(seen))
        await answer_and_sleep(exchange)

    async with serving(handler) as site:
        if resting:
            await (await site.connect()).get(LAST_GET)
            await trio.sleep(BACKGROUND + 1)
        client = await site.connect()
        for _ in range(3):
            await client.get()
    assert seen == [None] * len(seen)


async def test_what_ran_in_the_background_keeps_nothing_of_its_connection(autojump_clock: MockClock) -> None:
    """Its memory is given back without the collector."""

    async with serving(answer_and_sleep, only(handler=BACKGROUND + 1)) as site:
        gc.collect()
        gc.disable()
        try:
            client = await site.connect()
            await client.get(LAST_GET)
            assert await client.end() == "eof"
            await trio.sleep(BACKGROUND + 2)
            assert kept_connections() == []
        finally:
            gc.enable()


async def test_a_handler_need_not_be_a_coroutine(autojump_clock: MockClock) -> None:
    class Later:
        def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
            self._act = act

        def __await__(self):  # type: ignore[no-untyped-def]
            return self._act().__await__()

    def handler(exchange: Exchange) -> Later:
        return Later(lambda: answer_and_sleep(exchange))

    async with serving(handler) as site:
        client = await site.connect()
        start = trio.current_time()
        for _ in range(2):
            assert (await client.get()).status == 200
        assert trio.current_time() == start
