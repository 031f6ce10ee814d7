"""Each operation of a `Conn` is a checkpoint, once, and can be cancelled without losing data."""

from __future__ import annotations

import trio
from trio.testing import MockClock, assert_checkpoints, assert_no_checkpoints, wait_all_tasks_blocked

from tests.support.net import (
    Attempt,
    Operation,
    clog,
    count_sleeps,
    fails_at_its_deadline,
    receive_exactly,
    tcp_pair,
    unix_pair,
)


async def test_an_operation_that_succeeds_at_once_is_one_checkpoint() -> None:
    async with tcp_pair() as (client, server):
        await server.send_all(b"xyz")
        await server.send_eof()
        operations: list[Operation] = [
            lambda: client.receive_some(1),
            client.receive_some,
            client.receive_some,  # the end
            lambda: client.send_all(b"x"),
            lambda: client.send_all(b""),
            client.wait_send_all_might_not_block,
            client.send_eof,
            client.send_eof,
            client.aclose,
            client.aclose,
        ]
        for operation in operations:
            with assert_checkpoints():
                assert await count_sleeps(operation) == 1


async def test_an_operation_that_waited_owes_no_second_checkpoint() -> None:
    async with unix_pair() as (client, server), trio.open_nursery() as nursery:

        async def then(act: Operation) -> None:
            await wait_all_tasks_blocked()
            await act()

        nursery.start_soon(then, lambda: server.send_all(b"x"))
        assert await count_sleeps(client.receive_some) == 1
        nursery.start_soon(then, lambda: server.send_all(b"x"))
        assert await count_sleeps(client.wait_readable) == 1
        sent = await clog(client)
        nursery.start_soon(then, lambda: receive_exactly(server, sent))
        assert await count_sleeps(client.wait_send_all_might_not_block) == 1
        sent = await clog(client)
        nursery.start_soon(then, lambda: receive_exactly(server, sent))
        assert await count_sleeps(lambda: client.send_all(b"x")) == 1


async def test_the_attempts_are_no_checkpoints() -> None:
    async with unix_pair() as (client, server):
        with assert_no_checkpoints():
            assert client.try_receive() is None
            assert server.try_send(b"xy") == 2
            assert client.try_receive(1) == b"x"
            assert client.try_receive() == b"y"
            assert client.try_receive() is None
            server.close()
            assert client.try_receive() == b""


async def test_a_cancelled_receive_leaves_the_data_unread() -> None:
    async with unix_pair() as (client, server):
        await server.send_all(b"kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.receive_some()
        assert scope.cancelled_caught
        assert await client.receive_some() == b"kept"


async def test_a_cancelled_send_sends_nothing() -> None:
    async with unix_pair() as (client, server):
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.send_all(b"never")
        assert scope.cancelled_caught
        await client.send_all(b"later")
        assert await server.receive_some() == b"later"


async def test_a_pending_receive_that_is_cancelled_leaves_the_next_one_whole(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, server), trio.open_nursery() as nursery:
        with trio.move_on_after(1.0) as scope:
            await client.receive_some()
        assert scope.cancelled_caught
        read = Attempt(nursery, client.receive_some)
        await wait_all_tasks_blocked()
        await server.send_all(b"x")
        await read.done()
        assert read.result == b"x"


async def test_cancellation_and_deadline_are_told_apart(autojump_clock: MockClock) -> None:
    async with unix_pair() as (client, _):
        client.set_read_deadline(2.0)
        with trio.move_on_after(1.0) as scope:
            await client.receive_some()
        assert scope.cancelled_caught
        assert trio.current_time() == 1.0
        with trio.move_on_after(5.0) as scope:
            await fails_at_its_deadline(client.receive_some)
        assert not scope.cancelled_caught
        assert trio.current_time() == 2.0
