"""The pump in a forked child: the child runs on its own, and its parent goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn
from deadlined.runtime import current_host
from tests.support.poll import conn_pair, socket_pair
from tests.support.runtime import HOUR, exit_status_of, expect_timeout, in_thread, run_once


class TestFork:
    """An event queue is shared across fork: the child lets go of it and touches nothing in it."""

    async def test_the_child_runs_on_its_own_and_the_parent_goes_on(self, autojump_clock: MockClock) -> None:
        def child(conn: Conn) -> None:
            run_in_thread()

        await self.fork_beside_a_reader(child)

    async def test_a_child_that_closes_what_it_inherited_does_not_deafen_its_parent(
        self, autojump_clock: MockClock
    ) -> None:
        def child(conn: Conn) -> None:
            conn.close()
            run_in_thread()

        await self.fork_beside_a_reader(child)

    async def test_a_child_may_close_what_it_inherited_in_any_thread(self, autojump_clock: MockClock) -> None:
        """Its parent's tasks are not woken there: they do not run in the child."""

        def child(conn: Conn) -> None:
            in_thread(conn.close)

        await self.fork_beside_a_reader(child)

    async def test_the_child_opens_nothing_with_its_parents_pump(self, autojump_clock: MockClock) -> None:
        pump = current_host()

        def child(conn: Conn) -> None:
            with socket_pair() as (left, _), pytest.raises(OSError, match="closed"):
                pump.open(left.fileno())

        await self.fork_beside_a_reader(child)

    async def fork_beside_a_reader(self, child: Callable[[Conn], None]) -> None:
        """Fork while a task reads; afterwards it must get what is sent, and the next one its deadline."""
        heard: list[bytes] = []

        async def hear(conn: Conn) -> None:
            heard.append(await conn.receive_some())

        # virtual: it passes as soon as nothing else happens, so a parent that went deaf is heard of at once
        with trio.fail_after(HOUR):
            await self.fork_and_hear(child, hear)
        assert heard == [b"after the fork"]

    async def fork_and_hear(self, child: Callable[[Conn], None], hear: Callable[[Conn], Awaitable[None]]) -> None:
        async with conn_pair() as (conn, peer):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hear, conn)
                await wait_all_tasks_blocked()
                assert exit_status_of(lambda: child(conn)) == 0
                await peer.send_all(b"after the fork")
            when = trio.current_time() + 5
            conn.set_read_deadline(when)
            await expect_timeout(conn, when)


def run_in_thread() -> None:
    """In a thread, because trio takes the one that forked for being inside the parent's run."""
    in_thread(run_once)
