"""The deadline of the handler, and the deadlines that a handler moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from deadlined.http import Disconnected, Exchange, Reason, Timeouts
from tests.support.handlers import Handler, after, huge, never, stubborn
from tests.support.http import GET, Seen, answer, echo, only, post, serving, whole_body
from tests.support.net import INF

pytestmark = pytest.mark.usefixtures("parser")


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("handler", [after(3600), stubborn], ids=["obedient", "stubborn"])
async def test_a_late_handler_is_cancelled_and_504_is_at_the_peer_on_time(
    handler: Handler, tls: bool, autojump_clock: MockClock
) -> None:
    seen = Seen()
    async with serving(seen.watch(handler), only(handler=3), tls=tls) as site:
        client = await site.connect()
        response = await client.get()
        assert (response.status, response.closes, trio.current_time()) == (504, True, 3.0)
        assert await client.receive() == b""
        assert trio.current_time() == 3.0
        record = await site.ended()
        assert (record.reason, record.elapsed, record.lateness) == (Reason.HANDLER_TIMEOUT, 3.0, 0.0)
        assert site.records.requests[0].status == 504
        # the connection is over, whether the handler is or not
        assert site.server.statistics().open == 0
        await trio.sleep(3600)
        assert seen.ended == [("disconnected", 3600.0) if handler is stubborn else ("cancelled", 3.0)]


async def test_a_client_that_ends_its_side_just_before_is_answered_504_too(autojump_clock: MockClock) -> None:
    async with serving(after(3600), only(handler=3)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(2.5)
        await client.conn.send_eof()
        response = await client.response()
        assert (response.status, trio.current_time()) == (504, 3.0)
        assert await site.reason() is Reason.HANDLER_TIMEOUT


async def test_a_late_handler_that_has_begun_to_answer_is_reset(autojump_clock: MockClock) -> None:
    async def halfway(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"half", True)
        await trio.sleep(3600)

    async with serving(halfway, only(handler=3)) as site:
        client = await site.connect()
        await client.send(GET)
        assert await client.end() == "reset"
        assert trio.current_time() == 3.0
        record = await site.ended()
        assert record.reason is Reason.HANDLER_TIMEOUT
        assert site.records.requests[0].status == 200


async def test_each_requesthas_its_own_handler_deadline(autojump_clock: MockClock) -> None:
    async with serving(after(2), only(handler=3)) as site:
        client = await site.connect()
        for _ in range(4):
            assert (await client.get()).status == 200
        await trio.sleep(100)
        assert (await client.get()).status == 200


async def test_the_handlers_deadline_covers_its_reading_and_writing(autojump_clock: MockClock) -> None:
    async with serving(echo, only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 504
        assert trio.current_time() == 3.0


async def test_a_peer_is_told_of_one_deadline_only(autojump_clock: MockClock) -> None:
    async def goes_on(exchange: Exchange) -> None:
        with pytest.raises(Disconnected):
            await exchange.receive()
        await trio.sleep(3600)

    seen = Seen()
    async with serving(seen.watch(goes_on), only(body_grace=2, handler=3)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert await client.rest() == b""
        assert await site.reason() is Reason.BODY_RATE
        assert seen.ended == [("cancelled", 3.0)]
        assert site.records.requests[0].status == 408


async def test_a_handler_can_move_its_deadline_both_ways(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        now = trio.current_time()
        assert exchange.deadline == now + 3
        when = now + (10 if exchange.request.target == b"/later" else 1)
        exchange.set_handler_deadline(when)
        assert exchange.deadline == when
        await trio.sleep(5)
        await answer(exchange)

    async with serving(moves, only(handler=3)) as site:
        client = await site.connect()
        assert (await client.get(GET.replace(b"/", b"/later", 1))).status == 200
        assert (await client.get()).status == 504
        assert trio.current_time() == 6.0


async def test_a_handler_can_set_a_deadline_where_none_was(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        assert exchange.deadline == INF
        exchange.set_handler_deadline(trio.current_time() + 1)
        await trio.sleep(5)

    async with serving(moves) as site:
        client = await site.connect()
        assert (await client.get()).status == 504
        assert trio.current_time() == 1.0


async def test_a_handlers_deadline_does_not_outlive_its_request(autojump_clock: MockClock) -> None:
    exchanges: list[Exchange] = []

    async def keeps(exchange: Exchange) -> None:
        exchanges.append(exchange)
        if len(exchanges) == 1:
            exchange.set_handler_deadline(trio.current_time() + 2)
        else:
            # somebody kept what was the first request's
            exchanges[0].set_handler_deadline(trio.current_time() + 1)
            exchanges[0].set_read_deadline(trio.current_time() + 1)
            exchanges[0].set_write_deadline(trio.current_time() + 1)
            await trio.sleep(5)
        await answer(exchange)

    async with serving(keeps) as site:
        client = await site.connect()
        assert (await client.get()).status == 200
        assert (await client.get()).status == 200


@pytest.mark.parametrize(("moved", "cut"), [(50.0, 50.0), (5.0, 5.0)])
async def test_a_read_deadline_replaces_those_of_the_body(moved: float, cut: float, autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        exchange.set_read_deadline(moved)
        await whole_body(exchange)

    async with serving(moves, only(read=30, body_grace=20)) as site:
        client = await site.connect()
        assert (await client.get(post(5))).status == 408
        assert trio.current_time() == cut
        assert await site.reason() is Reason.READ_TIMEOUT


@pytest.mark.parametrize("when", [2.0, 50.0])
async def test_a_write_deadline_replaces_those_of_sending(when: float, autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        exchange.set_write_deadline(when)
        await huge(exchange)

    async with serving(moves, only(write=30, write_grace=10, write_min_rate=INF)) as site:
        client = await site.connect()
        await client.send(GET)
        record = await site.ended()
        assert (record.reason, trio.current_time()) == (Reason.WRITE_TIMEOUT, when)


@pytest.mark.parametrize(
    ("work", "move", "asked", "timeouts", "reason"),
    [
        (whole_body, Exchange.set_read_deadline, post(5), only(body_grace=20), Reason.READ_TIMEOUT),
        (huge, Exchange.set_write_deadline, GET, only(write_grace=10, write_min_rate=INF), Reason.WRITE_TIMEOUT),
    ],
    ids=["read", "write"],
)
async def test_a_deadline_can_be_moved_while_the_handler_waits_under_it(
    work: Handler,
    move: Callable[[Exchange, float], None],
    asked: bytes,
    timeouts: Timeouts,
    reason: Reason,
    autojump_clock: MockClock,
) -> None:
    async def moves(exchange: Exchange) -> None:
        async def later() -> None:
            await trio.sleep(5)
            move(exchange, 40)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            await work(exchange)

    async with serving(moves, timeouts) as site:
        client = await site.connect()
        await client.send(asked)
        if reason is Reason.READ_TIMEOUT:
            assert (await client.response()).status == 408
        else:
            await site.ended()
        assert trio.current_time() == 40.0
        assert await site.reason() is reason


async def test_nan_is_no_deadline(autojump_clock: MockClock) -> None:
    async def moves(exchange: Exchange) -> None:
        for move in (exchange.set_read_deadline, exchange.set_write_deadline, exchange.set_handler_deadline):
            with pytest.raises(ValueError, match="NaN"):
                move(float("nan"))
        await answer(exchange)

    async with serving(moves) as site:
        assert (await (await site.connect()).get()).status == 200


@pytest.mark.parametrize(
    ("work", "asked", "timeouts"),
    [
        (after(40, whole_body), post(5), only(read=15)),
        (after(40, whole_body), post(5), only(body_grace=15)),
        (after(40, huge), GET, only(write=15)),
    ],
    ids=["read", "body_grace", "write"],
)
async def test_what_was_due_before_the_handler_asked_is_cut_then_and_not_late(
    work: Handler, asked: bytes, timeouts: Timeouts, autojump_clock: MockClock
) -> None:
    async with serving(work, timeouts) as site:
        client = await site.connect()
        await client.send(asked)
        record = await site.ended()
        assert (record.lateness, site.server.statistics().worst_lateness) == (0.0, 0.0)


@pytest.mark.parametrize("passed", [-INF, 2.0])
@pytest.mark.parametrize(
    ("work", "move", "asked"),
    [
        (whole_body, Exchange.set_read_deadline, post(5)),
        (huge, Exchange.set_write_deadline, GET),
        (never, Exchange.set_handler_deadline, GET),
    ],
    ids=["read", "write", "handler"],
)
@pytest.mark.parametrize("waits", [False, True], ids=["before", "meanwhile"])
async def test_a_deadline_in_the_past_is_not_late(
    passed: float,
    work: Handler,
    move: Callable[[Exchange, float], None],
    asked: bytes,
    waits: bool,
    autojump_clock: MockClock,
) -> None:
    async def moves(exchange: Exchange) -> None:
        async def later() -> None:
            await trio.sleep(5)
            move(exchange, passed)

        async with trio.open_nursery() as nursery:
            if waits:
                nursery.start_soon(later)
            else:
                await later()
            await work(exchange)

    async with serving(moves, only()) as site:
        client = await site.connect()
        await client.send(asked)
        record = await site.ended()
        assert (record.elapsed, record.lateness) == (5.0, 0.0)
