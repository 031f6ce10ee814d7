"""Several tasks send on one datagram socket, as those of a server that gives each question a task do."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from deadlined import ClosedResourceError, DeadlineExceeded, PacketConn, open_udp
from tests.support.conformance import Loop, Running, Tasks, on_each_loop
from tests.support.net import LOCALHOST

QUESTIONS = [b"%d" % number for number in range(20)]


@asynccontextmanager
async def full_pair() -> AsyncIterator[tuple[PacketConn, PacketConn, int]]:
    """Give the two ends of a unix datagram socket, and how many datagrams wait in the full queue of the second."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    async with PacketConn(one) as client, PacketConn(other) as server:
        waiting = 0
        with pytest.raises(BlockingIOError):
            while True:
                one.send(b"fill")
                waiting += 1
        yield client, server, waiting


async def start_in_order(loop: Loop, tasks: Tasks, client: PacketConn, questions: list[bytes]) -> list[Running]:
    """Start a send of each question, none of which ends. trio would begin them in any order."""
    sends = []
    for question in questions:
        sends.append(tasks.start(client.send_to, question))
        await loop.settle()
    assert all(send.pending for send in sends)
    return sends


async def received(server: PacketConn, number: int) -> list[bytes]:
    return [(await server.receive_from())[0] for _ in range(number)]


@on_each_loop
async def test_each_question_is_answered_in_a_task_of_its_own(loop: Loop) -> None:
    async with (
        await open_udp(LOCALHOST) as server,
        await open_udp(remote=server.socket.getsockname()) as client,
        loop.tasks() as tasks,
    ):
        address = client.socket.getsockname()
        sends = [tasks.start(server.send_to, question, address) for question in QUESTIONS]
        for send in sends:
            await send.succeeds()
        assert sorted(await received(client, len(QUESTIONS))) == sorted(QUESTIONS)


@on_each_loop
async def test_while_one_waits_for_room_the_others_wait_for_their_turn(loop: Loop) -> None:
    async with full_pair() as (client, server, waiting), loop.tasks() as tasks:
        sends = await start_in_order(loop, tasks, client, QUESTIONS)
        found = await received(server, waiting + len(QUESTIONS))
        for send in sends:
            await send.succeeds()
        assert found[waiting:] == QUESTIONS


@on_each_loop
@pytest.mark.parametrize("cancelled", [0, 1, 2], ids=["the one that waits for room", "the next", "the last"])
async def test_one_that_is_cancelled_gives_its_turn_to_the_next(loop: Loop, cancelled: int) -> None:
    async with full_pair() as (client, server, waiting), loop.tasks() as tasks:
        sends = await start_in_order(loop, tasks, client, QUESTIONS[:3])
        sends[cancelled].cancel()
        await sends[cancelled].wait()
        assert sends[cancelled].cancelled
        found = await received(server, waiting + 2)
        assert found[waiting:] == [question for question in QUESTIONS[:3] if question != QUESTIONS[cancelled]]


@on_each_loop
async def test_one_that_is_cancelled_as_its_turn_comes_gives_it_to_the_next(loop: Loop) -> None:
    async with full_pair() as (client, server, waiting), loop.tasks() as tasks:
        sends = await start_in_order(loop, tasks, client, QUESTIONS[:3])
        # both in one turn of the loop
        sends[0].cancel()
        sends[1].cancel()
        found = await received(server, waiting + 1)
        await sends[2].succeeds()
        assert found[waiting:] == [QUESTIONS[2]]


@on_each_loop
async def test_the_deadline_ends_all_and_moved_away_it_ends_none(loop: Loop) -> None:
    async with full_pair() as (client, server, waiting), loop.tasks() as tasks:
        sends = await start_in_order(loop, tasks, client, QUESTIONS)
        client.set_write_deadline(loop.after(-1.0))
        for send in sends:
            error = await send.fails_with(DeadlineExceeded)
            assert error.op == "write"
        client.set_write_deadline(math.inf)
        last = tasks.start(client.send_to, b"last")
        found = await received(server, waiting + 1)
        await last.succeeds()
        assert found[waiting:] == [b"last"]


@on_each_loop
async def test_a_close_ends_all(loop: Loop) -> None:
    async with full_pair() as (client, _, _), loop.tasks() as tasks:
        sends = await start_in_order(loop, tasks, client, QUESTIONS)
        await client.aclose()
        for send in sends:
            await send.fails_with(ClosedResourceError)
