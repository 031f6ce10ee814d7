"""Whether a connection to an upstream is used again: only after a whole request and a whole response.

The upstream knows from a path what the body must be. What is missing of a request on a connection would be made up by
the next request on it, of whichever client.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from deadlined import Conn
from tests.support.conformance import Loop, Running, Tasks, on_each_loop
from tests.support.http import Client, chunk
from tests.support.proxy import OK, Guarded, Peer, Played, guarding

# bytes of a body that come after its head: up to several receives, and less than a server discards to use a connection
# again
SIZES = (0, 0, 10, 70_000, 150_000, 200_000)

CLIENTS = 6
REQUESTS = 12


class Turns:
    """Runs what both ends want to do, several at once and in random order: all of it has come when the proxy looks."""

    def __init__(self, loop: Loop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        # what is to be sent, and an event for when that was tried
        self._due: list[tuple[Conn, bytes, Any]] = []
        self._sent: dict[Conn, int] = {}

    async def send(self, conn: Conn, data: bytes) -> None:
        """Send `data`: in one turn, as far as the kernel takes it at once."""
        while data:
            due = (conn, data, self.loop.event())
            self._due.append(due)
            await due[2].wait()
            data = data[self._sent.pop(conn) :]

    async def run(self, clients: list[Running]) -> None:
        """Go on until the clients have ended."""
        while any(client.pending for client in clients):
            for each in self.chance.sample(self._due, self.chance.randint(0, len(self._due))):
                self._due.remove(each)
                conn, data, tried = each
                self._sent[conn] = conn.try_send(data)
                tried.set()
            for _ in range(self.chance.choice((1, 1, 3, 10))):
                await self.loop.step()
            if not self._due:
                await self.loop.sleep(0.01)


def body_of(path: bytes, size: int) -> bytes:
    return (path * (size // len(path) + 1))[:size]


class Uploading:
    """A client that sends bodies later than their heads."""

    def __init__(self, guarded: Guarded, turns: Turns, name: str) -> None:
        self._guarded = guarded
        self._turns = turns
        self._name = name

    async def run(self) -> None:
        client = await self._guarded.site.connect()
        for number in range(REQUESTS):
            await self._send(client, f"/{self._name}-{number}".encode())
            response = await client.response()
            assert response.status == 200
            if response.closes:
                client = await self._guarded.site.connect()

    async def _send(self, client: Client, path: bytes) -> None:
        chance = self._turns.chance
        size = chance.choice(SIZES)
        body = body_of(path, size)
        chunked = size > 0 and chance.random() < 0.5
        framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % size
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nx-size: %d\r\n%b\r\n\r\n" % (path, size, framing)
        await self._turns.send(client.conn, head)
        await self._turns.send(client.conn, chunk(body) + chunk(b"") if chunked else body)


class Checking:
    """An upstream that answers most requests before it reads their bodies, which it checks."""

    def __init__(self, upstream: Played, tasks: Tasks, turns: Turns) -> None:
        self._upstream = upstream
        self._tasks = tasks
        self._turns = turns
        # what is not as it was sent
        self.wrong: list[bytes] = []

    async def run(self) -> None:
        while True:
            self._tasks.start(self._serve, await self._upstream.accept())

    async def _serve(self, peer: Peer) -> None:
        try:
            while True:
                await self._answer(peer, await peer.head())
        except (EOFError, trio.BrokenResourceError):
            # the proxy does not use it again
            peer.conn.close()

    async def _answer(self, peer: Peer, head: bytes) -> None:
        path, size = head.split(b" ")[1], int(head.split(b"x-size: ")[1].split(b"\r\n")[0])
        early = self._turns.chance.random() < 0.8
        if early:
            await self._turns.send(peer.conn, OK)
        body = await self._chunks(peer) if b"chunked" in head else await peer.read(size)
        if body != body_of(path, size):
            self.wrong.append(head)
        if not early:
            await self._turns.send(peer.conn, OK)

    async def _chunks(self, peer: Peer) -> bytes:
        body = b""
        while True:
            line = await peer.until(b"\r\n")
            if not line.strip().isalnum():
                self.wrong.append(line)
                raise EOFError
            size = int(line, 16)
            body += (await peer.read(size + 2))[:-2]
            if not size:
                return body


@on_each_loop
@pytest.mark.parametrize("seed", range(8))
async def test_what_was_not_sent_of_a_body_is_not_made_up_by_the_next_request(loop: Loop, seed: int) -> None:
    chance = random.Random(seed)
    # it chooses the order of the tasks
    trio._core._run._r.seed(seed)
    async with guarding(loop, upstream_first_byte=1000) as guarded:
        turns = Turns(loop, chance)
        checking = Checking(guarded.upstream, guarded.tasks, turns)
        guarded.tasks.start(checking.run)
        clients = [guarded.tasks.start(Uploading(guarded, turns, f"c{number}").run) for number in range(CLIENTS)]
        await turns.run(clients)
        assert checking.wrong == []
        for client in clients:
            await client.succeeds()
        # what was sent and answered whole is used again
        (statistics,) = guarded.proxy.statistics().upstreams
        assert statistics.connects < statistics.tries == CLIENTS * REQUESTS
