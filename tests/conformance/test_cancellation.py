"""Cancellation at each wait, on every event loop; and the time limits of asyncio, which must lose no bytes."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from deadlined import Conn, Ticker, Timer, after_func, current_time, open_tcp_stream, open_udp, sleep, statistics
from deadlined.runtime import Event, ReadyCallback, checkpoint, open_group
from tests.conformance.test_deadlines import clog_on
from tests.support.builds import interpreted_only
from tests.support.conformance import Loop, in_virtual_time, on_asyncio, on_each_loop
from tests.support.net import LOCALHOST, full_listener, local_listener, receive_exactly, tcp_pair, unix_pair

Wait = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def waits(loop: Loop) -> AsyncIterator[dict[str, Wait]]:
    """Give operations that wait for ever."""
    async with (
        tcp_pair() as (conn, _),
        tcp_pair() as (full, _),
        local_listener() as (listener, _),
        await open_udp(LOCALHOST) as udp,
    ):
        await clog_on(loop, full)
        timer, ticker, event = Timer(3600), Ticker(3600), Event()
        yield {
            "receive_some": conn.receive_some,
            "iteration": conn.__anext__,
            "wait_readable": conn.wait_readable,
            "send_all": lambda: full.send_all(bytes(2**20)),
            "wait_writable": full.wait_writable,
            "wait_send_all": full.wait_send_all_might_not_block,
            "accept": listener.accept,
            "receive_from": udp.receive_from,
            "sleep": lambda: sleep(3600),
            "timer": timer.wait,
            "ticker": ticker.__anext__,
            "event": event.wait,
            "event until": lambda: event.wait_until(current_time() + 3600),
        }
        ticker.stop()


NAMES = [
    "receive_some",
    "iteration",
    "wait_readable",
    "send_all",
    "wait_writable",
    "wait_send_all",
    "accept",
    "receive_from",
    "sleep",
    "timer",
    "ticker",
    "event",
    "event until",
]


def parked_and_timers() -> tuple[int, int]:
    found = statistics()
    assert found is not None
    return found.poller.parked, found.poller.timers.stored - found.poller.timers.zombies


@on_each_loop
@pytest.mark.parametrize("name", NAMES)
async def test_a_cancelled_wait_is_over_at_once_and_can_begin_again(loop: Loop, name: str) -> None:
    async with waits(loop) as operations, loop.tasks() as tasks:
        before = parked_and_timers()
        for _ in range(3):
            waiting = tasks.start(operations[name])
            await loop.settle()
            assert waiting.pending, waiting.error
            waiting.cancel()
            await waiting.wait()
            assert waiting.cancelled
            assert parked_and_timers() == before


@on_each_loop
@pytest.mark.parametrize("name", NAMES)
async def test_a_task_that_is_cancelled_before_it_waits_does_not_wait(loop: Loop, name: str) -> None:
    async with waits(loop) as operations, loop.tasks() as tasks:

        async def later() -> None:
            await go.wait()
            await operations[name]()

        go = loop.event()
        waiting = tasks.start(later)
        await loop.settle()
        go.set()
        waiting.cancel()
        await waiting.wait()
        assert waiting.cancelled
        assert parked_and_timers() == (0, 0)


class Called(ReadyCallback):
    """Counts its calls."""

    calls = 0

    def on_ready(self) -> None:
        self.calls += 1


@interpreted_only
@on_each_loop
async def test_a_callback_that_takes_the_place_of_a_cancelled_receive_is_called(loop: Loop) -> None:
    """Before the cancelled task has run."""
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        receiving = tasks.start(conn.receive_some)
        await loop.settle()
        if not loop.is_trio:
            # a task that was not woken keeps its place until it runs
            conn.set_read_deadline(loop.after(-5))
            conn.set_read_deadline(math.inf)
        receiving.cancel()
        called = Called()
        assert conn.call_when_readable(called)
        await receiving.wait()
        assert receiving.cancelled
        await peer.send_all(b"x")
        await loop.settle()
        assert called.calls == 1


@interpreted_only
@on_each_loop
async def test_a_task_that_receives_is_no_call_to_be_cancelled(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        receiving = tasks.start(conn.receive_some)
        await loop.settle()
        conn.cancel_call()
        await peer.send_all(b"x")
        assert await receiving.succeeds() == b"x"
        called = Called()
        conn.ask_if_drained()
        assert conn.call_when_readable(called)
        conn.cancel_call()
        await peer.send_all(b"y")
        await loop.settle()
        assert called.calls == 0
        assert await conn.receive_some() == b"y"


@on_each_loop
async def test_a_cancelled_operation_that_need_not_wait_does_nothing(loop: Loop) -> None:
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:
        await peer.send_all(b"kept")
        await loop.settle()
        for operation in (conn.receive_some, lambda: conn.send_all(b"never"), conn.send_eof, checkpoint):
            cancelled = tasks.start(_cancelled_first, loop, operation)
            await loop.settle()
            cancelled.cancel()
            await cancelled.wait()
            assert cancelled.cancelled
        assert await conn.receive_some() == b"kept"
        await conn.send_all(b"sent")
        assert await peer.receive_some() == b"sent"


async def _cancelled_first(loop: Loop, operation: Wait) -> None:
    """Run an operation in a task whose cancellation is pending."""
    try:
        await loop.forever()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await operation()


@on_each_loop
async def test_a_stream_of_cancelled_receives_loses_no_byte(loop: Loop) -> None:
    data = bytes(range(256)) * 8
    chance = random.Random(1)
    async with unix_pair() as (conn, peer), loop.tasks() as tasks:

        async def send() -> None:
            for start in range(0, len(data), 16):
                await peer.send_all(data[start : start + 16])
                for _ in range(chance.randrange(4)):
                    await loop.step()

        sending = tasks.start(send)
        received = bytearray()
        while len(received) < len(data):
            receiving = tasks.start(conn.receive_some, chance.randrange(1, 40))
            for _ in range(chance.randrange(5)):
                await loop.step()
            receiving.cancel()
            await receiving.wait()
            received += receiving.result or b""
        await sending.succeeds()
        assert bytes(received) == data


@on_asyncio
@pytest.mark.parametrize("limit", ["timeout", "wait_for", "move_on_after"])
async def test_a_time_limit_in_the_moment_of_the_data_loses_no_byte(loop: Loop, limit: str) -> None:
    data = bytes(range(256)) * 2
    task = asyncio.current_task()
    assert task is not None

    async def receive_for(conn: Conn, seconds: float) -> bytes:
        try:
            if limit == "timeout":
                async with asyncio.timeout(seconds):
                    return await conn.receive_some(3)
            if limit == "wait_for":
                return await asyncio.wait_for(conn.receive_some(3), seconds)
            with anyio.move_on_after(seconds):
                return await conn.receive_some(3)
        except TimeoutError:
            pass
        return b""

    async with unix_pair() as (conn, peer), loop.tasks() as tasks:

        async def send() -> None:
            for start in range(0, len(data), 2):
                await asyncio.sleep(0.001)
                await peer.send_all(data[start : start + 2])

        sending = tasks.start(send)
        received = bytearray()
        while len(received) < len(data):
            received += await receive_for(conn, 0.001)
            assert task.cancelling() == 0
        await sending.succeeds()
        assert bytes(received) == data
        # no cancellation is left over
        await loop.settle()


@on_asyncio
async def test_a_time_limit_in_the_moment_of_a_connection_loses_none(loop: Loop) -> None:
    async with local_listener() as (listener, port), loop.tasks() as tasks:
        accepted: list[Conn] = []

        async def connect() -> None:
            for _ in range(50):
                await asyncio.sleep(0.001)
                clients.append(socket.create_connection((LOCALHOST, port)))

        clients: list[Any] = []
        connecting = tasks.start(connect)
        for _ in range(5000):
            try:
                async with asyncio.timeout(0.001):
                    accepted.append(await listener.accept())
            except TimeoutError:
                pass
            if len(accepted) == 50:
                break
        await connecting.succeeds()
        assert len(accepted) == 50
        for end in [*accepted, *clients]:
            end.close()


@on_asyncio
@pytest.mark.parametrize("name", NAMES)
async def test_a_time_limit_around_each_wait_ends_it(loop: Loop, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    async with waits(loop) as operations:
        for _ in range(2):
            when = loop.after(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(loop.seconds(1)):
                    await operations[name]()
            assert task.cancelling() == 0
            # asyncio's own clock, which uvloop counts in milliseconds
            assert current_time() >= when - 0.002
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(-1):
                await operations[name]()
        assert task.cancelling() == 0
        await asyncio.sleep(0)


@on_each_loop
@pytest.mark.parametrize("name", NAMES)
async def test_a_scope_of_anyio_around_each_wait_ends_it(loop: Loop, name: str) -> None:
    async with waits(loop) as operations:
        with anyio.move_on_after(loop.seconds(1)) as scope:
            await operations[name]()
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await operations[name]()
        assert scope.cancelled_caught
        await loop.step()


@in_virtual_time
async def test_a_deadline_and_a_time_limit_at_the_same_moment_are_one_of_the_two(loop: Loop) -> None:
    async with unix_pair() as (conn, peer):
        for _ in range(3):
            conn.set_read_deadline(loop.after(1))
            with pytest.raises(TimeoutError):
                with anyio.fail_after(1):
                    await conn.receive_some()
        conn.set_read_deadline(float("inf"))
        await peer.send_all(b"usable")
        assert await conn.receive_some() == b"usable"
        if not loop.is_trio:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0


@on_each_loop
async def test_a_cancelled_send_ends_and_the_stream_reads_on(loop: Loop) -> None:
    async with tcp_pair() as (conn, peer), loop.tasks() as tasks:
        sending = tasks.start(conn.send_all, bytes(2**23))
        await loop.settle()
        sending.cancel()
        await sending.wait()
        assert sending.cancelled
        await peer.send_all(b"the other way")
        assert await receive_exactly(conn, 13) == b"the other way"


@on_each_loop
async def test_the_event_of_the_runtime_wakes_all_and_survives_cancelled_waiters(loop: Loop) -> None:
    event = Event()
    async with loop.tasks() as tasks:
        waiters = [tasks.start(event.wait) for _ in range(4)]
        limited = tasks.start(event.wait_until, loop.after(3600))
        await loop.settle()
        waiters[0].cancel()
        event.set()
        waiters[1].cancel()
        assert await limited.succeeds() is True
        for waiter in waiters:
            await waiter.wait()
        assert [waiter.error is None for waiter in waiters][2:] == [True, True]
        assert waiters[0].cancelled
    assert await event.wait_until(0) is True
    fresh = Event()
    when = loop.after(2)
    assert await fresh.wait_until(when) is False
    assert loop.is_at(when)


@on_each_loop
async def test_an_event_that_is_set_in_the_step_of_its_time_is_set(loop: Loop) -> None:
    event = Event()
    when = loop.after(1)
    after_func(loop.seconds(1), event.set)
    await event.wait_until(when)
    assert await event.wait_until(loop.after(1000)) is True


@on_each_loop
async def test_a_dial_is_cancelled_at_any_step(loop: Loop) -> None:
    with full_listener() as port:
        async with local_listener() as (_, open_port), loop.tasks() as tasks:
            for steps in range(8):
                for number in (port, open_port):
                    dialing = tasks.start(open_tcp_stream, LOCALHOST, number)
                    for _ in range(steps):
                        await loop.step()
                    dialing.cancel()
                    await dialing.wait()
                    if dialing.result is not None:
                        dialing.result.close()


@on_each_loop
async def test_a_shielded_group_hides_its_tasks_from_a_cancellation_around_it_until_it_is_cancelled(loop: Loop) -> None:
    release, done, cancelled = Event(), Event(), Event()

    async def works() -> None:
        await release.wait()
        done.set()

    async def waits_for_ever() -> None:
        try:
            await loop.forever()
        finally:
            cancelled.set()

    async def block() -> None:
        async with open_group() as group:
            group.shield()
            group.start_soon(works)
            group.start_soon(waits_for_ever)
            # the task of asyncio that is cancelled gets it; of trio, nobody does
            while not done.is_set():
                try:
                    await done.wait()
                except asyncio.CancelledError:
                    assert not loop.is_trio
            assert not cancelled.is_set()
            group.cancel()

    async with loop.tasks() as tasks:
        running = tasks.start(block)
        await loop.settle()
        running.cancel()
        await loop.settle()
        assert running.pending
        release.set()
        await running.wait()
        assert cancelled.is_set()


@on_each_loop
async def test_the_traceback_of_a_cancelled_block_shows_where_it_waited(loop: Loop) -> None:
    """For those who look for what has hung: asyncio.timeout shows it beside its TimeoutError."""
    shown = list[str]()

    async def hang() -> None:
        await loop.forever()

    async def block() -> None:
        try:
            async with open_group() as group:
                group.start_soon(loop.forever)
                await hang()
        except BaseException as error:
            shown.append("".join(traceback.format_exception(error)))
            raise

    async with loop.tasks() as tasks:
        running = tasks.start(block)
        await loop.settle()
        running.cancel()
        await running.wait()
    assert ", in hang\n" in shown[0]
