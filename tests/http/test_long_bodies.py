"""A long body comes in few pieces: each passes through an application's middleware, which costs more than its bytes."""

from __future__ import annotations

import array
import fcntl
import socket
import termios

import trio

from deadlined.http import Exchange
from deadlined.http.receiving import LONG, LONG_RECEIVE
from tests.support.http import CHUNKED_POST, answer, chunk, post, serving

# more than a short piece, and less than the kernel keeps for a reader that does not read
WAITING = 100_000


async def until_waiting(sock: socket.socket, number: int) -> None:
    """Wait until so many bytes can be read from the socket."""
    found = array.array("i", [0])
    while found[0] < number:
        await trio.sleep(0.001)
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, found)


async def test_pieces_are_larger_once_much_has_come() -> None:
    sizes: list[int] = []
    length = 2 * 1024 * 1024

    async def handler(exchange: Exchange) -> None:
        sock = exchange._host.transport.conn.socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while sum(sizes) < length:
            await until_waiting(sock, min(WAITING, length - sum(sizes)))
            sizes.append(len(await exchange.receive()))
        assert await exchange.receive() == b""
        await answer(exchange)

    with trio.fail_after(30):
        async with serving(handler) as site, trio.open_nursery() as nursery:
            client = await site.connect()
            await client.send(post(length))
            nursery.start_soon(client.send, bytes(length))
            assert (await client.response()).status == 200
    assert sum(sizes) == length
    assert max(sizes[:2]) <= LONG
    assert all(WAITING <= size <= LONG_RECEIVE for size in sizes[2:-1])


async def test_small_chunks_are_few_pieces_and_let_others_run() -> None:
    """A client that sends two bytes in each chunk buys neither a message for each nor the event loop."""
    sizes: list[int] = []
    ticks: list[float] = []
    data = b"2\r\nab\r\n" * 200_000 + chunk(b"")

    async def handler(exchange: Exchange) -> None:
        while piece := await exchange.receive():
            sizes.append(len(piece))
        await answer(exchange)

    async def tick() -> None:
        while True:
            ticks.append(sum(sizes))
            await trio.lowlevel.checkpoint()

    with trio.fail_after(30):
        async with serving(handler) as site, trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            client = await site.connect()
            await client.send(CHUNKED_POST)
            nursery.start_soon(client.send, data)
            assert (await client.response()).status == 200
            nursery.cancel_scope.cancel()
    assert sum(sizes) == 400_000
    # a receive of 64 KiB has 9,362 such chunks. Two tasks that let each other run may take two turns in a row
    assert len(sizes) < 2_000
    assert max(after - before for after, before in zip(ticks[1:], ticks, strict=False)) <= 65_536
