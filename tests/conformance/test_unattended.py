"""An idle connection has no task on every event loop, also where a short receive may leave bytes behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deadlined.http import Exchange, Phase, Reason
from deadlined.http.policy import IDLE_BUFFER
from deadlined.http.state import UNATTENDED
from tests.support.conformance import Loop, on_each_loop
from tests.support.conformance_http import Site, site_of
from tests.support.http import GET, Client, answer, hello

over_unix = pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])

# more than a unix socket takes for a client that does not read, and less than a handler must wait for
LARGE = 200 * 1024


async def require_unattended(site: Site, number: int) -> None:
    """Check that `number` connections are idle, and that none of them has a task."""
    await site.loop.settle()
    assert [info.phase for info in site.server.connections()] == [Phase.IDLE] * number
    assert [connection.attendance for connection in site.server._connections] == [UNATTENDED] * number


async def pass_request(client: Client) -> None:
    """Send a request together with a descriptor, as no client of HTTP does."""
    with Path("/dev/null").open("rb") as passed:  # noqa: ASYNC230
        socket.send_fds(client.conn.socket, [GET], [passed.fileno()])


@on_each_loop
@over_unix
async def test_between_requests_and_until_the_client_leaves(loop: Loop, unix: bool, tmp_path: Path) -> None:
    async with site_of(loop, hello, path=tmp_path / "socket" if unix else None) as (site, _):
        clients = [await site.connect() for _ in range(3)]
        for _ in range(3):
            for client in clients:
                assert (await client.get()).status == 200
            await require_unattended(site, 3)
        await clients[1].conn.aclose()
        assert await site.reason() == Reason.CLIENT_CLOSED
        await require_unattended(site, 2)


@on_each_loop
@over_unix
async def test_until_the_idle_deadline(loop: Loop, unix: bool, tmp_path: Path) -> None:
    async with site_of(loop, hello, path=tmp_path / "socket" if unix else None, idle=5) as (site, _):
        client = await site.connect()
        when = loop.after(5) + IDLE_BUFFER
        assert (await client.get()).status == 200
        await require_unattended(site, 1)
        assert await client.end() == "eof"
        assert loop.is_at(when)
        assert await site.reason() == Reason.IDLE_TIMEOUT


@on_each_loop
@over_unix
async def test_after_a_response_that_the_client_has_taken_late(loop: Loop, unix: bool, tmp_path: Path) -> None:
    async def large(exchange: Exchange) -> None:
        await answer(exchange, bytes(LARGE))

    async with site_of(loop, large, path=tmp_path / "socket" if unix else None) as (site, _):
        client = await site.connect(receive_buffer=None if unix else 4096)
        asked = 0
        while not asked or site.server.connections()[0].phase is not Phase.WRITE:
            await client.send(GET)
            asked += 1
            await loop.settle()
        for _ in range(asked):
            assert len((await client.response()).body) == LARGE
        await require_unattended(site, 1)
        assert len((await client.get()).body) == LARGE


@on_each_loop
async def test_a_request_behind_a_descriptor_that_was_passed_is_answered(loop: Loop, tmp_path: Path) -> None:
    """A read ends before it, short as it is, and it makes no edge."""
    async with site_of(loop, hello, path=tmp_path / "socket") as (site, _):
        client = await site.connect()
        for _ in range(2):
            for _ in range(3):
                await pass_request(client)
            for _ in range(3):
                assert (await client.response()).status == 200
            await require_unattended(site, 1)


@on_each_loop
async def test_after_urgent_data(loop: Loop) -> None:
    """As with a kqueue, whose events do not tell whether there is any."""
    async with site_of(loop, hello) as (site, _):
        client = await site.connect()
        client.conn.socket.send(b"!", socket.MSG_OOB)
        for _ in range(2):
            assert (await client.get()).status == 200
            await require_unattended(site, 1)
            client.conn.socket.send(b"!", socket.MSG_OOB)
        await client.conn.aclose()
        assert await site.reason() == Reason.CLIENT_CLOSED
