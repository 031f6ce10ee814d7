"""A limit of open connections: who waits, whom an idle connection is closed for, and what is never closed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from deadlined import current_time, open_tcp_listeners
from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Exchange, Limits, Reason
from deadlined.http.policy import REUSE_GRACE
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import Client, answer, dialed
from tests.support.net import LOCALHOST
from tests.support.websocket import ACCEPT, HANDSHAKE

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def most(number: int) -> Limits:
    return Limits(max_connections=number)


class Held:
    """A handler that answers /held when it is told to, and anything else at once."""

    def __init__(self, loop: Loop) -> None:
        self.end: Any = loop.event()
        self.began = False

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == b"/held":
            self.began = True
            await self.end.wait()
        await answer(exchange)


async def idle(site: Site) -> Client:
    """Return a client that was answered."""
    client = await site.connect()
    assert (await client.get(GET)).status == 200
    return client


async def asking(site: Site, port: int | None = None) -> Client:
    """Return a client that has sent a request, and may have to wait."""
    client = await site.connect() if port is None else Client(await dialed(port, None))
    await client.send(GET)
    await site.loop.settle()
    return client


async def still_waits(site: Site, accepted: int) -> None:
    """Let much time pass, in which nothing more is accepted."""
    await site.loop.sleep(10 * REUSE_GRACE)
    if not site.loop.is_virtual:
        # of which a part is real
        await site.loop.sleep(REUSE_GRACE / site.loop.seconds(1))
    assert site.server.statistics().accepted == accepted


@on_each_loop
async def test_beyond_the_limit_a_client_waits_until_a_connection_ends(loop: Loop) -> None:
    held = Held(loop)
    async with site_of(loop, held, most(2)) as (site, _):
        running = await site.connect()
        await running.send(b"GET /held HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        silent = await site.connect()
        await site.until(lambda: held.began and site.server.open_connections == 2)
        waiting = await asking(site)
        await still_waits(site, 2)
        held.end.set()
        assert (await running.response()).status == 200
        assert (await waiting.response()).status == 200
        assert site.server.open_connections <= 2
        await silent.send(GET)
        assert (await silent.response()).status == 200


@on_each_loop
async def test_the_longest_idle_is_closed_for_a_client_that_waits(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(3)) as (site, _):
        first = await idle(site)
        await loop.sleep(1)
        second = await idle(site)
        await loop.sleep(1)
        await first.send(GET)
        assert (await first.response()).status == 200
        third = await idle(site)
        since = current_time()
        waiting = await asking(site)
        assert (await waiting.response()).status == 200
        assert current_time() - since <= REUSE_GRACE or not loop.is_virtual
        assert await second.end() == "eof"
        assert [record.reason for record in site.connections] == [Reason.IDLE_TIMEOUT]
        for client in (first, third):
            await client.send(GET)
            assert (await client.response()).status == 200


@on_each_loop
async def test_one_that_was_idle_for_a_moment_is_kept_for_its_grace(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(1)) as (site, _):
        since = current_time()
        await idle(site)
        assert (await (await asking(site)).response()).status == 200
        taken = current_time() - since
        assert taken == pytest.approx(REUSE_GRACE, abs=0.1) if loop.is_virtual else taken >= REUSE_GRACE


@on_each_loop
async def test_nobody_is_closed_while_nobody_waits(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(2)) as (site, _):
        clients = [await idle(site) for _ in range(2)]
        await still_waits(site, 2)
        for client in clients:
            await client.send(GET)
            assert (await client.response()).status == 200
        assert not site.connections


@on_each_loop
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
async def test_everybody_of_a_crowd_of_idle_clients_is_answered(loop: Loop, unix: bool, tmp_path: Path) -> None:
    path = tmp_path / "socket" if unix else None
    async with site_of(loop, Held(loop), most(8), path=path) as (site, _):
        clients = [await asking(site) for _ in range(20)]
        for client in clients:
            assert (await client.response()).status == 200
        assert site.server.open_connections <= 8
        assert {record.reason for record in site.connections} == {Reason.IDLE_TIMEOUT}
        assert len(site.connections) >= 12


@on_each_loop
async def test_a_websocket_counts_and_is_never_closed_for_another(loop: Loop) -> None:
    end = loop.event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await receive()
        await send(ACCEPT)
        await end.wait()

    async with site_of(loop, AsgiHandler(app), most(1)) as (site, _):
        socket = await site.connect()
        await socket.send(HANDSHAKE)
        assert (await socket.receive()).startswith(b"HTTP/1.1 101 ")
        waiting = await asking(site)
        await still_waits(site, 1)
        end.set()
        # the server has sent its close
        await socket.receive()
        socket.conn.close()
        assert (await waiting.response()).status == 204


@on_each_loop
async def test_two_listeners_share_the_limit_and_get_room_in_turn(loop: Loop) -> None:
    answered: list[int] = []

    async def handler(exchange: Exchange) -> None:
        assert exchange.server_address is not None and exchange.server_address[1] is not None
        answered.append(exchange.server_address[1])
        await answer(exchange)

    async with site_of(loop, handler, most(1)) as (site, _):
        (second,) = await open_tcp_listeners(0, host=LOCALHOST)
        site.server.add_listener(second)
        await loop.settle()
        ports = site.port, second.socket.getsockname()[1]
        clients = [await asking(site, port) for port in ports * 3]
        open_at_once = []
        for client in clients:
            assert (await client.response()).status == 200
            open_at_once.append(site.server.open_connections)
        assert set(open_at_once) == {1}
        assert answered == [*ports * 3]
        for client in clients:
            client.conn.close()


@on_each_loop
async def test_another_limit_holds_at_once(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(1)) as (site, _):
        silent = await site.connect()
        await site.until(lambda: site.server.open_connections == 1)
        waiting = [await asking(site) for _ in range(3)]
        assert site.server.open_connections == 1
        site.server.configure(limits=most(3))
        await site.until(lambda: site.server.open_connections == 3)
        for client in waiting[:2]:
            assert (await client.response()).status == 200
        site.server.configure(limits=most(1))
        silent.conn.close()
        assert (await waiting[2].response()).status == 200
        assert site.server.open_connections == 1
        site.server.configure(limits=Limits())
        for _ in range(3):
            await idle(site)
        assert site.server.open_connections == 4


@on_each_loop
async def test_a_drain_accepts_who_waits(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(1), drain=30) as (site, _):
        silent = await site.connect()
        await site.until(lambda: site.server.open_connections == 1)
        waiting = [await asking(site) for _ in range(3)]
        site.server.shutdown()
        for client in waiting:
            assert (await client.response()).status == 200
        assert await silent.end() == "eof"
        await site.serving.wait()


@on_each_loop
async def test_a_listener_is_removed_while_its_clients_wait(loop: Loop) -> None:
    async with site_of(loop, Held(loop), most(1)) as (site, _):
        (second,) = await open_tcp_listeners(0, host=LOCALHOST)
        site.server.add_listener(second)
        silent = await site.connect()
        await site.until(lambda: site.server.open_connections == 1)
        lost = await asking(site, second.socket.getsockname()[1])
        waiting = await asking(site)
        site.server.remove_listener(second)
        assert await lost.end() == "reset"
        silent.conn.close()
        assert (await waiting.response()).status == 200
        lost.conn.close()


@on_each_loop
async def test_the_log_says_once_a_minute_that_clients_wait(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    async with site_of(loop, Held(loop), most(1)) as (site, _):
        await idle(site)
        assert not lines()
        for _ in range(3):
            assert (await (await asking(site)).response()).status == 200
        (line,) = lines()
        assert "there may be (1)" in line and "max_connections" in line and "ulimit -n" in line
