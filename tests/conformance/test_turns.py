"""What a turn of the event loop costs, on every loop: responses leave together, and a request leaves no garbage."""

from __future__ import annotations

import select
import socket
import struct
from functools import partial

import pytest

from deadlined.http import Exchange, Reason
from tests.support.conformance import Loop, in_virtual_time, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.garbage import assert_leaves_no_garbage
from tests.support.http import GET, LAST_GET, Client, answer
from tests.support.net import LOCALHOST

CLIENTS = 12


def readable(clients: list[socket.socket]) -> int:
    return len(select.select(clients, [], [], 0)[0])


def connect(site: Site, number: int) -> list[socket.socket]:
    return [socket.create_connection((LOCALHOST, site.port)) for _ in range(number)]


def hang_up(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def all_answered(site: Site, clients: list[socket.socket]) -> None:
    await site.until(lambda: readable(clients) == CLIENTS)
    for client in clients:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


@in_virtual_time
async def test_the_responses_of_one_turn_leave_at_its_end(loop: Loop) -> None:
    early: list[int] = []
    clients: list[socket.socket] = []

    async def handler(exchange: Exchange) -> None:
        early.append(readable(clients))
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        clients += connect(site, CLIENTS)
        await site.until(lambda: site.server.statistics().accepted == CLIENTS)
        for request in (GET, GET, LAST_GET):
            early.clear()
            for client in clients:
                client.sendall(request)
            await all_answered(site, clients)
            assert early == [0] * CLIENTS
        # after their last responses
        await site.until(lambda: site.server.statistics().reasons[Reason.DONE] == CLIENTS)
        for client in clients:
            assert client.recv(1) == b""
            client.close()


@pytest.mark.parametrize(("size", "waits"), [(60_000, True), (200_000, False)])
@in_virtual_time
async def test_a_response_above_64_kib_is_sent_before_the_next_handler_is_called(
    loop: Loop, size: int, waits: bool
) -> None:
    early: list[int] = []
    clients: list[socket.socket] = []

    async def handler(exchange: Exchange) -> None:
        early.append(readable(clients))
        if exchange.request.target == b"/parts":
            exchange.start(200, [])
            exchange.try_send(bytes(size), True)
            early.append(readable(clients))
            await exchange.send(b"", False)
        else:
            await answer(exchange, bytes(size))

    async with site_of(loop, handler) as (site, _):
        clients += connect(site, CLIENTS)
        await site.until(lambda: site.server.statistics().accepted == CLIENTS)
        for client in clients:
            client.sendall(GET)
        await site.until(lambda: readable(clients) == CLIENTS)
        assert early == ([0] * CLIENTS if waits else list(range(CLIENTS)))
        for client in clients:
            client.close()
        early.clear()
        clients[:] = connect(site, 1)
        clients[0].sendall(GET.replace(b"/", b"/parts", 1))
        await site.until(lambda: len(early) == 2)
        assert early == [0, 0 if waits else 1]
        clients[0].close()


@in_virtual_time
async def test_a_client_that_resets_before_its_last_response_leaves_ends_its_own_connection(loop: Loop) -> None:
    clients: list[socket.socket] = []

    async def handler(exchange: Exchange) -> None:
        await answer(exchange)
        # before the turn ends
        if clients[0].fileno() >= 0:
            hang_up(clients[0])

    async with site_of(loop, handler) as (site, _):
        clients += connect(site, 2)
        for client in clients:
            client.sendall(LAST_GET)
        await site.until(lambda: len(site.connections) == 2)
        assert {record.reason for record in site.connections} == {Reason.CLIENT_RESET, Reason.DONE}
        assert clients[1].recv(65536).startswith(b"HTTP/1.1 200")
        assert len(site.requests) == 2
        clients[1].close()


@in_virtual_time
async def test_the_responses_of_handlers_that_wake_together_leave_together(loop: Loop) -> None:
    early: list[int] = []
    clients: list[socket.socket] = []

    async def handler(exchange: Exchange) -> None:
        await loop.sleep(1)
        early.append(readable(clients))
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        clients += connect(site, CLIENTS)
        for _ in range(3):
            early.clear()
            for client in clients:
                client.sendall(GET)
            await site.until(lambda: len(early) == CLIENTS)
            await all_answered(site, clients)
            # the last few may find that no more handlers are busy
            assert early[:-5] == [0] * (CLIENTS - 5)
        for client in clients:
            client.close()


async def _ask(client: Client, times: int) -> None:
    for _ in range(times):
        await client.send(GET)
        assert (await client.response()).status == 200


@on_each_loop
async def test_a_request_leaves_no_garbage_for_the_collector(loop: Loop) -> None:
    sleeps = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal sleeps
        sleeps += 1
        if sleeps % 2:
            await loop.step()
        await answer(exchange)

    async with site_of(loop, handler) as (site, _):
        client = await site.connect()
        await _ask(client, 4)
        await assert_leaves_no_garbage(partial(_ask, client, 20))
