"""The pump: one task per run that polls. Time is virtual wherever it matters; sockets are real."""

from __future__ import annotations

import errno
import gc
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import ExitStack
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import trio
from poll_support import assert_sound, conn_pair, many_descriptors, socket_pair
from support import interrupted_at
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

import deadlined
from deadlined import Conn, DeadlineExceeded, statistics
from deadlined.poll import CLOSED, EXPIRED, OK, Half, PollDesc
from deadlined.runtime import (
    Parking,
    Pump,
    RuntimeStatistics,
    ScheduledCheckpoint,
    TaskContext,
    TaskParker,
    current_pump,
    yield_shielded,
)
from deadlined.runtime.waking import WOKEN
from deadlined.timers import COMPILED, Timer

HOUR = 3600.0
SURELY = 60.0  # seconds of real time: by then, or something is broken


def test_the_wake_is_an_outcome_of_none_any_number_of_times() -> None:
    def listener() -> Generator[str, None, None]:
        heard = yield "ready"
        yield f"heard {heard}"

    async def async_listener() -> AsyncGenerator[str, None]:
        heard = yield "ready"
        yield f"heard {heard}"

    async def ask() -> str:
        generator = async_listener()
        assert await anext(generator) == "ready"
        answer = await WOKEN.asend(generator)
        await generator.aclose()
        return answer

    for _ in range(2):
        assert WOKEN.unwrap() is None  # type: ignore[func-returns-value]
        generator = listener()
        assert next(generator) == "ready"
        assert WOKEN.send(generator) == "heard None"
        assert trio.run(ask) == "heard None"


async def test_a_connection_that_has_slept_leaves_no_cycle() -> None:
    """Its memory is given back when it is closed, and not when the collector comes."""

    def kept() -> int:
        # a closed half whose entry waits to be swept is the queue's, and what else it held is gone
        things = [thing for thing in gc.get_objects() if isinstance(thing, (Half, Parking))]
        return sum(not (isinstance(thing, Half) and thing.zombie and thing.arg is None) for thing in things)

    async def sleep_once() -> None:
        left, right = (Conn.from_socket(end) for end in socket.socketpair())
        async with left, right, trio.open_nursery() as nursery:
            left.set_read_deadline(trio.current_time() + HOUR)
            nursery.start_soon(left.receive_some)
            await wait_all_tasks_blocked()
            await right.send_all(b"x")

    await sleep_once()
    gc.collect()
    gc.disable()
    try:
        before = kept()
        for _ in range(5):
            await sleep_once()
        assert kept() == before
    finally:
        gc.enable()


class TestYieldShielded:
    async def test_others_run_and_a_cancellation_waits(self) -> None:
        seen: list[str] = []

        async def other() -> None:
            seen.append("other")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            with trio.CancelScope() as scope:
                scope.cancel()
                # trio runs a batch in either order: after two of them the other has had its turn
                await yield_shielded
                await yield_shielded
                seen.append("one")
                await trio.lowlevel.checkpoint()
            assert scope.cancelled_caught
        assert seen == ["other", "one"]

    async def test_a_cancellation_meanwhile_waits_too(self) -> None:
        seen: list[str] = []
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_way_and_note, seen)
                await trio.lowlevel.checkpoint()
                scope.cancel()
        assert seen == ["gave way", "cancelled"]

    async def test_a_task_that_cancels_itself_afterwards_is_cancelled_at_its_next_checkpoint(self) -> None:
        with trio.CancelScope() as scope:
            await yield_shielded
            scope.cancel()
            await yield_shielded
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught


class TestScheduledCheckpoint:
    """A checkpoint before an operation, in one step."""

    async def test_it_is_a_checkpoint_and_returns_the_state_of_the_half(self) -> None:
        async with conn_pair() as (conn, _):
            half = conn._desc.read
            scheduled = ScheduledCheckpoint(half)
            for _ in range(2):
                with assert_checkpoints():
                    assert await scheduled == OK
            half.set_deadline(trio.current_time() - 1)
            assert await scheduled == EXPIRED
            half.close()
            assert await scheduled == CLOSED

    async def test_a_task_that_is_cancelled_already_does_not_go_on(self) -> None:
        async with conn_pair() as (conn, _):
            scheduled = ScheduledCheckpoint(conn._desc.read)
            with trio.CancelScope() as scope:
                scope.cancel()
                await scheduled
                pytest.fail("went on")
            assert scope.cancelled_caught
            with assert_checkpoints():
                assert await scheduled == OK

    async def test_a_task_that_is_cancelled_meanwhile_does_not_go_on(self) -> None:
        seen: list[str] = []

        async def take(scheduled: ScheduledCheckpoint) -> None:
            for number in range(3):
                await scheduled
                seen.append(f"turn {number}")

        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            nursery.start_soon(take, ScheduledCheckpoint(conn._desc.read))
            # begun, whichever task trio lets run first
            while not seen:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert seen in (["turn 0"], ["turn 0", "turn 1"])

    def test_a_cancellation_that_came_between_two_turns_and_has_gone_is_not_raised(self) -> None:
        went_on: list[int] = []

        async def main() -> None:
            async with conn_pair() as (conn, _):
                scheduled = ScheduledCheckpoint(conn._desc.read)
                with trio.CancelScope() as scope:
                    await scheduled
                    scope.cancel()
                went_on.append(await scheduled)

        trio.run(main)
        assert went_on == [OK]

    async def test_a_shielded_one_is_not_cancelled(self) -> None:
        async with conn_pair() as (conn, _):
            scheduled = ScheduledCheckpoint(conn._desc.read)
            with trio.CancelScope() as scope:
                scope.cancel()
                with trio.CancelScope(shield=True):
                    assert await scheduled == OK
                await scheduled
            assert scope.cancelled_caught

    def test_ctrl_c_that_comes_meanwhile_is_raised(self) -> None:
        async def main() -> None:
            async with conn_pair() as (conn, _):
                scheduled = ScheduledCheckpoint(conn._desc.read)
                await scheduled
                trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)
                for _ in range(100):
                    await scheduled
                pytest.fail("went on")

        with pytest.raises(KeyboardInterrupt):
            trio.run(main)


async def give_way_and_note(seen: list[str]) -> None:
    await yield_shielded
    seen.append("gave way")
    try:
        await trio.lowlevel.checkpoint()
    except trio.Cancelled:
        seen.append("cancelled")
        raise


class TestTaskParker:
    """Where a task sleeps until it is woken."""

    async def test_each_sleep_ends_by_a_wake_of_its_own(self) -> None:
        woken: list[int] = []
        parker = TaskParker(pytest.fail)

        async def sleeper() -> None:
            for number in range(3):
                await parker
                woken.append(number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper)
            for number in range(3):
                await wait_all_tasks_blocked()
                assert woken == list(range(number))
                parker.wake()

    async def test_a_cancelled_task_leaves_it_at_once_and_can_park_again(self) -> None:
        left: list[str] = []
        parker = TaskParker(lambda: left.append("left"))
        for number in range(2):
            with trio.move_on_after(0) as scope:
                await parker
            assert scope.cancelled_caught
            assert len(left) == number + 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(park_at, parker)
            await wait_all_tasks_blocked()
            parker.wake()

    async def test_a_woken_task_is_not_cancelled_any_more(self) -> None:
        parker = TaskParker(pytest.fail)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(park_at, parker)
                await wait_all_tasks_blocked()
                parker.wake()
                scope.cancel()


async def park_at(parker: TaskParker) -> None:
    await parker


class TestTaskContext:
    NAME: ContextVar[str] = ContextVar("NAME", default="nobody")

    async def test_it_is_new_after_the_next_step(self) -> None:
        context = TaskContext(copy_context())
        self.NAME.set("one")
        context.renew()
        assert self.NAME.get() == "one"
        await trio.lowlevel.checkpoint()
        assert self.NAME.get() == "nobody"

    async def test_each_is_a_copy_of_the_origin(self) -> None:
        origin = copy_context()
        origin.run(self.NAME.set, "origin")
        context = TaskContext(origin)
        for _ in range(2):
            context.renew()
            await trio.lowlevel.checkpoint()
            assert self.NAME.get() == "origin"
            self.NAME.set("changed")
        assert origin[self.NAME] == "origin"

    async def test_what_was_begun_in_the_old_one_goes_on_there(self) -> None:
        """A task of its own has its own context."""
        seen: list[str] = []

        async def child() -> None:
            await trio.lowlevel.checkpoint()
            seen.append(self.NAME.get())

        context = TaskContext(copy_context())
        self.NAME.set("one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            context.renew()
        assert seen == ["one"]


async def wait(half: Half) -> int:
    """Sleep where nobody else knows of it."""
    return await Parking(half)


def counts() -> RuntimeStatistics:
    found = statistics()
    assert found is not None
    return found


def seconds_to_next_deadline() -> float:
    """What trio would sleep, and what an autojump clock would jump."""
    return trio.lowlevel.current_statistics().seconds_to_next_deadline


async def expect_timeout(conn: Conn, when: float) -> None:
    """Read until the read deadline ends it, exactly at `when`."""
    with pytest.raises(DeadlineExceeded):
        await conn.receive_some()
    assert trio.current_time() == when


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

    async def test_an_extended_deadline_ends_at_its_new_time(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            conn.set_read_deadline(start + 5)
            nursery.start_soon(expect_timeout, conn, start + 100)
            await trio.sleep(3)
            conn.set_read_deadline(start + 100)

    async def test_a_shortened_deadline_ends_at_its_new_time(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            conn.set_read_deadline(start + 100)
            nursery.start_soon(expect_timeout, conn, start + 5)
            await trio.sleep(3)
            conn.set_read_deadline(start + 5)

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
        current_pump()
        await wait_all_tasks_blocked()
        for _ in range(20):
            async with conn_pair() as (conn, other):
                conn.set_read_timeout(HOUR)
                await other.send_all(b"x")
                await conn.receive_some()
            await wait_all_tasks_blocked()
        assert counts().kicks == 1


class TestWaiting:
    async def test_a_deadline_set_from_another_thread_breaks_the_sleep(self) -> None:
        """Go's TestNetpollBreak, through trio's own door for threads."""
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            conn.set_read_deadline(trio.current_time() + HOUR)

            async def read() -> None:
                with pytest.raises(DeadlineExceeded):
                    await conn.receive_some()

            def set_from_outside() -> None:
                start = trio.from_thread.run_sync(trio.current_time)
                for seconds in range(int(HOUR) - 1, 60, -60):
                    trio.from_thread.run_sync(conn.set_read_deadline, start + seconds)
                trio.from_thread.run_sync(conn.set_read_deadline, -math.inf)

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            await trio.to_thread.run_sync(set_from_outside)

    async def test_a_cancellation_passes_through_and_leaves_the_half_usable(self, autojump_clock: MockClock) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, peer):
            conn.set_read_deadline(start + HOUR)
            with trio.move_on_after(1) as scope:
                await conn.receive_some()
            assert scope.cancelled_caught
            assert counts().poller.parked == 0
            await peer.send_all(b"still here")
            assert await conn.receive_some() == b"still here"
            await expect_timeout(conn, start + HOUR)

    async def test_a_cancelled_task_is_woken_by_nothing_else_before_it_runs(self) -> None:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            half = conn._desc.read
            nursery.start_soon(wait, half)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            assert half.waiter is None
            # trio would not survive a second wake
            assert peer.try_send(b"x") == 1
            current_pump()._poller.poll(0.0)

    async def test_a_coroutine_that_is_closed_while_it_is_parked_leaves_nobody_there(self) -> None:
        async with conn_pair() as (conn, _):
            half = conn._desc.read
            parked = wait(half)
            parked.send(None)
            assert half.waiter is trio.lowlevel.current_task()
            parked.close()
            assert half.waiter is None

    async def test_a_cancellation_after_the_wake_loses_no_readiness(self) -> None:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            pump, half = current_pump(), conn._desc.read
            nursery.start_soon(wait, half)
            await wait_all_tasks_blocked()
            assert peer.try_send(b"x") == 1
            pump._poller.poll(0.0)
            nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert await conn.receive_some() == b"x"

    async def test_woken_by_a_deadline_that_was_moved_before_it_ran_it_sleeps_on(
        self, autojump_clock: MockClock
    ) -> None:
        start = trio.current_time()
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            nursery.start_soon(expect_timeout, conn, start + 5)
            await wait_all_tasks_blocked()
            conn.set_read_deadline(-math.inf)
            conn.set_read_deadline(start + 5)

    async def test_a_task_that_waits_while_it_is_closed_sees_it_closed(self) -> None:
        outcomes: list[int] = []
        with socket_pair() as (left, _):
            pump = current_pump()
            desc = pump.open(left.fileno())

            async def outcome_of(half: Half) -> None:
                outcomes.append(await wait(half))

            async with trio.open_nursery() as nursery:
                assert await wait(desc.write) == OK
                nursery.start_soon(outcome_of, desc.read)
                nursery.start_soon(outcome_of, desc.write)
                await wait_all_tasks_blocked()
                desc.set_deadline(-math.inf)
                pump.close(desc)
        assert outcomes == [CLOSED, CLOSED]

    async def test_a_second_waiter_is_refused_and_the_first_sleeps_on(self) -> None:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            half = conn._desc.read
            nursery.start_soon(wait, half)
            await wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="double wait"):
                await wait(half)
            await peer.send_all(b"x")

    async def test_a_number_that_is_closed_and_opened_anew_within_a_batch(self) -> None:
        """Both readers are woken by one batch; before they run, one's descriptor is closed and its number comes
        again."""
        heard: list[bytes] = []

        async def hear(conn: Conn) -> None:
            heard.append(await conn.receive_some())

        async def hear_that_it_is_closed(conn: Conn) -> None:
            with pytest.raises(trio.ClosedResourceError):
                await conn.receive_some()

        with socket_pair() as (new_end, new_peer):
            async with conn_pair() as (first, first_peer), conn_pair() as (second, second_peer):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(hear, first)
                    nursery.start_soon(hear_that_it_is_closed, second)
                    await wait_all_tasks_blocked()
                    assert first_peer.try_send(b"first") == 5
                    assert second_peer.try_send(b"second") == 6
                    current_pump()._poller.poll(0.0)
                    number = second.socket.fileno()
                    second.close()
                    assert os.dup(new_end.fileno()) == number
                    third = Conn.from_socket(socket.socket(fileno=number))
                    new_peer.send(b"third")
                async with third:
                    await hear(third)
        assert heard == [b"first", b"third"]

    async def test_a_crash_in_a_timers_callback_does_not_end_the_pump(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        def crash(arg: Any, seq: int, lateness: float) -> None:
            raise ZeroDivisionError("on purpose")

        start = trio.current_time()
        async with conn_pair() as (conn, peer):
            current_pump()._poller.timers.modify(Timer(crash), start + 1)
            conn.set_read_deadline(start + 1)
            peer.set_read_deadline(start + 2)
            with caplog.at_level(logging.ERROR, logger="deadlined.timers"):
                await expect_timeout(conn, start + 1)
            await expect_timeout(peer, start + 2)
        [record] = caplog.records
        assert record.name == "deadlined.timers"
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError
        assert counts().poller.timers.failed == 1


class TestFairness:
    async def test_a_firehose_of_readiness_does_not_starve_deadlines(self) -> None:
        """On the real clock, because virtual time stands still while anything can run."""
        echoes = 0

        async def echo(conn: Conn) -> None:
            nonlocal echoes
            while True:
                await conn.send_all(await conn.receive_some())
                echoes += 1

        async def read_until_it_times_out(conn: Conn, when: float) -> None:
            conn.set_read_deadline(when)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
            assert trio.current_time() >= when

        with trio.fail_after(SURELY), ExitStack() as stack:

            def pair() -> tuple[Conn, Conn]:
                left, right = (Conn.from_socket(end) for end in socket.socketpair())
                stack.callback(left.close)
                stack.callback(right.close)
                return left, right

            async with trio.open_nursery() as echoing:
                for _ in range(8):
                    ends = pair()
                    await ends[0].send_all(b"ball")
                    for end in ends:
                        echoing.start_soon(echo, end)
                start = trio.current_time()
                async with trio.open_nursery() as nursery:
                    for i in range(20):
                        nursery.start_soon(read_until_it_times_out, pair()[0], start + 0.001 * (i + 1))
                assert echoes > 0
                echoing.cancel_scope.cancel()

    async def test_a_thousand_deadlines_at_once_beside_ready_sockets(self, mock_clock: MockClock) -> None:
        when = trio.current_time() + 5
        outcomes: list[int] = []
        received: list[bytes] = []

        async def outcome_of(half: Half) -> None:
            outcomes.append(await wait(half))

        async def receive(conn: Conn) -> None:
            received.append(await conn.receive_some())

        with many_descriptors(1100), ExitStack() as stack:
            pump = current_pump()
            descs: list[PollDesc] = []
            conns: list[tuple[Conn, Conn]] = []
            async with trio.open_nursery() as nursery:
                # sockets of their own, not duplicates: Linux nests one file no more than 500 times
                for idle in (end for _ in range(500) for end in stack.enter_context(socket_pair())):
                    descs.append(pump.open(idle.fileno()))
                    descs[-1].read.set_deadline(when)
                    nursery.start_soon(outcome_of, descs[-1].read)
                for _ in range(10):
                    left, right = (Conn.from_socket(end) for end in socket.socketpair())
                    conns.append((left, right))
                    nursery.start_soon(receive, left)
                await wait_all_tasks_blocked()
                mock_clock.jump(5)
                for _, right in conns:
                    right.try_send(b"served")
            for desc in descs:
                pump.close(desc)
            for left, right in conns:
                left.close()
                right.close()
        assert outcomes == [EXPIRED] * 1000
        assert received == [b"served"] * 10
        assert counts().poller.worst_lateness == 0

    async def test_two_hundred_thousand_resets_of_a_deadline_across_real_waits(self) -> None:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:

            async def beat() -> None:
                for _ in range(500):
                    await peer.send_all(b".")
                    await trio.lowlevel.checkpoint()
                await peer.send_eof()

            nursery.start_soon(beat)
            set_deadline = conn.set_read_deadline
            resets = 0
            set_deadline(trio.current_time() + SURELY)
            while await conn.receive_some(1):
                for step in range(400):
                    set_deadline(trio.current_time() + SURELY + step)
                resets += 400
            found = counts()
            assert resets == 200_000
            assert (found.poller.expired, found.poller.stale) == (0, 0)
            assert found.poller.timers.stored <= 2  # a reset to earlier files the entry anew, it makes no second one
            assert found.poller.timers.zombies == 0
            assert_sound(current_pump()._poller, conn._desc, peer._desc)


@trio.lowlevel.enable_ki_protection
def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


class TestControlC:
    """Each in a run of its own, whose main task gets the KeyboardInterrupt."""

    def test_a_parked_task_is_interrupted_and_its_half_stays_usable(self) -> None:
        async def interrupt() -> None:
            signal.raise_signal(signal.SIGINT)

        async def main() -> None:
            async with conn_pair() as (conn, peer):
                conn.set_read_deadline(trio.current_time() + HOUR)
                await wait_all_tasks_blocked()
                # a system task is protected, so the signal goes to the main task, which is parked by then
                trio.lowlevel.spawn_system_task(interrupt)
                with pytest.raises(KeyboardInterrupt):
                    await conn.receive_some()
                assert counts().poller.parked == 0
                await peer.send_all(b"still here")
                assert await conn.receive_some() == b"still here"
                start = trio.current_time()
                await expect_timeout(conn, conn.read_deadline)
                assert trio.current_time() > start
                assert_sound(current_pump()._poller, conn._desc, peer._desc)

        trio.run(main, clock=MockClock(autojump_threshold=0))

    def test_it_ends_the_run_while_another_task_is_parked(self) -> None:
        async def main() -> None:
            async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
                conn.set_read_deadline(trio.current_time() + HOUR)
                nursery.start_soon(conn.receive_some)
                await wait_all_tasks_blocked()
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(BaseExceptionGroup) as caught:
            trio.run(main)
        assert caught.value.split(KeyboardInterrupt)[1] is None

    def test_as_a_task_parks_it_is_raised_and_nobody_is_left_parked(self) -> None:
        """Pressed in code that is protected, it waits for the task's next sleep, and ends that at once."""

        async def main() -> None:
            async with conn_pair() as (conn, peer):
                left: list[str] = []
                waits: list[Callable[[], Awaitable[object]]] = [
                    lambda: wait(conn._desc.read),
                    conn.receive_some,
                    conn.wait_readable,
                    lambda: park_at(TaskParker(lambda: left.append("left"))),
                    lambda: deadlined.sleep(HOUR),
                ]
                for operation in waits:
                    press_ctrl_c()
                    with pytest.raises(KeyboardInterrupt):
                        await operation()
                    assert counts().poller.parked == 0
                assert left == ["left"]
                await peer.send_all(b"still here")
                assert await conn.receive_some() == b"still here"
                assert_sound(current_pump()._poller, conn._desc, peer._desc)

        trio.run(main)

    def test_as_a_task_gives_way_it_waits_for_the_next_sleep(self) -> None:
        async def main() -> None:
            press_ctrl_c()
            await yield_shielded
            seen.append("gave way")
            await trio.lowlevel.checkpoint()

        seen: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            trio.run(main)
        assert seen == ["gave way"]

    @pytest.mark.skipif(COMPILED, reason="compiled code has no lines to interrupt")
    def test_at_any_line_of_a_wait_nobody_is_left_parked(self) -> None:
        async def main() -> None:
            step = 0
            async with conn_pair() as (conn, peer):
                pump, half = current_pump(), conn._desc.read
                while True:
                    reached: list[str] = []
                    interrupted = False
                    half.set_deadline(trio.current_time() + 1)
                    try:
                        with interrupted_at(step, reached):
                            await wait(half)
                        await trio.lowlevel.checkpoint()
                    except KeyboardInterrupt:
                        interrupted = True
                    assert interrupted == bool(reached)
                    assert counts().poller.parked == 0, reached
                    assert_sound(pump._poller, conn._desc, peer._desc)
                    if not reached:
                        break
                    step += 1
                assert step >= 10, "the trace has not seen the wait"
                half.set_deadline(math.inf)
                await peer.send_all(b"still here")
                assert await conn.receive_some() == b"still here"

        trio.run(main, clock=MockClock(autojump_threshold=0))

    @pytest.mark.skipif(COMPILED, reason="compiled code has no lines to interrupt")
    @pytest.mark.parametrize("what", ["yield shielded", "scheduled checkpoint", "task parker"])
    def test_at_any_line_of_giving_way_no_wake_is_left_over(self, what: str) -> None:
        """One that is would end the task's next sleep, or be one too many for trio."""

        async def main() -> None:
            step = 0
            half = Half(current_pump()._poller)
            while True:
                reached: list[str] = []
                interrupted = False
                parker = TaskParker(lambda: None)
                ways: dict[str, Awaitable[object]] = {
                    "yield shielded": yield_shielded,
                    "scheduled checkpoint": ScheduledCheckpoint(half),
                    "task parker": parker,
                }
                try:
                    with interrupted_at(step, reached), trio.move_on_after(1):
                        await ways[what]
                    await trio.lowlevel.checkpoint()
                except KeyboardInterrupt:
                    interrupted = True
                assert interrupted == bool(reached)
                start = trio.current_time()
                await trio.sleep(HOUR)
                assert trio.current_time() == start + HOUR, reached
                if not reached:
                    break
                step += 1
            assert step >= 2, "the trace has not seen it"

        trio.run(main, clock=MockClock(autojump_threshold=0))

    @pytest.mark.skipif(COMPILED, reason="compiled code has no lines to interrupt")
    @pytest.mark.parametrize("operation", ["first", "earlier", "later", "cleared", "past", "close", "open"])
    def test_at_any_line_it_leaves_the_deadlines_intact(self, operation: str) -> None:
        """What moves entries about finishes what it began; the KeyboardInterrupt comes after it."""

        async def main() -> None:
            step = 0
            while await self.interrupt_once(operation, step):
                step += 1
            # to move it later is three lines: the question, and two stores
            assert step == 3 if operation == "later" else step >= 4, "the trace has not seen the operation"

        trio.run(main, clock=MockClock(autojump_threshold=0))

    async def interrupt_once(self, operation: str, step: int) -> bool:
        """Whether the operation has a line of that number."""
        start = trio.current_time()
        reached: list[str] = []
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            pump, desc = current_pump(), conn._desc
            peer.set_deadline(start + 20)
            if operation != "first":
                conn.set_deadline(start + 10)
            nursery.start_soon(wait, desc.read)
            await wait_all_tasks_blocked()
            with socket_pair() as (fresh, _):
                opened: list[PollDesc] = []
                act: dict[str, Callable[[], object]] = {
                    "first": lambda: desc.read.set_deadline(start + 10),
                    "earlier": lambda: desc.read.set_deadline(start + 5),
                    "later": lambda: desc.read.set_deadline(start + 15),
                    "cleared": lambda: desc.read.set_deadline(math.inf),
                    "past": lambda: desc.read.set_deadline(start - 1),
                    "close": lambda: pump._poller.close(desc),
                    "open": lambda: opened.append(pump._poller.open(fresh.fileno())),
                }
                with interrupted_at(step, reached):
                    act[operation]()
                if reached:
                    with pytest.raises(KeyboardInterrupt):
                        await trio.sleep_forever()
                assert_sound(pump._poller, desc, peer._desc, *opened)
                expected = {"first": start + 10, "earlier": start + 5, "later": start + 15, "past": start - 1}
                assert desc.read.deadline == expected.get(operation, start + 10 if operation == "open" else math.inf)
                assert (desc.read.check() == CLOSED) == (operation == "close")
                for new in opened:
                    pump.close(new)
            nursery.cancel_scope.cancel()
        return bool(reached)


class TestClock:
    """Trio's clock is read without Python only where it is known."""

    def test_trios_own_is_known(self) -> None:
        assert self.is_steady(None)

    def test_a_virtual_one_is_asked(self) -> None:
        assert not self.is_steady(MockClock())

    def test_one_that_only_looks_like_trios_is_asked(self) -> None:
        class SystemClock(trio.abc.Clock):
            """Its offset is not what it adds to `time.perf_counter()`."""

            offset = 1e6

            def start_clock(self) -> None:
                pass

            def current_time(self) -> float:
                return time.perf_counter()

            def deadline_to_sleep_time(self, deadline: float) -> float:
                return deadline - self.current_time()

        assert not self.is_steady(SystemClock())

    def is_steady(self, clock: trio.abc.Clock | None) -> bool:
        async def main() -> bool:
            return current_pump().clock.steady

        return trio.run(main, clock=clock)


class TestRuns:
    """One pump per run, from its first use to its end."""

    async def test_the_pump_never_blocks_the_run(self, autojump_clock: MockClock) -> None:
        """It polls what is there; the sleep is trio's. It may be woken for something that is gone by then."""
        pump = current_pump()
        waits: list[float] = []
        port = pump._poller.port

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(port, name)

            def wait(self, timeout: float) -> list[tuple[int, int]]:
                waits.append(timeout)
                return port.wait(0.0)

        async with conn_pair() as (conn, peer):
            pump._poller.port = Watched()
            conn.set_read_deadline(5.0)
            await expect_timeout(conn, 5.0)
            await peer.send_all(b"x")
            conn.set_read_deadline(math.inf)
            assert await conn.receive_some() == b"x"
        assert len(waits) >= 2
        assert max(waits) <= 0.0

    def test_outside_of_a_run_there_is_no_pump(self) -> None:
        with pytest.raises(RuntimeError):
            current_pump()
        with pytest.raises(RuntimeError):
            statistics()

    async def test_it_is_started_by_the_first_use(self) -> None:
        assert statistics() is None
        pump = current_pump()
        assert current_pump() is pump
        assert counts().poller.descriptors == 0

    def test_it_cannot_be_started_once_the_run_ends(self) -> None:
        """By the finalizer of an asynchronous generator, say."""
        refused: list[bool] = []

        async def finalized_late() -> AsyncIterator[None]:
            try:
                yield
            finally:
                with pytest.raises(RuntimeError):
                    current_pump()
                refused.append(True)

        async def main() -> AsyncIterator[None]:
            # returned, so that nothing but the end of the run finalizes it
            generator = finalized_late()
            await anext(generator)
            return generator

        trio.run(main)
        assert refused == [True]

    async def test_it_counts(self) -> None:
        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            nursery.start_soon(conn.receive_some)
            await wait_all_tasks_blocked()
            found = counts().poller
            assert (found.descriptors, found.parked) == (2, 1)
            nursery.cancel_scope.cancel()

    def test_runs_one_after_another_have_pumps_of_their_own(self) -> None:
        assert run_once() is not run_once()

    def test_runs_in_two_threads_at_once(self) -> None:
        both = threading.Barrier(2, timeout=SURELY)
        pumps: list[Pump] = []

        def run() -> None:
            pumps.append(run_once(between=both.wait))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(pumps)) == 2

    @pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
    def test_it_ends_with_the_run_and_gives_its_descriptors_back(self) -> None:
        before = os.listdir("/proc/self/fd")  # noqa: PTH208, only counted
        pump = run_once()
        assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208, only counted
        with pytest.raises(OSError, match="closed") as caught:
            pump.open(0)
        assert caught.value.errno == errno.EBADF

    def test_a_connection_can_be_closed_after_the_run(self) -> None:
        async def main() -> tuple[Conn, Conn]:
            left, right = (Conn.from_socket(end) for end in socket.socketpair())
            left.set_deadline(trio.current_time() + HOUR)
            return left, right

        for conn in trio.run(main):
            assert conn.socket.fileno() >= 0
            conn.close()
            assert conn.socket.fileno() == -1

    def test_a_run_that_ends_at_once_ends_its_pump(self) -> None:
        async def main() -> Pump:
            return current_pump()

        pump = trio.run(main)
        with pytest.raises(OSError, match="closed"):
            pump.open(0)

    def test_windows_is_told_what_it_needs(self) -> None:
        """A process that takes itself for Windows once trio is there."""
        script = """
import sys, trio
sys.platform = "win32"
try:
    import deadlined
except ImportError as error:
    print(error)
"""
        told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert told.stderr == ""
        assert told.stdout == (
            "deadlined needs a POSIX system (epoll or kqueue); on Windows, run it inside WSL or a container\n"
        )


def run_once(between: Callable[[], object] = bool) -> Pump:
    """A run with a deadline and an echo; `between` is called in its middle."""

    async def main() -> Pump:
        start = trio.current_time()
        async with conn_pair() as (conn, peer):
            between()
            conn.set_read_deadline(start + 5)
            await expect_timeout(conn, start + 5)
            between()
            conn.set_read_deadline(math.inf)
            await peer.send_all(b"echo")
            assert await conn.receive_some() == b"echo"
        return current_pump()

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def run_once_precisely() -> Pump:
    """A run on the real clock, with a deadline."""

    async def main() -> Pump:
        async with conn_pair() as (conn, _):
            conn.set_read_timeout(0.001)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
        return current_pump()

    return trio.run(main)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timerfd is Linux's")
class TestPrecision:
    """DEADLINED_PRECISE: the sleeping pump is woken by a timer of the kernel that counts in nanoseconds."""

    @pytest.fixture(autouse=True)
    def precise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEADLINED_PRECISE", "1")

    async def test_a_deadline_passes_and_never_early(self) -> None:
        assert current_pump()._timer is not None
        async with conn_pair() as (conn, _):
            for timeout in (0.0001, 0.0015, 0.01):
                deadline = trio.current_time() + timeout
                conn.set_read_deadline(deadline)
                with pytest.raises(DeadlineExceeded):
                    await conn.receive_some()
                assert trio.current_time() >= deadline

    async def test_an_earlier_deadline_is_heard_of_and_a_cleared_one_forgotten(self) -> None:
        async with conn_pair() as (conn, peer), trio.open_nursery() as nursery:
            start = trio.current_time()
            conn.set_read_deadline(start + 3600)
            nursery.start_soon(self.exceeds, conn, start + 0.005)
            await wait_all_tasks_blocked()
            conn.set_read_deadline(start + 0.005)
            peer.set_read_deadline(start + 0.001)
            peer.set_read_deadline(math.inf)

    async def exceeds(self, conn: Conn, deadline: float) -> None:
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
        assert trio.current_time() >= deadline

    async def test_virtual_time_needs_no_kernel(self, autojump_clock: MockClock) -> None:
        assert current_pump()._timer is None
        async with conn_pair() as (conn, _):
            conn.set_read_timeout(3600)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
            assert trio.current_time() == 3600

    def test_the_timer_ends_with_the_run(self) -> None:
        timer = run_once_precisely()._timer
        assert timer is not None
        assert timer.fileno() == -1

    async def test_a_forked_child_lets_go_of_the_timer_and_the_parent_keeps_its_deadlines(self) -> None:
        pump = current_pump()
        timer = pump._timer
        assert timer is not None
        number = timer.fileno()

        def child() -> None:
            assert timer.fileno() == -1
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
            in_thread(run_once_precisely)

        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            deadline = trio.current_time() + 0.05
            conn.set_read_deadline(deadline)
            nursery.start_soon(self.exceeds, conn, deadline)
            await wait_all_tasks_blocked()
            assert exit_status_of(child) == 0
            assert timer.fileno() == number

    async def test_an_invalid_value_of_the_variable_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEADLINED_PRECISE", "maybe")
        with pytest.raises(ValueError, match=r"DEADLINED_PRECISE is 1 or 0, not 'maybe'"):
            current_pump()


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
        pump = current_pump()

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


def exit_status_of(child: Callable[[], None]) -> int:
    """Fork, run `child` there, and wait for it."""
    with warnings.catch_warnings():
        # from 3.12 on a fork with threads is warned of; the child starts only new ones
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(int(SURELY))
            child()
            status = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_thread(work: Callable[[], object]) -> None:
    """Run `work` in a thread, and let its error through."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def run_in_thread() -> None:
    """In a thread, because trio takes the one that forked for being inside the parent's run."""
    in_thread(run_once)
