"""A limit of requests that are handled at once: who waits, in which order, for how long, and that no place is lost."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
import trio

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Exchange, Limits, Reason, Refusal, Route
from deadlined.http.admission import Admission
from deadlined.http.timeouts import INF
from deadlined.runtime import current_host
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import Client, Response, answer, post, whole_body
from tests.support.websocket import HANDSHAKE

ONE = Limits(max_running=1)


class Held:
    """A handler whose requests end when they are told to. `began`: the targets of those that have begun."""

    def __init__(self, loop: Loop) -> None:
        self.began: list[str] = []
        self._loop = loop
        self._ends: dict[str, Any] = {}

    async def __call__(self, exchange: Exchange) -> None:
        target = exchange.request.target.decode()
        self.began.append(target)
        if target == "/body":
            await answer(exchange, await whole_body(exchange))
        elif target == "/fails":
            raise ValueError("as wanted")
        elif target == "/after":
            await answer(exchange)
            await self._hold(target)
        else:
            if target != "/now":
                await self._hold(target)
            await answer(exchange, target.encode())

    def end(self, target: str) -> None:
        self._ends[target].set()

    async def _hold(self, target: str) -> None:
        self._ends[target] = self._loop.event()
        await self._ends[target].wait()


def get(target: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "host: x", *fields, "", ""]).encode()


def counts(site: Site) -> tuple[int, int]:
    """Return how many requests run and wait."""
    found = site.server.statistics().admission
    assert found is not None
    return found.running, found.waiting


def refused(site: Site) -> dict[Refusal, int]:
    found = site.server.statistics().admission
    assert found is not None
    return {why: number for why, number in found.refused.items() if number}


async def asking(site: Site, target: str, *fields: str) -> Client:
    """Return a client that has sent a request, which runs or waits."""
    before = sum(counts(site))
    client = await site.connect()
    await client.send(get(target, *fields))
    await site.until(lambda: sum(counts(site)) == before + 1)
    return client


def assert_refused(response: Response) -> None:
    assert (response.status, json.loads(response.body)["reason"]) == (503, "overloaded")
    assert int(response.headers["retry-after"]) > 0


# without a limit


@on_each_loop
async def test_without_a_limit_the_handler_is_called_directly(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held) as (site, _):
        assert site.server._settings.serve is held
        assert site.server.statistics().admission is None


@on_each_loop
async def test_raw_connections_are_not_limited(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, raw=True) as (site, _):
        assert site.server._settings.serve is held


# the queue


@on_each_loop
async def test_requests_have_their_turn_in_the_order_of_their_arrival(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, Limits(max_running=2)) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(6)]
        assert counts(site) == (2, 4)
        for number in (1, 0, 2, 3, 4, 5):
            held.end(f"/{number}")
            assert (await clients[number].response()).body == b"/%d" % number
        assert held.began == [f"/{number}" for number in range(6)]
        assert (counts(site), refused(site)) == ((0, 0), {})


@on_each_loop
async def test_one_that_comes_does_not_overtake_those_who_wait(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        first, waiting = [await asking(site, target) for target in ("/0", "/1")]
        held.end("/0")
        # on the same connection, before anybody else can move
        await first.send(get("/now"))
        held_first = await first.response()
        await site.until(lambda: "/1" in held.began)
        assert (held_first.body, held.began) == (b"/0", ["/0", "/1"])
        held.end("/1")
        assert (await waiting.response()).body == b"/1"
        assert (await first.response()).body == b"/now"


@on_each_loop
async def test_one_that_has_waited_too_long_is_a_503_and_its_connection_goes_on(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, request_queue=10) as (site, _):
        first = await asking(site, "/0")
        due = loop.after(10)
        second = await asking(site, "/1")
        response = await second.response()
        assert loop.is_at(due)
        assert_refused(response)
        assert not response.closes
        held.end("/0")
        assert (await first.response()).status == 200
        assert (await second.get(get("/now"))).body == b"/now"
        assert held.began == ["/0", "/now"]
        assert refused(site) == {Refusal.QUEUE_TIMEOUT: 1}
        await site.until(lambda: len(site.requests) == 3)
        assert [(one.target, one.status, one.refused) for one in site.requests] == [
            ("/1", 503, Refusal.QUEUE_TIMEOUT),
            ("/0", 200, None),
            ("/now", 200, None),
        ]


@on_each_loop
async def test_a_refusal_that_is_not_observed_is_not_recorded_of_a_later_request(loop: Loop) -> None:
    held = Held(loop)
    routes = [Route("/1", frozenset(), {}, observed=False), Route("/now", frozenset(), {"max_running": INF})]
    async with site_of(loop, held, ONE, routes=routes, request_queue=0) as (site, _):
        await asking(site, "/0")
        client = await site.connect()
        assert_refused(await client.get(get("/1")))
        assert (await client.get(get("/now"))).status == 200
        await site.until(lambda: len(site.requests) == 1)
        assert [(one.target, one.refused) for one in site.requests] == [("/now", None)]
        held.end("/0")


@on_each_loop
async def test_beyond_the_length_of_the_queue_one_is_refused_at_once(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, Limits(max_running=1, max_waiting=1)) as (site, _):
        for target in ("/0", "/1"):
            await asking(site, target)
        third = await site.connect()
        assert_refused(await third.get(get("/2")))
        assert (counts(site), refused(site)) == ((1, 1), {Refusal.QUEUE_FULL: 1})


@on_each_loop
async def test_a_queue_of_0_seconds_lets_none_wait(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, request_queue=0) as (site, _):
        await asking(site, "/0")
        second = await site.connect()
        assert_refused(await second.get(get("/1")))
        assert (counts(site), held.began) == ((1, 0), ["/0"])


@on_each_loop
async def test_of_a_body_nothing_is_read_while_its_request_waits(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, body_grace=5, body_min_rate=INF) as (site, _):
        first = await asking(site, "/0")
        head = post(100_000).replace(b"/", b"/body", 1)
        second = await site.connect()
        await second.send(head)
        await site.until(lambda: counts(site) == (1, 1))
        second.push(bytes(100_000))
        # the deadline of the body stands still
        await loop.sleep(20)
        assert site.server.statistics().received == len(get("/0")) + len(head)
        held.end("/0")
        assert (await first.response()).status == 200
        assert (await second.response("POST")).body == bytes(100_000)


# who leaves


@on_each_loop
async def test_one_whose_client_resets_while_it_waits_takes_nobodys_turn(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(3)]
        clients[1].reset()
        await site.until(lambda: counts(site) == (1, 1))
        held.end("/0")
        await site.until(lambda: "/2" in held.began)
        held.end("/2")
        assert (await clients[2].response()).body == b"/2"
        assert (held.began, counts(site)) == (["/0", "/2"], (0, 0))


@on_each_loop
async def test_one_whose_client_resets_in_the_moment_of_its_turn_passes_it_on(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(3)]
        held.end("/0")
        clients[1].reset()
        await site.until(lambda: "/2" in held.began)
        held.end("/2")
        assert (await clients[2].response()).body == b"/2"
        assert counts(site) == (0, 0)


@on_each_loop
async def test_a_turn_that_is_given_to_one_that_is_cancelled_in_the_same_step_is_passed_on(loop: Loop) -> None:
    exchanges: list[Exchange] = []

    async def handler(exchange: Exchange) -> None:
        exchanges.append(exchange)
        await loop.forever()

    async with site_of(loop, handler) as (site, tasks):
        for number in range(3):
            await (await site.connect()).send(get("/"))
            await site.until(lambda number=number: len(exchanges) == number + 1)  # type: ignore[misc]
        admission = Admission(current_host().clock, ONE)
        assert admission.enter(exchanges[0])
        first = tasks.start(admission.wait, exchanges[1], INF)
        await loop.settle()
        second = tasks.start(admission.wait, exchanges[2], INF)
        await loop.settle()
        admission.leave(exchanges[0])
        first.cancel()
        await first.wait()
        if not first.cancelled:
            # on trio a wake that has come first wins
            assert await first.succeeds() is None
            admission.leave(exchanges[1])
        assert await second.succeeds() is None
        # once only, however often it is given back
        admission.leave(exchanges[2])
        admission.leave(exchanges[2])
        found = admission.statistics()
        assert found is not None
        assert (found.running, found.waiting) == (0, 0)


@on_each_loop
@pytest.mark.parametrize("cancels", [True, False])
async def test_one_whose_client_has_ended_its_side_gets_a_503_in_place_of_its_turn(loop: Loop, cancels: bool) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, cancel_on_disconnect=cancels) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(3)]
        await clients[1].conn.send_eof()
        await loop.sleep(0.2)
        held.end("/0")
        assert_refused(await clients[1].response())
        await site.until(lambda: "/2" in held.began)
        assert (held.began, refused(site)) == (["/0", "/2"], {Refusal.CLIENT_LEFT: 1})
        held.end("/2")
        assert (await clients[2].response()).body == b"/2"


@on_each_loop
async def test_one_whose_client_has_ended_its_side_leaves_the_queue_after_a_second(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(2)]
        await clients[1].conn.send_eof()
        assert await site.reason() is Reason.CLIENT_CLOSED
        await loop.settle()
        assert (counts(site), held.began) == ((1, 0), ["/0"])


# other deadlines


@on_each_loop
async def test_the_wait_is_part_of_the_handlers_time(loop: Loop) -> None:
    held = Held(loop)
    routes = [Route("/0", frozenset(), {"handler": INF})]
    async with site_of(loop, held, ONE, routes=routes, handler=3) as (site, _):
        await asking(site, "/0")
        due = loop.after(3)
        second = await asking(site, "/1")
        response = await second.response()
        assert loop.is_at(due)
        await loop.settle()
        assert (response.status, counts(site), held.began) == (504, (1, 0), ["/0"])


@pytest.mark.parametrize("fields", [(), ("connection: upgrade", "upgrade: h2c")], ids=["plain", "another upgrade"])
@on_each_loop
async def test_the_time_that_a_client_gives_runs_while_it_waits(loop: Loop, fields: tuple[str, ...]) -> None:
    began: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.append(scope["path"])
        await loop.forever()

    handler = AsgiHandler(app, trust_deadline_headers=True)
    async with site_of(loop, handler, ONE, before_wait=handler.before_wait) as (site, _):
        await asking(site, "/0")
        due = loop.after(3)
        second = await asking(site, "/1", f"request-timeout: {loop.seconds(3)}", *fields)
        response = await second.response()
        assert loop.is_at(due)
        assert (response.status, began) == (504, ["/0"])


@on_each_loop
async def test_a_route_has_a_wait_of_its_own_or_no_limit(loop: Loop) -> None:
    held = Held(loop)
    routes = [
        Route("/now", frozenset(), {"max_running": INF}),
        Route("/1", frozenset(), {"request_queue": loop.seconds(2)}),
    ]
    async with site_of(loop, held, ONE, routes=routes, request_queue=10) as (site, _):
        await asking(site, "/0")
        due = loop.after(2)
        second = await asking(site, "/1")
        assert (await (await site.connect()).get(get("/now"))).body == b"/now"
        assert_refused(await second.response())
        assert loop.is_at(due)


# what gives a place back


@on_each_loop
async def test_a_handler_that_fails_or_is_cancelled_gives_its_place_back(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        assert (await (await site.connect()).get(get("/fails"))).status == 500
        (await asking(site, "/0")).reset()
        await site.until(lambda: counts(site) == (0, 0))
        assert (await (await site.connect()).get(get("/now"))).body == b"/now"
        assert counts(site) == (0, 0)


@on_each_loop
async def test_what_runs_after_its_response_keeps_its_place(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE) as (site, _):
        client = await site.connect()
        assert (await client.get(get("/after"))).status == 200
        await client.send(get("/now"))
        await site.until(lambda: counts(site) == (1, 1))
        held.end("/after")
        assert (await client.response()).body == b"/now"
        await site.until(lambda: counts(site) == (0, 0))


@on_each_loop
async def test_a_websocket_has_a_place_until_it_is_accepted(loop: Loop) -> None:
    accepts = [loop.event() for _ in range(3)]
    asked: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope)
        await receive()
        await accepts[len(asked) - 1].wait()
        await send({"type": "websocket.accept"})
        await receive()

    async with site_of(loop, AsgiHandler(app), ONE, request_queue=10) as (site, _):
        clients = [await site.connect() for _ in range(3)]
        for number, client in enumerate(clients[:2], 1):
            await client.send(HANDSHAKE)
            await site.until(lambda number=number: sum(counts(site)) == number)  # type: ignore[misc]
        assert len(asked) == 1
        accepts[0].set()
        assert (await clients[0].receive()).startswith(b"HTTP/1.1 101")
        await site.until(lambda: len(asked) == 2)
        await clients[2].send(HANDSHAKE)
        # the second does not accept
        assert_refused(await clients[2].response())
        assert (counts(site), len(asked)) == ((1, 0), 2)
        accepts[1].set()
        assert (await clients[1].receive()).startswith(b"HTTP/1.1 101")
        assert counts(site) == (0, 0)


# changes of the server


@on_each_loop
async def test_a_drain_serves_those_who_wait_and_answers_the_others_in_its_first_half(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, drain=20) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(3)]
        due = loop.after(10)
        site.server.shutdown()
        held.end("/0")
        assert (await clients[0].response()).closes
        response = await clients[2].response()
        assert loop.is_at(due)
        assert_refused(response)
        assert response.closes
        held.end("/1")
        response = await clients[1].response()
        assert (response.body, response.closes) == (b"/1", True)
        for client in clients:
            client.conn.close()
        await site.serving.wait()
        assert (site.server.was_cut, counts(site), held.began) == (False, (0, 0), ["/0", "/1"])


@on_each_loop
async def test_a_drain_makes_no_wait_longer(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, drain=20, request_queue=5) as (site, _):
        first = await asking(site, "/0")
        earliest = loop.after(5)
        second = await asking(site, "/1")
        latest = loop.after(5)
        site.server.shutdown()
        assert_refused(await second.response())
        assert earliest <= loop.after(0)
        if loop.is_virtual:
            assert loop.after(0) <= latest
        held.end("/0")
        assert (await first.response()).closes


@on_each_loop
async def test_a_drain_that_is_asked_for_again_makes_no_wait_longer(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, ONE, drain=20) as (site, _):
        first, second = [await asking(site, f"/{number}") for number in range(2)]
        third = await site.connect()
        await third.send(get("/2")[:-2])
        await loop.settle()
        due = loop.after(10)
        site.server.shutdown()
        await loop.sleep(4)
        site.server.shutdown(reuse_grace=0)
        await third.send(b"\r\n")
        for client in (second, third):
            assert_refused(await client.response())
            assert loop.is_at(due)
        held.end("/0")
        assert (await first.response()).closes


@on_each_loop
async def test_other_limits_hold_at_once_and_for_those_who_wait(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held) as (site, _):
        before = await site.connect()
        await before.send(get("/before"))
        await site.until(lambda: held.began)
        site.server.configure(limits=ONE)
        for number in range(4):
            await asking(site, f"/{number}")
        assert counts(site) == (1, 3)
        site.server.configure(limits=Limits(max_running=2))
        await site.until(lambda: sorted(held.began[1:]) == ["/0", "/1"])
        site.server.configure(limits=ONE)
        held.end("/0")
        await site.until(lambda: counts(site) == (1, 2))
        site.server.configure(limits=Limits())
        await site.until(lambda: sorted(held.began[1:]) == ["/0", "/1", "/2", "/3"])
        assert site.server._settings.serve is held
        assert counts(site) == (3, 0)
        for number in (1, 2, 3):
            held.end(f"/{number}")
        # as soon as none has a place, there is nothing to tell
        await site.until(lambda: site.server.statistics().admission is None)
        held.end("/before")
        assert (await before.response()).body == b"/before"


@on_each_loop
async def test_refusals_are_told_after_the_limit_is_gone(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, Limits(max_running=1, max_waiting=1)) as (site, _):
        clients = [await asking(site, f"/{number}") for number in range(2)]
        late = await site.connect()
        await late.send(get("/late"))
        assert_refused(await late.response())
        site.server.configure(limits=Limits())
        await site.until(lambda: len(held.began) == 2)
        for number, client in enumerate(clients):
            held.end(f"/{number}")
            assert (await client.response()).body == b"/%d" % number
        assert counts(site) == (0, 0)
        assert refused(site) == {Refusal.QUEUE_FULL: 1}


# all at once


@on_each_loop
async def test_no_place_is_lost_whatever_clients_do(loop: Loop) -> None:
    chance = random.Random(7)
    now = most = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            await loop.sleep(chance.choice((0, 0.1, 0.5)))
            if chance.random() < 0.1:
                raise ValueError("as wanted")
            await answer(exchange)
            await loop.sleep(chance.choice((0, 0.3)))
        finally:
            now -= 1

    async def client(site: Site) -> int | None:
        await loop.sleep(chance.random() * 5)
        one = await site.connect()
        await one.send(get("/"))
        leaves = chance.choice(("no", "no", "reset", "close", "eof"))
        if leaves != "no":
            await loop.sleep(chance.random())
        if leaves == "reset":
            one.reset()
        elif leaves == "close":
            one.conn.close()
        else:
            if leaves == "eof":
                await one.conn.send_eof()
            with suppress(EOFError, trio.BrokenResourceError):
                return (await one.response()).status
        return None

    async with site_of(loop, handler, Limits(max_running=3, max_waiting=40), request_queue=2) as (site, tasks):
        started = [tasks.start(client, site) for _ in range(150)]
        statuses = [await one.succeeds() for one in started]
        await site.until(lambda: counts(site) == (0, 0))
        assert (most, now) == (3, 0)
        assert {200, 503} <= set(statuses) <= {200, 500, 503, 504, None}
        assert (await (await site.connect()).get(get("/"))).status in (200, 500)
