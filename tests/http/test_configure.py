"""A server that is given other options, or other listeners, while it serves."""

from __future__ import annotations

import math
import ssl
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from deadlined import open_tcp_listeners
from deadlined.http import Exchange, Limits, Reason, Route
from deadlined.http.policy import RULES
from deadlined.net import Listener
from tests.support.http import GET, Site, echo, hello, only, post, serving

# more than the kernels hold
BIG = 64 << 20


async def one_more(site: Site) -> Listener:
    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    site.server.add_listener(listener)
    return listener


async def asked(port: int) -> bytes:
    """The answer to a request on a connection of its own."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join([data async for data in stream])


def port_of(listener: Listener) -> int:
    return int(listener.socket.getsockname()[1])


# timeouts and limits


@pytest.mark.parametrize("before", [75.0, float("inf")])
async def test_an_idle_connection_waits_as_long_as_the_new_timeout_from_now_on(
    before: float, autojump_clock: MockClock
) -> None:
    async with serving(timeouts=only(idle=before)) as site:
        client = await site.connect()
        await client.get()
        await trio.sleep(3)
        site.server.configure(timeouts=only(idle=5))
        begun = trio.current_time()
        assert await client.receive() == b""
        # the server waits a little longer than it says
        assert 5 <= trio.current_time() - begun < 7


async def test_a_longer_idle_timeout_holds_for_the_current_wait_as_well(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=5)) as site:
        client = await site.connect()
        await client.get()
        site.server.configure(timeouts=only(idle=100))
        await trio.sleep(50)
        assert (await client.get()).status == 200


async def test_other_options_do_not_make_an_idle_connection_wait_again(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=5)) as site:
        client = await site.connect()
        await client.get()
        begun = trio.current_time()
        for _ in range(4):
            await trio.sleep(1)
            site.server.configure(timeouts=only(idle=5, handler=9), limits=Limits(max_body=7))
        assert await client.receive() == b""
        assert trio.current_time() - begun < 7


async def test_the_current_wait_of_a_request_keeps_its_deadline(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        await trio.sleep(10)
        await hello(exchange)

    async with serving(handler, only(handler=20)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        site.server.configure(timeouts=only(handler=2))
        assert (await client.response()).status == 200
        # and the next one has the new one
        assert (await client.get()).status == 504


@pytest.mark.parametrize("shorter", [{"write_grace": 10}, {"write": 10}], ids=["grace", "write"])
async def test_a_send_that_waits_keeps_its_deadline_and_the_next_one_has_another(
    shorter: dict[str, float], autojump_clock: MockClock
) -> None:
    patient = only(write_grace=600, write_min_rate=1e12)

    async def sent(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(bytes(BIG), True)

    async with serving(sent, patient) as site:
        old = await site.connect(receive_buffer=4096)
        await old.send(GET)
        await trio.sleep(120)
        site.server.configure(timeouts=replace(patient, **shorter))
        new = await site.connect(receive_buffer=4096)
        await new.send(GET)
        await trio.sleep(400)
        assert [record.elapsed for record in site.records.connections] == [10]
        assert (await site.ended(2)).elapsed == 600


async def test_a_response_that_is_under_way_keeps_the_time_of_its_beginning(autojump_clock: MockClock) -> None:
    async def events(exchange: Exchange) -> None:
        exchange.start(200, [])
        for _ in range(20):
            await exchange.send(b"x", True)
            await trio.sleep(10)
        await exchange.send(b"", False)

    async with serving(events, only()) as site:
        old = await site.connect()
        await old.send(GET)
        await trio.sleep(100)
        site.server.configure(timeouts=only(write=60))
        assert (await old.response()).body == b"x" * 20
        new = await site.connect()
        await new.send(GET)
        assert (await site.ended()).elapsed == pytest.approx(60, abs=10)


@pytest.mark.parametrize("before", [math.inf, 600.0])
@pytest.mark.parametrize("shorter", ["read", "body_grace"])
async def test_a_body_that_is_under_way_keeps_the_times_of_its_beginning(
    shorter: str, before: float, autojump_clock: MockClock
) -> None:
    head = post(20)
    async with serving(echo, only(body_min_rate=math.inf, **{shorter: before})) as site:
        client = await site.connect()
        await client.send(head)
        for number in range(20):
            await trio.sleep(10)
            if number == 10:
                site.server.configure(timeouts=only(body_min_rate=math.inf, **{shorter: 60}))
            await client.send(b"x")
        assert (await client.response()).body == b"x" * 20
        await client.send(head)
        begun = trio.current_time()
        assert (await client.response()).status == 408
        assert trio.current_time() - begun == pytest.approx(60)


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("before", [math.inf, 600.0])
@pytest.mark.parametrize("shorter", ["read_header", "read"])
async def test_a_head_that_is_under_way_keeps_the_time_of_its_beginning(
    shorter: str, before: float, silent: bool, autojump_clock: MockClock
) -> None:
    # the first of a connection begins with it, as that of a browser which connects before it has a request
    async with serving(hello, only(**{shorter: before})) as site:
        old = await site.connect()
        if not silent:
            await old.send(GET[:5])
        await trio.sleep(100)
        site.server.configure(timeouts=only(**{shorter: 10}))
        await old.send(GET[:10] if silent else GET[5:10])
        await trio.sleep(20)
        await old.send(GET[10:])
        assert (await old.response()).status == 200
        await old.send(GET[:10])
        assert (await old.response()).status == 408
        ended = await site.ended()
        assert ended.elapsed == pytest.approx(130)
        assert ended.lateness < 0.01


@pytest.mark.parametrize("longer", ["read_header", "read"])
async def test_a_head_that_is_under_way_keeps_a_time_that_would_be_longer_now(
    longer: str, autojump_clock: MockClock
) -> None:
    async with serving(hello, only(**{longer: 10})) as site:
        client = await site.connect()
        await trio.sleep(5)
        site.server.configure(timeouts=only())
        await client.send(GET[:10])
        assert (await client.response()).status == 408
        ended = await site.ended()
        assert (ended.elapsed, ended.reason) == (10, RULES[longer].reason)


async def test_a_tls_handshake_that_is_under_way_keeps_the_time_of_its_beginning(autojump_clock: MockClock) -> None:
    async with serving(hello, only(handshake=600), tls=True) as site:
        old = await site.connect(tls=False)
        late = await site.connect(tls=False)
        await trio.sleep(100)
        site.server.configure(timeouts=only(handshake=10))
        assert (await (await site.shake_hands(old)).get()).status == 200
        await site.connect(tls=False)
        ended = await site.ended()
        assert (ended.elapsed, ended.reason) == (10, Reason.HANDSHAKE_TIMEOUT)
        site.server.configure(timeouts=only())
        assert await late.receive() == b""
        ended = await site.ended(2)
        assert (ended.elapsed, ended.reason, ended.lateness < 0.01) == (600, Reason.HANDSHAKE_TIMEOUT, True)


@pytest.mark.parametrize("limit", [4.0, 30.0, 600.0])
async def test_a_send_that_waits_without_a_limit_has_the_new_one_from_then_on(
    limit: float, autojump_clock: MockClock
) -> None:
    async def sent(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(bytes(BIG), True)

    async with serving(sent, only()) as site:
        client = await site.connect(receive_buffer=4096)
        await client.send(GET)
        await trio.sleep(1000)
        site.server.configure(timeouts=only(write_grace=limit, write_min_rate=1e12))
        ended = await site.ended()
    # from the next look at a send that waits, of which there is one each five seconds
    assert limit <= ended.elapsed - 1000 <= limit + 5
    assert ended.lateness < 0.01


async def test_a_limit_holds_for_the_next_request_of_an_open_connection(autojump_clock: MockClock) -> None:
    async with serving(hello, only(), limits=Limits(max_body=100)) as site:
        client = await site.connect()
        await client.get()
        site.server.configure(limits=Limits(max_body=5))
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n")
        assert (await client.response()).status == 413


async def test_routes_are_replaced(autojump_clock: MockClock) -> None:
    route = Route("/", frozenset(), {"max_body": 5})
    async with serving(hello, only(), routes=[route]) as site:
        client = await site.connect()
        site.server.configure(routes=())
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabcdef")
        assert (await client.response()).status == 200


async def test_routes_that_contradict_each_other_change_nothing(autojump_clock: MockClock) -> None:
    async with serving(hello, only(idle=5)) as site:
        twice = [Route("/a", frozenset(), {"max_body": 5})] * 2
        with pytest.raises(ValueError, match="/a"):
            site.server.configure(timeouts=only(idle=9), routes=twice)
        assert site.server.timeouts.idle == 5
        client = await site.connect()
        assert (await client.get()).headers["keep-alive"] == "timeout=5"


async def test_a_new_certificate_is_for_new_connections(autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        old = await site.connect()
        assert (await old.get()).status == 200
        unusable = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        site.server.configure(ssl_context=unusable)
        assert (await old.get()).status == 200
        with pytest.raises(trio.BrokenResourceError):
            await site.connect()


# listeners


async def test_a_listener_can_be_added_and_removed_while_others_go_on(autojump_clock: MockClock) -> None:
    async with serving() as site:
        listener = await one_more(site)
        port = port_of(listener)
        assert b"200 OK" in await asked(port)
        site.server.remove_listener(listener)
        site.server.remove_listener(listener)
        with pytest.raises(OSError, match="all attempts to connect"):
            await asked(port)
        assert b"200 OK" in await asked(site.port)


async def test_connections_that_wait_when_a_listener_is_removed_are_left_to_who_has_the_socket(
    autojump_clock: MockClock,
) -> None:
    async with serving() as site:
        (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
        port = port_of(listener)
        with listener.socket.dup() as kept:
            site.server.add_listener(listener)
            assert b"200 OK" in await asked(port)
            site.server.remove_listener(listener)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked, port)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert site.server.statistics().accepted == 1
                site.server.add_listener(Listener.from_socket(kept.dup()))
            assert site.server.statistics().accepted == 2


async def test_a_listener_that_comes_during_a_drain_is_closed(autojump_clock: MockClock) -> None:
    async with serving() as site:
        site.server.shutdown()
        listener = await one_more(site)
        assert listener.socket.fileno() == -1


# what a drain has cut


async def test_a_drain_that_ends_a_request_has_cut_something(autojump_clock: MockClock) -> None:
    async def handler(_: Exchange) -> None:
        await trio.sleep_forever()

    async with serving(handler, only(drain=5)) as site:
        client = await site.connect()
        await client.send(GET)
        await trio.sleep(1)
        site.server.shutdown()
        await trio.sleep(4)
        assert not site.server.was_cut
        await trio.sleep(2)
        assert site.server.was_cut


@pytest.mark.parametrize("drain", [0.0, 5.0])
async def test_one_that_closes_idle_connections_has_cut_nothing(drain: float, autojump_clock: MockClock) -> None:
    async with serving(hello, only(drain=drain)) as site:
        client = await site.connect()
        await client.get()
        site.server.shutdown()
        await trio.sleep(10)
        assert site.server.open_connections == 0
        assert not site.server.was_cut
