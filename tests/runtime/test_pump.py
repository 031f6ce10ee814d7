"""The pump: one task per run that polls. Time is virtual wherever it matters; sockets are real."""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined import Conn, DeadlineExceeded, statistics
from deadlined.poll import CLOSED, EXPIRED, OK, Half, PollDesc
from deadlined.runtime import Host, current_host
from deadlined.runtime.on_trio import TrioHost, current_trio_host
from deadlined.timers import Timer
from tests.support.poll import assert_sound, conn_pair, many_descriptors, socket_pair
from tests.support.runtime import HOUR, SURELY, counts, exit_status_of, expect_timeout, in_thread, run_once, wait


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
            current_host().poller.poll(0.0)

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
            pump, half = current_host(), conn._desc.read
            nursery.start_soon(wait, half)
            await wait_all_tasks_blocked()
            assert peer.try_send(b"x") == 1
            pump.poller.poll(0.0)
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
            pump = current_host()
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
                    current_host().poller.poll(0.0)
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
            current_host().poller.timers.modify(Timer(crash), start + 1)
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
            pump = current_host()
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
            assert_sound(current_host().poller, conn._desc, peer._desc)


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
            return current_host().clock.steady

        return trio.run(main, clock=clock)


class TestRuns:
    """One pump per run, from its first use to its end."""

    async def test_the_pump_never_blocks_the_run(self, autojump_clock: MockClock) -> None:
        """It polls what is there; the sleep is trio's. It may be woken for something that is gone by then."""
        pump = current_host()
        waits: list[float] = []
        port = pump.poller.port

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(port, name)

            def wait(self, timeout: float) -> list[tuple[int, int]]:
                waits.append(timeout)
                return port.wait(0.0)

        async with conn_pair() as (conn, peer):
            pump.poller.port = Watched()
            conn.set_read_deadline(5.0)
            await expect_timeout(conn, 5.0)
            await peer.send_all(b"x")
            conn.set_read_deadline(math.inf)
            assert await conn.receive_some() == b"x"
        assert len(waits) >= 2
        assert max(waits) <= 0.0

    def test_outside_of_a_run_there_is_no_pump(self) -> None:
        with pytest.raises(RuntimeError):
            current_host()
        with pytest.raises(RuntimeError):
            statistics()

    async def test_it_is_started_by_the_first_use(self) -> None:
        assert statistics() is None
        pump = current_host()
        assert current_host() is pump
        assert counts().poller.descriptors == 0

    def test_it_cannot_be_started_once_the_run_ends(self) -> None:
        """By the finalizer of an asynchronous generator, say."""
        refused: list[bool] = []

        async def finalized_late() -> AsyncIterator[None]:
            try:
                yield
            finally:
                with pytest.raises(RuntimeError):
                    current_host()
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
        pumps: list[Host] = []

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
        async def main() -> Host:
            return current_host()

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


def run_once_precisely() -> Host:
    """A run on the real clock, with a deadline."""

    async def main() -> Host:
        async with conn_pair() as (conn, _):
            conn.set_read_timeout(0.001)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
        return current_host()

    return trio.run(main)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timerfd is Linux's")
class TestPrecision:
    """DEADLINED_PRECISE: the sleeping pump is woken by a timer of the kernel that counts in nanoseconds."""

    @pytest.fixture(autouse=True)
    def precise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEADLINED_PRECISE", "1")

    async def test_a_deadline_passes_and_never_early(self) -> None:
        assert current_trio_host().pump._timer is not None
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
        assert current_trio_host().pump._timer is None
        async with conn_pair() as (conn, _):
            conn.set_read_timeout(3600)
            with pytest.raises(DeadlineExceeded):
                await conn.receive_some()
            assert trio.current_time() == 3600

    def test_the_timer_ends_with_the_run(self) -> None:
        host = run_once_precisely()
        assert isinstance(host, TrioHost)
        timer = host.pump._timer
        assert timer is not None
        assert timer.fileno() == -1

    async def test_a_forked_child_lets_go_of_the_timer_and_the_parent_keeps_its_deadlines(self) -> None:
        timer = current_trio_host().pump._timer
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
            current_host()
