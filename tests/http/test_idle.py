"""Between two requests a connection is in no task: it rests, and is called when there is something to read."""

from __future__ import annotations

import gc
from contextvars import ContextVar

import pytest
import trio
from trio.lowlevel import Task, current_task
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import Exchange, Phase, Reason
from deadlined.http.policy import IDLE_GRACE, REUSE_GRACE
from deadlined.runtime import Parking
from tests.support.http import GET, LAST_GET, WORKER, Client, Site, answer, hello, living, only, post, serving


async def idle_clients(site: Site, number: int) -> list[Client]:
    """So many clients that have asked once, one after the other, and stay."""
    clients = []
    for _ in range(number):
        client = await site.connect()
        assert (await client.get()).status == 200
        clients.append(client)
    await wait_all_tasks_blocked()
    assert {info.phase for info in site.server.connections()} == {Phase.IDLE}
    return clients


class Slow:
    """A handler that sleeps for a second wherever it is asked for /slow, and remembers its tasks."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    async def __call__(self, exchange: Exchange) -> None:
        self.tasks.append(current_task())
        if exchange.request.target == b"/slow":
            await trio.sleep(1)
        await answer(exchange)


SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_idle_connections_are_in_no_task(tls: bool, autojump_clock: MockClock) -> None:
    async with serving(tls=tls) as site:
        before = living()
        clients = await idle_clients(site, 20)
        # the one task that has served them all, and rests
        assert living() == before + WORKER
        for client in clients:
            assert (await client.get()).status == 200
        assert living() == before + WORKER


async def test_what_connections_do_not_need_while_they_are_idle_does_not_exist(autojump_clock: MockClock) -> None:
    addresses = []

    async def remember(exchange: Exchange) -> None:
        addresses.append(exchange.server_address)
        await answer(exchange)

    def places_to_sleep() -> int:
        gc.collect()
        return sum(isinstance(found, Parking) for found in gc.get_objects())

    async with serving(remember) as site:
        before = places_to_sleep()
        await idle_clients(site, 20)
        # at most one for each direction of a client, which is of this process, too
        assert places_to_sleep() - before <= 2 * 20 + WORKER
    assert len({id(address) for address in addresses}) == 1


@pytest.mark.parametrize("hello", [False, True], ids=["before the handshake", "after it"])
async def test_a_new_connection_over_tls_is_in_no_task(hello: bool, autojump_clock: MockClock) -> None:
    async with serving(tls=True) as site:
        before = living()
        for _ in range(20):
            await site.connect(tls=hello)
        await wait_all_tasks_blocked()
        assert {info.phase for info in site.server.connections()} == {Phase.HEADER if hello else Phase.HANDSHAKE}
        assert living() <= before + (WORKER if hello else 0)


async def test_those_that_ask_at_once_are_served_by_one_task_in_one_turn(autojump_clock: MockClock) -> None:
    handler = Slow()
    async with serving(handler) as site:
        clients = await idle_clients(site, 10)
        handler.tasks.clear()
        for client in clients:
            await client.send(GET)
        for client in clients:
            assert (await client.response()).status == 200
        assert len(handler.tasks) == 10
        assert len(set(handler.tasks)) == 1


async def test_a_handler_that_sleeps_lets_those_behind_it_be_served(autojump_clock: MockClock) -> None:
    handler = Slow()
    async with serving(handler) as site:
        clients = await idle_clients(site, 10)
        handler.tasks.clear()
        for number, client in enumerate(clients):
            await client.send(GET if number % 2 else SLOW)
        began = trio.current_time()
        for client in clients[1::2]:
            assert (await client.response()).status == 200
        assert trio.current_time() == began
        for client in clients[::2]:
            assert (await client.response()).status == 200
        assert trio.current_time() == began + 1
        # five that sleep at the same time, and who serves the rest
        assert 5 <= len(set(handler.tasks)) <= 6


async def test_the_idle_deadline_of_one_that_rests_closes_it(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=5)) as site:
        (client,) = await idle_clients(site, 1)
        began = trio.current_time()
        assert await client.end() == "eof"
        assert trio.current_time() - began >= 5
        assert await site.reason() is Reason.IDLE_TIMEOUT


async def test_one_that_asks_before_it_is_served_and_not_cut_later(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=5)) as site:
        (client,) = await idle_clients(site, 1)
        for _ in range(3):
            await trio.sleep(4.9)
            assert (await client.get()).status == 200
        assert site.records.connections == []


@pytest.mark.parametrize(("leave", "reason"), [("eof", Reason.CLIENT_CLOSED), ("reset", Reason.CLIENT_RESET)])
async def test_a_peer_that_leaves_is_noticed_at_once(leave: str, reason: Reason, autojump_clock: MockClock) -> None:
    async with serving() as site:
        (client,) = await idle_clients(site, 1)
        if leave == "eof":
            await client.conn.aclose()
        else:
            client.reset()
        assert await site.reason() is reason
        assert site.server.statistics().open == 0


async def test_one_that_is_called_in_vain_rests_again(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=50)) as site:
        before = living()
        (client,) = await idle_clients(site, 1)
        (connection,) = site.server._connections
        for _ in range(3):
            # past, and moved away before anybody has looked
            connection.conn.set_read_deadline(0)
            connection.conn.set_read_deadline(trio.current_time() + 50)
            await wait_all_tasks_blocked()
            assert connection.phase is Phase.IDLE
            assert living() == before + WORKER
        assert (await client.get()).status == 200
        await client.conn.aclose()
        assert await site.reason() is Reason.CLIENT_CLOSED


async def test_half_a_request_is_waited_for_in_a_task_under_the_header_deadline(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(read_header=3)) as site:
        client, other = await idle_clients(site, 2)
        await client.send(GET[:5])
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert [info.phase for info in site.server.connections()] == [Phase.HEADER, Phase.IDLE]
        assert (await other.get()).status == 200
        assert (await client.response()).status == 408
        assert trio.current_time() == began + 3
        assert await site.reason() is Reason.HEADER_TIMEOUT


async def test_empty_lines_after_a_request_extend_nothing_and_begin_no_request(autojump_clock: MockClock) -> None:
    """Some clients end a body with one (RFC 9112, 2.2)."""
    async with serving(timeouts=only(idle=20, read_header=3)) as site:
        client = await site.connect()
        await client.send(post(1) + b"a\r\n")
        assert (await client.response()).status == 200
        (info,) = site.server.connections()
        deadline = trio.current_time() + info.left
        for _ in range(3):
            await trio.sleep(6)
            await client.send(b"\r\n\r\n")
            await wait_all_tasks_blocked()
            (now,) = site.server.connections()
            assert (now.phase, trio.current_time() + now.left) == (Phase.IDLE, deadline)
        assert await client.end() == "eof"
        assert trio.current_time() == deadline
        assert await site.reason() is Reason.IDLE_TIMEOUT


async def test_a_client_that_sends_nothing_but_empty_lines_is_refused(autojump_clock: MockClock) -> None:
    """However they come: the idle time is not what ends this."""
    async with serving(timeouts=only(idle=20)) as site:
        at_once, one_by_one = await idle_clients(site, 2)
        await at_once.send(b"\r\n" * 30_000)
        assert (await at_once.response()).status == 400
        for _ in range(9):
            await one_by_one.send(b"\r\n")
            await wait_all_tasks_blocked()
        assert (await one_by_one.response()).status == 400
        assert [await site.reason(number) for number in (1, 2)] == [Reason.PROTOCOL_ERROR] * 2


async def test_a_request_after_an_empty_line_has_all_its_time(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=20, read_header=3)) as site:
        client = await site.connect()
        await client.send(post(1) + b"a\r\n")
        assert (await client.response()).status == 200
        await trio.sleep(2)
        await client.send(GET[:5])
        await trio.sleep(2)
        await client.send(GET[5:])
        assert (await client.response()).status == 200
        # and the idle time begins anew
        await trio.sleep(19)
        assert (await client.get()).status == 200


async def test_a_drain_closes_idle_connections_after_a_moment(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(drain=30)) as site:
        clients = await idle_clients(site, 3)
        await trio.sleep(REUSE_GRACE)
        began = trio.current_time()
        site.server.shutdown()
        assert [await client.end() for client in clients] == ["eof"] * 3
        assert trio.current_time() == began + IDLE_GRACE
        assert [await site.reason(number) for number in (1, 2, 3)] == [Reason.DONE] * 3


async def test_a_server_that_is_cancelled_leaves_no_connection_open(autojump_clock: MockClock) -> None:
    """Those that rest, one that has been called, and those that no task has taken yet."""
    async with serving() as site:
        clients = await idle_clients(site, 3)
        for _ in range(3):
            await site.connect()
        await clients[0].send(GET)
        connections = list(site.server._connections)
        site.stop()
        await wait_all_tasks_blocked()
        assert site.server.statistics().open == 0
        assert all(connection.conn.socket.fileno() < 0 for connection in connections)
        assert {record.reason for record in site.records.connections} == {Reason.DRAIN_TIMEOUT}


async def test_one_that_is_called_while_the_server_ends_calls_nobody(autojump_clock: MockClock) -> None:
    for turns in range(8):
        async with serving() as site:
            (client,) = await idle_clients(site, 1)
            site.stop()
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await client.send_what_is_taken(GET)
            assert await site.reason() is Reason.DRAIN_TIMEOUT
            assert site.server.statistics().open == 0


NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


async def test_nobody_sees_the_context_of_who_was_served_before_in_the_same_turn(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def handler(exchange: Exchange) -> None:
        seen.append(NAME.get())
        NAME.set("somebody")
        if exchange.request.target == b"/slow":
            await trio.sleep(1)
            # its own, also after a sleep
            assert NAME.get() == "somebody"
        await answer(exchange)

    async with serving(handler) as site:
        clients = await idle_clients(site, 6)
        for client in clients:
            await client.send(SLOW if client is clients[2] else GET)
        for client in clients:
            assert (await client.response()).status == 200
    assert seen == ["nobody"] * 12


async def test_a_last_request_of_one_that_rested_ends_it(autojump_clock: MockClock) -> None:
    async with serving(hello) as site:
        (client,) = await idle_clients(site, 1)
        assert (await client.get(LAST_GET)).closes
        assert await client.end() == "eof"
        assert await site.reason() is Reason.DONE


async def large(exchange: Exchange) -> None:
    await answer(exchange, bytes(LARGE))


# less than the server keeps for the end of a turn, so that the handler need not wait
LARGE = 200 * 1024


async def blocked_client(site: Site) -> tuple[Client, int]:
    """A client that asks and does not read, until a response is pending and its connection in no task. Return it and
    how often it has asked."""
    client = await site.connect(receive_buffer=4096)
    asked = 0
    while not asked or site.server.connections()[0].phase is not Phase.WRITE:
        await client.send(GET)
        asked += 1
        await wait_all_tasks_blocked()
    return client, asked


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_request_that_comes_before_the_last_response_has_left_is_served(
    tls: bool, autojump_clock: MockClock
) -> None:
    async with serving(large, only(idle=10), tls=tls) as site:
        client, asked = await blocked_client(site)
        await client.send(GET)
        await wait_all_tasks_blocked()
        for _ in range(asked + 1):
            assert len((await client.response()).body) == LARGE
        assert trio.current_time() < 10


async def test_a_client_that_leaves_before_the_last_response_has_left_is_noticed(autojump_clock: MockClock) -> None:
    async with serving(large, only(idle=10)) as site:
        client, asked = await blocked_client(site)
        client.conn.shutdown_write()
        await wait_all_tasks_blocked()
        for _ in range(asked):
            await client.response()
        assert await site.reason() is Reason.CLIENT_CLOSED
        assert trio.current_time() < 10


async def test_the_idle_time_begins_when_the_response_has_left(autojump_clock: MockClock) -> None:
    """A slow reader has as long for its next request as a fast one."""

    async def large(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(0):
            await exchange.send(bytes(1_000_000), False)

    async with serving(large, only(idle=20)) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await trio.sleep(15)
        assert len((await client.response()).body) == 1_000_000
        assert await client.end() == "eof"
        assert trio.current_time() == 15 + 20 + 1
        assert (await site.ended()).reason is Reason.IDLE_TIMEOUT
