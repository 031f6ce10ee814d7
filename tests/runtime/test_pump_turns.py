"""The turns of trio's loop in which the pump's wakes arrive: as soon as those of trio's own poller and deadlines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import outcome
import pytest
import trio
from trio.lowlevel import add_instrument, remove_instrument
from trio.testing import MockClock, wait_all_tasks_blocked

import deadlined
from deadlined import Conn, DeadlineExceeded
from deadlined.runtime.on_trio import current_trio_host
from tests.support.poll import conn_pair
from tests.support.runtime import HOUR, counts, expect_timeout


class Turns(trio.abc.Instrument):
    """Counts the turns."""

    def __init__(self) -> None:
        self.number = 0

    def after_io_wait(self, timeout: float) -> None:
        self.number += 1


@pytest.fixture
async def turns() -> Turns:
    counter = Turns()
    add_instrument(counter)
    return counter


async def note(turns: Turns, seen: list[int], wait: Callable[[], Awaitable[object]]) -> None:
    await wait()
    seen.append(turns.number)


async def test_an_event_wakes_its_task_in_the_turn_that_finds_it(turns: Turns, autojump_clock: MockClock) -> None:
    seen: list[int] = []
    left, right = socket.socketpair()
    with left, right:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            nursery.start_soon(note, turns, seen, conn.wait_readable)
            nursery.start_soon(note, turns, seen, lambda: trio.lowlevel.wait_readable(left))  # noqa: ASYNC105
            await wait_all_tasks_blocked()
            assert peer.try_send(b"x") == 1
            right.send(b"x")
    assert seen[0] == seen[1]


async def test_a_deadline_wakes_its_task_in_the_turn_in_which_it_comes(turns: Turns, autojump_clock: MockClock) -> None:
    seen: list[int] = []
    when = trio.current_time() + 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, turns, seen, lambda: deadlined.sleep_until(when))
        nursery.start_soon(note, turns, seen, lambda: trio.sleep_until(when))
    assert seen[0] == seen[1]
    assert trio.current_time() == when


async def test_an_event_and_a_deadline_at_once(autojump_clock: MockClock) -> None:
    """The first comes before its deadline, the second does not come."""
    when = trio.current_time() + 5

    async def send_at_the_deadline(peer: Conn) -> None:
        await trio.sleep_until(when)
        peer.try_send(b"x")

    async with conn_pair() as (conn, peer), conn_pair() as (silent, _), trio.open_nursery() as nursery:
        nursery.start_soon(send_at_the_deadline, peer)
        silent.set_read_deadline(when)
        nursery.start_soon(expect_timeout, silent, when)
        assert await conn.receive_some() == b"x"


async def test_without_its_call_in_each_turn_the_pump_polls_in_its_task(autojump_clock: MockClock) -> None:
    """Trio removes an instrument that fails."""
    start = trio.current_time()
    async with conn_pair() as (conn, peer):
        await wait_all_tasks_blocked()
        remove_instrument(current_trio_host().pump)
        for number in range(1, 4):
            await peer.send_all(b"x")
            assert await conn.receive_some() == b"x"
            conn.set_read_deadline(start + number)
            await expect_timeout(conn, start + number)
            conn.set_read_deadline(start + HOUR)
    assert counts().poller.expired == 3


@pytest.mark.parametrize("event", [True, False], ids=["beside an event", "alone"])
def test_what_is_no_exception_in_a_function_of_a_timer_ends_the_run(event: bool) -> None:
    """Trio would only log it, and would not call the pump again."""

    class Mess(BaseException):
        pass

    def fail() -> None:
        raise Mess

    async def main() -> None:
        async with conn_pair() as (_, peer):
            await wait_all_tasks_blocked()
            deadlined.after_func(1.0, fail)
            await trio.sleep(0.5)
            if event:
                peer.try_send(b"x")
                deadlined.after_func(0.0, fail)
            await trio.sleep(HOUR)

    with pytest.raises(trio.TrioInternalError) as caught:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert isinstance(caught.value.__cause__, BaseExceptionGroup)
    assert caught.value.__cause__.split(Mess)[0] is not None


def test_as_a_guest_of_asyncio_the_host_is_known_everywhere() -> None:
    """In what a timer calls, too: a timer may be moved there."""
    called: list[float] = []

    async def main() -> str:
        timer = deadlined.Timer(HOUR)

        def move() -> None:
            called.append(deadlined.current_time())
            timer.reset(0.0)

        async with conn_pair() as (conn, peer):
            deadlined.after_func(0.001, move)
            await timer.wait()
            await peer.send_all(b"x")
            assert await conn.receive_some() == b"x"
            conn.set_read_timeout(0.001)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
        return "done"

    async def host() -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[outcome.Outcome[str]] = loop.create_future()
        trio.lowlevel.start_guest_run(
            main, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        return (await done).unwrap()

    assert asyncio.run(host()) == "done"
    assert len(called) == 1


def test_where_trio_is_a_guest_each_loop_refuses_the_timers_of_the_other() -> None:
    async def host() -> None:
        loop = asyncio.get_running_loop()
        ours = deadlined.Timer(HOUR)
        made: asyncio.Future[deadlined.Timer] = loop.create_future()
        done: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
        leave = trio.Event()

        async def main() -> None:
            with pytest.raises(RuntimeError, match="made in another event loop"):
                ours.reset(1)
            made.set_result(deadlined.Timer(HOUR))
            await leave.wait()

        trio.lowlevel.start_guest_run(
            main, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        theirs = await made
        with pytest.raises(RuntimeError, match="made in another event loop"):
            theirs.reset(1)
        ours.reset(1)
        leave.set()
        (await done).unwrap()

    asyncio.run(host())
