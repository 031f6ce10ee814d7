"""Receives of a handler that end early, on every event loop: cancelled, cut by a deadline, or refused."""

from __future__ import annotations

import logging

import pytest

from deadlined import BusyResourceError
from deadlined.http import Disconnected, Exchange, Phase, Reason
from deadlined.http.policy import DISCONNECT_GRACE
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import CHUNKED_POST, GET, answer, chunk, hello, post

# more than sixteen receives in a row, after which others must run
LONG = bytes(range(256)) * 2**14
CHUNKS = b"".join(chunk(LONG[at : at + 2**16]) for at in range(0, len(LONG), 2**16)) + chunk(b"")

# a chunk that is a piece of its own
LONG_PIECE = bytes(4096)

# receives that wait in vain
PATIENCE = 20_000

# half a body, a piece that is no chunk, and the status by which the client is told
CUTS = [
    pytest.param(post(9) + b"half", b"", 408, Reason.BODY_RATE, id="late"),
    pytest.param(CHUNKED_POST, b"no chunk\r\n", 400, Reason.PROTOCOL_ERROR, id="invalid"),
]


@on_each_loop
@pytest.mark.parametrize("request_bytes", [post(len(LONG)) + LONG, CHUNKED_POST + CHUNKS], ids=["length", "chunked"])
async def test_a_cancelled_receive_loses_no_bytes(loop: Loop, request_bytes: bytes) -> None:
    """Neither where it waits for the client, nor where it only lets others run."""
    cancelled = 0
    received = bytearray()

    async def impatient(exchange: Exchange) -> None:
        nonlocal cancelled
        async with loop.tasks() as own:
            while not exchange.body_done:
                receiving = own.start(exchange.receive)
                await loop.step()
                receiving.cancel()
                await receiving.wait()
                cancelled += receiving.cancelled
                assert cancelled < PATIENCE, "some of the body is lost"
                received.extend(receiving.result or b"")
        await answer(exchange)

    async with site_of(loop, impatient) as (site, tasks):
        client = await site.connect()
        sending = tasks.start(client.send, request_bytes)
        assert (await client.response("POST")).status == 200
        await sending.succeeds()
    assert cancelled
    assert received == LONG


@on_each_loop
@pytest.mark.parametrize("asks_twice", [True, False])
async def test_receives_that_are_cancelled_do_not_move_the_deadline_of_a_body(loop: Loop, asks_twice: bool) -> None:
    """The time between two receives does; a handler that asks again and again, or twice at once, waits all the time."""

    async def impatient(exchange: Exchange) -> None:
        await loop.sleep(8)
        async with loop.tasks() as own:
            for _ in range(40):
                receiving = own.start(exchange.receive)
                await loop.sleep(0.5)
                if asks_twice:
                    with pytest.raises(BusyResourceError):
                        await exchange.receive()
                receiving.cancel()
                await receiving.wait()

    async with site_of(loop, impatient, body_grace=4) as (site, _):
        due = loop.after(12)
        client = await site.connect()
        await client.send(post(9))
        assert (await client.response("POST")).status == 408
        assert loop.is_at(due)
        assert await site.reason() is Reason.BODY_RATE


@on_each_loop
@pytest.mark.parametrize("in_child", [True, False])
@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize(("begun", "rest", "status", "reason"), CUTS)
async def test_a_handler_that_goes_on_after_its_body_was_cut_keeps_no_connection(
    loop: Loop, begun: bytes, rest: bytes, status: int, reason: Reason, cancels: bool, in_child: bool
) -> None:
    """As one that takes the disconnect for the end of the body, and then waits for something else. Starlette's
    middleware receives in a child task."""
    ended: list[str] = []

    async def receives_to_the_end(exchange: Exchange) -> None:
        try:
            while await exchange.receive():
                pass
        except Disconnected:
            ended.append("told")

    async def takes_it_for_the_end(exchange: Exchange) -> None:
        if in_child:
            async with loop.tasks() as own:
                own.start(receives_to_the_end, exchange)
                await loop.settle()
                await sleeps_long()
        await receives_to_the_end(exchange)
        await sleeps_long()

    async def sleeps_long() -> None:
        try:
            await loop.sleep(3600)
        except BaseException:
            ended.append("cancelled")
            raise

    async with site_of(loop, takes_it_for_the_end, body_grace=4, cancel_on_disconnect=cancels) as (site, _):
        client = await site.connect()
        await client.send(begun)
        await loop.settle()
        await client.send(rest)
        assert (await client.response("POST")).status == status
        client.conn.close()
        assert await site.reason() is reason
        assert site.server.statistics().open == 0
        assert [record.status for record in site.requests] == [status]
        if cancels:
            await site.until(lambda: ended == ["told", "cancelled"])
        else:
            await loop.sleep(2 * DISCONNECT_GRACE)
            assert ended == ["told"]


async def is_reset_for_an_invalid_body(loop: Loop, site: Site) -> None:
    """Begin a body and go on with what is none, to a handler that has begun its response."""
    client = await site.connect()
    await client.send(CHUNKED_POST)
    await loop.settle()
    await client.send(b"no chunk\r\n")
    assert await site.reason() is Reason.PROTOCOL_ERROR
    assert await client.end() == "reset"


@on_each_loop
async def test_a_handler_that_answers_and_has_an_invalid_body_is_cancelled_after_a_moment(loop: Loop) -> None:
    async def answers_first(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"first", True)
        with pytest.raises(Disconnected):
            await exchange.receive()
        await loop.sleep(3600)

    async with site_of(loop, answers_first) as (site, _):
        await is_reset_for_an_invalid_body(loop, site)


@on_each_loop
async def test_a_handler_that_gives_up_a_receive_is_in_the_phase_of_handlers(loop: Loop) -> None:
    seen: list[tuple[Phase, float]] = []

    def look() -> None:
        (connection,) = site.server.connections()
        seen.append((connection.phase, connection.left))

    async def impatient(exchange: Exchange) -> None:
        async with loop.tasks() as own:
            receiving = own.start(exchange.receive)
            await loop.sleep(1)
            look()
            receiving.cancel()
            await receiving.wait()
        await loop.sleep(10)
        look()
        exchange.set_handler_deadline(loop.after(9000))
        look()
        await answer(exchange)

    async with site_of(loop, impatient, body_grace=400, handler=1000) as (site, _):
        client = await site.connect()
        await client.send(post(9))
        assert (await client.response("POST")).status == 200
    assert [phase for phase, _ in seen] == [Phase.BODY, Phase.HANDLER, Phase.HANDLER]
    if loop.is_virtual:
        assert [left for _, left in seen] == pytest.approx([399, 989, 9000], abs=0.1)


@on_each_loop
async def test_a_receive_that_is_given_up_leaves_a_send_that_waits_in_its_phase(loop: Loop) -> None:
    seen: list[Phase] = []

    async def sends_and_receives(exchange: Exchange) -> None:
        async with loop.tasks() as own:
            receiving = own.start(exchange.receive)
            await loop.settle()
            exchange.start(200, [])
            own.start(exchange.send, bytes(2**23), False)
            await loop.settle()
            receiving.cancel()
            await receiving.wait()
            seen.append(site.server.connections()[0].phase)

    async with site_of(loop, sends_and_receives, send_buffer=4096) as (site, _):
        client = await site.connect(receive_buffer=4096)
        await client.send(post(9))
        await site.until(lambda: seen)
    assert seen == [Phase.WRITE]


@on_each_loop
async def test_a_read_deadline_reaches_a_receive_beside_a_send_that_waits(loop: Loop) -> None:
    late: list[bool] = []

    async def sends_and_receives(exchange: Exchange) -> None:
        async with loop.tasks() as own:
            receiving = own.start(exchange.receive)
            await loop.settle()
            exchange.start(200, [])
            sending = own.start(exchange.send, bytes(2**23), False)
            await loop.settle()
            assert (sending.pending, site.server.statistics().phases) == (True, {Phase.WRITE: 1})
            when = loop.after(5)
            exchange.set_read_deadline(when)
            await receiving.fails_with(Disconnected)
            late.append(loop.is_at(when))

    async with site_of(loop, sends_and_receives, send_buffer=4096) as (site, _):
        client = await site.connect(receive_buffer=4096)
        await client.send(post(9))
        await site.until(lambda: late)
    assert late == [True]


@on_each_loop
async def test_a_write_deadline_reaches_a_send_beside_a_receive_that_waits(loop: Loop) -> None:
    ends: list[bool] = []

    async def sends_and_receives(exchange: Exchange) -> None:
        async with loop.tasks() as own:
            exchange.start(200, [])
            sending = own.start(exchange.send, bytes(2**23), False)
            await loop.settle()
            receiving = own.start(exchange.receive)
            await loop.settle()
            assert (sending.pending, site.server.statistics().phases) == (True, {Phase.BODY: 1})
            when = loop.after(2)
            exchange.set_write_deadline(when)
            await receiving.fails_with(Disconnected)
            ends.append(loop.is_at(when))

    async with site_of(loop, sends_and_receives, send_buffer=4096, cancel_on_disconnect=False) as (site, _):
        client = await site.connect(receive_buffer=4096)
        await client.send(post(9))
        await site.until(lambda: ends)
    assert ends == [True]


@on_each_loop
async def test_the_disconnect_of_another_client_is_a_failure_of_the_handler(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    others: list[Exchange] = []

    async def tells_the_others(exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            exchange.start(200, [])
            others.append(exchange)
            await exchange.wait_disconnected()
            return
        for other in others:
            await other.send(b"news", True)
        await hello(exchange)

    async with site_of(loop, tells_the_others) as (site, _):
        other = await site.connect()
        await other.send(post(0))
        await loop.settle()
        other.reset()
        await site.reason()
        with caplog.at_level(logging.ERROR):
            response = await (await site.connect()).get(GET)
        assert response.status == 500
        assert "GET / failed" in caplog.messages


@on_each_loop
async def test_a_handler_that_has_answered_is_not_cancelled_for_a_late_body(loop: Loop) -> None:
    done: list[str] = []

    async def answers_and_receives(exchange: Exchange) -> None:
        await answer(exchange)
        with pytest.raises(Disconnected):
            while await exchange.receive():
                pass
        await loop.sleep(3 * DISCONNECT_GRACE)
        done.append("returned")

    async with site_of(loop, answers_and_receives, body_grace=4) as (site, _):
        client = await site.connect()
        await client.send(post(9) + b"half")
        assert (await client.response("POST")).status == 200
        assert await site.reason() is Reason.BODY_RATE
        await site.until(lambda: done)


@on_each_loop
async def test_a_client_that_does_not_read_is_cut_although_its_handler_goes_on(loop: Loop) -> None:
    told: list[str] = []

    async def sends_on(exchange: Exchange) -> None:
        exchange.start(200, [])
        with pytest.raises(Disconnected):
            await exchange.send(bytes(2**23), False)
        told.append("told")
        await loop.sleep(3600)

    async with site_of(
        loop, sends_on, send_buffer=4096, cancel_on_disconnect=False, write_grace=2, write_min_rate=float("inf")
    ) as (site, _):
        client = await site.connect(receive_buffer=4096)
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert (told, site.server.statistics().open) == (["told"], 0)


@on_each_loop
async def test_two_tasks_do_not_receive_at_once(loop: Loop) -> None:
    async def receives_twice(exchange: Exchange) -> None:
        async with loop.tasks() as own:
            first = own.start(exchange.wait_disconnected)
            await loop.settle()
            with pytest.raises(BusyResourceError):
                await exchange.wait_disconnected()
            assert (first.pending, exchange.reads) == (True, True)
            await answer(exchange)
            await first.succeeds()

    async with site_of(loop, receives_twice) as (site, _):
        assert (await (await site.connect()).get()).status == 200


@on_each_loop
async def test_a_handler_that_returns_when_its_body_is_invalid_has_not_failed(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def gives_up(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(b"first", True)
        with pytest.raises(Disconnected):
            await exchange.receive()

    with caplog.at_level(logging.INFO):
        async with site_of(loop, gives_up) as (site, _):
            await is_reset_for_an_invalid_body(loop, site)
    assert caplog.messages == []


@on_each_loop
@pytest.mark.parametrize(
    ("first", "rest"),
    [(post(6) + b"abc", b"def"), (CHUNKED_POST + chunk(LONG_PIECE) + chunk(b"def") + chunk(b""), b"")],
    ids=["length", "chunked"],
)
async def test_a_body_that_the_connection_has_discarded_is_not_taken_for_received(
    loop: Loop, first: bytes, rest: bytes
) -> None:
    """A handler that passes it on would take it for whole."""
    received: list[bytes] = []
    told: list[bool] = []

    async def handler(exchange: Exchange) -> None:
        if exchange.request.method != "POST":
            await answer(exchange)
            return
        received.append(await exchange.receive())
        await answer(exchange)
        await loop.sleep(5)
        told.append(exchange.body_done)
        with pytest.raises(Disconnected):
            await exchange.receive()
        told.append(exchange.body_done)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(first)
        assert (await client.response("POST")).status == 200
        await client.send(rest)
        # the next request goes on without the handler
        assert (await client.get(GET)).status == 200
        await site.until(lambda: len(told) == 2)
    assert received == [b"abc" if rest else LONG_PIECE]
    assert told == [False, False]


@on_each_loop
async def test_an_end_of_chunks_that_the_connection_reads_completes_what_was_received(loop: Loop) -> None:
    """All of the body was."""
    done: list[bool] = []
    ended = False

    async def handler(exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            assert await exchange.receive() == b"abc"
            done.append(exchange.body_done)
            while not ended:
                await loop.step()
        await answer(exchange)
        if exchange.request.method == "POST":
            await loop.sleep(5)
            assert await exchange.receive() == b""
            done.append(exchange.body_done)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await client.send(CHUNKED_POST + chunk(b"abc"))
        while not done:
            await loop.step()
        await client.send(chunk(b""))
        ended = True
        assert (await client.response("POST")).status == 200
        assert (await client.get(GET)).status == 200
        await site.until(lambda: len(done) == 2)
    assert done == [False, True]
