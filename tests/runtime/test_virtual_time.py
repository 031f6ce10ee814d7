"""Deadlines under a virtual clock: each passes at its time, and none moves the time by itself."""

from __future__ import annotations

import math
import socket
import sys
import threading
from contextlib import ExitStack

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn
from deadlined.runtime import current_host
from tests.support.poll import conn_pair
from tests.support.runtime import HOUR, SURELY, counts, expect_timeout, seconds_to_next_deadline


class TestVirtualTime:
    async def test_an_hours_deadline_takes_no_time(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _):
            conn.set_read_deadline(start + HOUR)
            await expect_timeout(conn, start + HOUR)

    async def test_deadlines_end_in_their_order_each_at_its_time(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        with ExitStack() as stack:
            async with trio.open_nursery() as nursery:
                for i in (3, 1, 4, 0, 2):
                    left, right = (Conn.from_socket(end) for end in socket.socketpair())
                    stack.callback(left.close)
                    stack.callback(right.close)
                    left.set_read_deadline(start + i * HOUR + 1)
                    nursery.start_soon(expect_timeout, left, start + i * HOUR + 1)

    async def test_a_cleared_deadline_leaves_nothing_to_wait_for(self, autojump_clock: MockClock) -> None:
        async with conn_pair() as (conn, _):
            await wait_all_tasks_blocked()
            conn.set_read_deadline(trio.current_time() + 7)
            assert seconds_to_next_deadline() == 7
            conn.set_read_deadline(math.inf)
            assert seconds_to_next_deadline() == math.inf

    async def test_a_cleared_deadline_moves_no_time_while_the_program_is_idle(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        released = threading.Event()

        async def wait_in_a_thread() -> None:
            await trio.to_thread.run_sync(released.wait, SURELY)

        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            await wait_all_tasks_blocked()
            conn.set_read_deadline(start + 7)
            conn.set_read_deadline(math.inf)
            nursery.start_soon(wait_in_a_thread)
            # idle several times over: an autojump clock jumps whenever that happens
            for _ in range(10):
                await wait_all_tasks_blocked()
            released.set()
        assert trio.current_time() == start

    async def test_beside_a_later_deadline_a_cleared_one_moves_no_time(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, other):
            await wait_all_tasks_blocked()
            other.set_read_deadline(start + 60)
            conn.set_read_deadline(start + 7)
            assert seconds_to_next_deadline() == 7
            conn.set_read_deadline(math.inf)
            assert seconds_to_next_deadline() == 60
            await expect_timeout(other, start + 60)

    @pytest.mark.parametrize(("first", "then"), [(5, 100), (100, 5)], ids=["extended", "shortened"])
    async def test_a_moved_deadline_ends_at_its_new_time(
        self, first: float, then: float, autojump_clock: MockClock
    ) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            conn.set_read_deadline(start + first)
            nursery.start_soon(expect_timeout, conn, start + then)
            await trio.sleep(3)
            conn.set_read_deadline(start + then)

    async def test_a_deadline_that_is_set_while_the_pump_sleeps_without_one(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            nursery.start_soon(expect_timeout, conn, start + 5)
            await wait_all_tasks_blocked()
            conn.set_read_deadline(start + 5)

    async def test_a_deadline_beyond_all_clocks_is_slept_for(self, autojump_clock: MockClock) -> None:
        async with conn_pair() as (conn, _):
            conn.set_read_deadline(sys.float_info.max)
            with trio.move_on_after(10 * HOUR) as scope:
                await conn.receive_some()
        assert scope.cancelled_caught

    async def test_the_pump_is_kicked_for_an_earlier_deadline_only(self, mock_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, other):
            await wait_all_tasks_blocked()
            conn.set_read_deadline(start + 10)
            kicks = counts().kicks
            for step in range(100):
                conn.set_read_deadline(start + 10 + step)
                other.set_deadline(start + 20 + step)
            assert counts().kicks == kicks
            other.set_deadline(start + 5)
            assert counts().kicks == kicks + 1

    async def test_short_connections_kick_it_once_where_time_passes_by_itself(self) -> None:
        """Each has a deadline for as long as it lives, and the next one's is no earlier than the first one's was."""
        current_host()
        await wait_all_tasks_blocked()
        for _ in range(20):
            async with conn_pair() as (conn, other):
                conn.set_read_timeout(HOUR)
                await other.send_all(b"x")
                await conn.receive_some()
            await wait_all_tasks_blocked()
        assert counts().kicks == 1
