"""The HTTP server on every event loop: each timeout cuts when it must, keep-alive, pipelining, and the drain."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from deadlined import BrokenResourceError, Conn, current_time
from deadlined.http import Exchange, Limits, Phase, Reason
from tests.support.conformance import Loop, in_virtual_time, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import CHUNKED_POST, GET, LAST_GET, Client, answer, chunk, echo, hello, post, whole_body
from tests.support.net import LOCALHOST

HUGE = 16 * 2**20


@on_each_loop
async def test_requests_follow_each_other_on_a_connection(loop: Loop) -> None:
    async with site_of(loop, echo) as (site, _):
        client = await site.connect()
        for number in range(20):
            body = b"%d" % number
            await client.send(post(len(body)) + body)
            response = await client.response("POST")
            assert (response.status, response.body) == (200, body)
        assert site.server.statistics().accepted == 1
        await client.send(LAST_GET)
        assert (await client.response()).closes
        assert await client.end() == "eof"
        assert await site.reason() == Reason.DONE


@on_each_loop
async def test_pipelined_requests_are_answered_in_order(loop: Loop) -> None:
    async def slow_or_not(exchange: Exchange) -> None:
        target = exchange.request.target
        if int(target[1:]) % 3 == 0:
            await loop.sleep(1)
        await answer(exchange, target)

    async with site_of(loop, slow_or_not) as (site, _):
        client = await site.connect()
        await client.send(b"".join(GET.replace(b" / ", b" /%d " % number) for number in range(20)))
        assert [(await client.response()).body for _ in range(20)] == [b"/%d" % number for number in range(20)]


@on_each_loop
async def test_many_connections_are_served_at_once(loop: Loop) -> None:
    inside = 0

    async def together(exchange: Exchange) -> None:
        nonlocal inside
        inside += 1
        while inside < 30:
            await loop.step()
        await answer(exchange)

    async with site_of(loop, together) as (site, tasks):

        async def get() -> int:
            return (await (await site.connect()).get()).status

        for running in [tasks.start(get) for _ in range(30)]:
            assert await running.succeeds() == 200


@on_each_loop
async def test_a_chunked_body_comes_in_pieces_and_goes_in_pieces(loop: Loop) -> None:
    async def by_pieces(exchange: Exchange) -> None:
        body = await whole_body(exchange)
        exchange.start(200, [])
        for i in range(len(body)):
            await exchange.send(body[i : i + 1], True)
            await loop.step()
        await exchange.send(b"", False)

    async with site_of(loop, by_pieces) as (site, _):
        client = await site.connect()
        await client.send(CHUNKED_POST)
        for piece in (b"one", b"two", b""):
            await loop.sleep(1)
            await client.send(chunk(piece))
        assert (await client.response("POST")).body == b"onetwo"


@on_each_loop
async def test_a_large_response_waits_for_its_reader(loop: Loop) -> None:
    async def huge(exchange: Exchange) -> None:
        await answer(exchange, bytes(HUGE))

    async with site_of(loop, huge) as (site, _):
        client = await site.connect()
        for request in (GET, LAST_GET):
            await client.send(request)
            await loop.sleep(5)
            assert len((await client.response()).body) == HUGE
        assert await client.end() == "eof"
        assert await site.reason() == Reason.DONE


# each timeout


async def cut_at(when: float, site: Site, client: Client, reason: Reason) -> None:
    """Check that the server ends the connection at `when` and not before."""
    await client.end()
    assert site.loop.is_at(when)
    assert await site.reason() == reason


@on_each_loop
async def test_a_head_that_does_not_come_is_cut(loop: Loop) -> None:
    async with site_of(loop, hello, read_header=5) as (site, _):
        # before the server accepts, which it may do long before this task runs again
        when = loop.after(5)
        client = await site.connect()
        await loop.settle()
        await cut_at(when, site, client, Reason.HEADER_TIMEOUT)


@in_virtual_time
async def test_a_head_that_trickles_is_answered_408_at_the_same_time(loop: Loop) -> None:
    async with site_of(loop, hello, read_header=5) as (site, _):
        client = await site.connect()
        when = loop.after(5)
        for i in range(4):
            await client.send(GET[i : i + 1])
            await loop.sleep(1)
        response = await client.response()
        assert response.status == 408
        assert current_time() == when
        assert await site.reason() == Reason.HEADER_TIMEOUT


@in_virtual_time
async def test_a_body_slower_than_the_rate_is_cut_and_a_faster_one_is_not(loop: Loop) -> None:
    async with site_of(loop, echo, body_grace=5, body_min_rate=100) as (site, _):
        client = await site.connect()
        await client.send(post(1000))
        for _ in range(10):
            await loop.sleep(1)
            await client.send(bytes(100))
        assert (await client.response("POST")).status == 200
        start = current_time()
        head = post(1000)
        await client.send(head)
        await loop.sleep(1)
        await client.send(bytes(100))
        response = await client.response("POST")
        assert response.status == 408
        # start + grace + received / rate, where the bytes of earlier requests do not count
        assert current_time() == pytest.approx(start + 5 + 100 / 100, abs=2)
        assert await site.reason() == Reason.BODY_RATE


@on_each_loop
async def test_the_whole_request_has_a_deadline(loop: Loop) -> None:
    async with site_of(loop, echo, read=5) as (site, _):
        client = await site.connect()
        await client.send(post(1000))
        when = loop.after(4.5 if loop.is_virtual else 0)
        assert (await client.response("POST")).status == 408
        assert current_time() >= when
        client.conn.close()
        assert await site.reason() == Reason.READ_TIMEOUT


async def small_window(site: Site) -> Client:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((LOCALHOST, site.port))
    conn = Conn.from_socket(client)
    site._conns.append(conn)
    return Client(conn)


@on_each_loop
@pytest.mark.parametrize("request_", [GET, LAST_GET], ids=["kept", "last"])
@pytest.mark.parametrize("field", ["write_grace", "write"])
async def test_a_peer_that_does_not_read_is_reset(loop: Loop, field: str, request_: bytes) -> None:
    seen: list[str] = []

    async def huge(exchange: Exchange) -> None:
        try:
            await answer(exchange, bytes(HUGE))
        finally:
            seen.append("ended")

    limits: dict[str, Any] = {field: 5, "write_min_rate": 1e12}
    async with site_of(loop, huge, **limits) as (site, _):
        client = await small_window(site)
        when = loop.after(5)
        await client.send(request_)
        await site.until(lambda: site.connections)
        assert current_time() >= when
        assert loop.is_at(when) or current_time() - when < 0.5
        assert site.connections[0].reason == Reason.WRITE_TIMEOUT
        assert await client.end() == "reset"
        await site.until(lambda: seen)


@on_each_loop
async def test_an_idle_connection_is_closed(loop: Loop) -> None:
    async with site_of(loop, hello, idle=5) as (site, _):
        client = await site.connect()
        # one more real second than the time that is advertised
        when = current_time() + loop.seconds(5) + 1.0
        assert (await client.get()).status == 200
        assert await client.end() == "eof"
        assert loop.is_at(when)
        assert await site.reason() == Reason.IDLE_TIMEOUT


@on_each_loop
async def test_a_handler_that_does_not_answer_gives_504(loop: Loop) -> None:
    cancelled: list[float] = []

    async def never(exchange: Exchange) -> None:
        try:
            await loop.forever()
        finally:
            cancelled.append(current_time())

    async with site_of(loop, never, handler=5) as (site, _):
        client = await site.connect()
        when = loop.after(5)
        response = await client.get()
        assert response.status == 504
        assert loop.is_at(when)
        client.conn.close()
        assert await site.reason() == Reason.HANDLER_TIMEOUT
        assert len(cancelled) == 1
        assert (await (await site.connect()).get(LAST_GET)).status == 504


@on_each_loop
async def test_a_handler_that_has_begun_its_answer_is_reset(loop: Loop) -> None:
    async def half(exchange: Exchange) -> None:
        exchange.start(200, [(b"content-length", b"10")])
        await exchange.send(b"half", True)
        await loop.forever()

    async with site_of(loop, half, handler=5) as (site, _):
        client = await site.connect()
        await client.send(GET)
        with pytest.raises(BrokenResourceError):
            await client.response()
        assert await site.reason() == Reason.HANDLER_TIMEOUT


@on_each_loop
async def test_a_handler_moves_its_own_deadlines(loop: Loop) -> None:
    async def moves(exchange: Exchange) -> None:
        exchange.set_handler_deadline(loop.after(5000))
        await loop.sleep(10)
        exchange.set_handler_deadline(float("inf"))
        await answer(exchange)

    async with site_of(loop, moves, handler=5000 if not loop.is_virtual else 5) as (site, _):
        assert (await (await site.connect()).get()).status == 200


@on_each_loop
@pytest.mark.parametrize("when", [-float("inf"), -1e300, 0.0])
async def test_a_handler_ends_itself_by_a_past_deadline(loop: Loop, when: float) -> None:
    async def ends(exchange: Exchange) -> None:
        exchange.set_handler_deadline(when)
        await loop.forever()

    async with site_of(loop, ends) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 504
        client.conn.close()
        assert await site.reason() == Reason.HANDLER_TIMEOUT


@on_each_loop
async def test_a_handler_deadline_beyond_all_time_is_none(loop: Loop) -> None:
    async def far(exchange: Exchange) -> None:
        exchange.set_handler_deadline(1e307)
        await loop.sleep(1)
        await answer(exchange)

    async with site_of(loop, far) as (site, _):
        assert (await (await site.connect()).get()).status == 200


@on_each_loop
async def test_the_read_deadline_of_a_handler_cuts_the_body(loop: Loop) -> None:
    async def reads(exchange: Exchange) -> None:
        exchange.set_read_deadline(loop.after(5))
        await exchange.receive()

    async with site_of(loop, reads) as (site, _):
        client = await site.connect()
        await client.send(post(10))
        assert (await client.response("POST")).status == 408
        client.conn.close()
        assert await site.reason() == Reason.READ_TIMEOUT


@on_each_loop
async def test_bad_requests_are_refused_and_failures_answered(loop: Loop) -> None:
    async def fail(exchange: Exchange) -> None:
        await loop.step()
        raise LookupError("lost")

    async with site_of(loop, fail, limits=Limits(max_body=100)) as (site, _):
        client = await site.connect()
        assert (await client.get()).status == 500
        client = await site.connect()
        await client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 400


@on_each_loop
async def test_a_client_that_leaves_is_noticed(loop: Loop) -> None:
    seen: list[str] = []

    async def waits(exchange: Exchange) -> None:
        await exchange.wait_disconnected()
        seen.append("left")

    async with site_of(loop, waits) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER))
        client.conn.close()
        await site.until(lambda: seen)
        assert await site.reason() == Reason.CLIENT_CLOSED


# the drain


@on_each_loop
async def test_a_drain_closes_idle_connections_and_ends(loop: Loop) -> None:
    async with site_of(loop, hello, drain=3600) as (site, _):
        clients = [await site.connect() for _ in range(3)]
        for client in clients:
            assert (await client.get()).status == 200
        site.server.shutdown()
        for client in clients:
            assert await client.end() == "eof"
        await site.serving.succeeds()
        assert site.server.statistics().reasons == {Reason.DONE: 3}


@on_each_loop
async def test_a_drain_waits_for_the_handlers_that_run(loop: Loop) -> None:
    released = loop.event()

    async def waits(exchange: Exchange) -> None:
        await released.wait()
        await answer(exchange)

    async with site_of(loop, waits, drain=3600) as (site, tasks):
        client = await site.connect()
        getting = tasks.start(client.get)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER))
        site.server.shutdown()
        await loop.sleep(5)
        assert site.serving.pending
        assert getting.pending
        released.set()
        response = await getting.succeeds()
        assert (response.status, response.closes) == (200, True)
        await site.serving.succeeds()


@on_each_loop
@pytest.mark.parametrize("cut", [False, True])
async def test_a_drain_cuts_what_is_left_at_its_deadline_or_when_told(loop: Loop, cut: bool) -> None:
    ends: list[float] = []

    async def stuck(exchange: Exchange) -> None:
        try:
            await loop.forever()
        finally:
            ends.append(current_time())

    async with site_of(loop, stuck, drain=3600 if cut else 5) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER))
        when = loop.after(2 if cut else 5)
        site.server.shutdown()
        if cut:
            await loop.sleep(2)
            # uvloop's own sleep may end early by its cached clock
            when = when if loop.is_virtual else current_time()
            site.server.cut()
        await site.serving.succeeds()
        assert ends
        assert current_time() >= when
        assert not loop.is_virtual or current_time() == when
        assert await client.end() == "reset"
        assert site.connections[0].reason == Reason.DRAIN_TIMEOUT


@on_each_loop
async def test_a_cancelled_server_leaves_nothing(loop: Loop) -> None:
    async def stuck(exchange: Exchange) -> None:
        await loop.forever()

    async with site_of(loop, stuck) as (site, _):
        clients = [await site.connect() for _ in range(5)]
        for client in clients[:3]:
            await client.send(GET)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER) == 3)
        site.serving.cancel()
        await site.serving.wait()
        for client in clients:
            assert await client.end() == "reset"
        assert site.server.statistics().open == 0


@on_each_loop
async def test_a_handler_that_swallows_its_cancellation_does_not_hold_the_end_for_ever(loop: Loop) -> None:
    ran: list[str] = []

    async def stubborn(exchange: Exchange) -> None:
        for number in range(2):
            try:
                await loop.forever()
            except BaseException as error:
                ran.append(f"{number} {type(error).__name__}")
                if loop.is_trio:
                    raise

    async with site_of(loop, stubborn) as (site, _):
        client = await site.connect()
        await client.send(GET)
        await site.until(lambda: site.server.statistics().phases.get(Phase.HANDLER))
        site.serving.cancel()
        await site.serving.wait()
        assert len(ran) == (1 if loop.is_trio else 2)
