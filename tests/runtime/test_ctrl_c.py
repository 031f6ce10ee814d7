"""Ctrl-C while a task waits: at any line, no deadline is lost and no waiter left behind."""

from __future__ import annotations

import math
import signal
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import deadlined
from deadlined.poll import CLOSED, Half, PollDesc
from deadlined.runtime import Event, current_host
from deadlined.runtime.on_trio.parking import TaskParker, TrioTurn, yield_shielded
from deadlined.timers import COMPILED
from tests.support.interrupts import interrupted_at
from tests.support.poll import assert_sound, conn_pair, socket_pair
from tests.support.runtime import HOUR, counts, expect_timeout, park, wait


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
                assert_sound(current_host().poller, conn._desc, peer._desc)

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
                    lambda: park(TaskParker(lambda: left.append("left"))),
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
                assert_sound(current_host().poller, conn._desc, peer._desc)

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
                pump, half = current_host(), conn._desc.read
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
                    assert_sound(pump.poller, conn._desc, peer._desc)
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
            half = Half(current_host().poller)
            while True:
                reached: list[str] = []
                interrupted = False
                parker = TaskParker(lambda: None)
                ways: dict[str, Awaitable[object]] = {
                    "yield shielded": yield_shielded,
                    "scheduled checkpoint": TrioTurn(half),
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

    @pytest.mark.parametrize("when", [math.inf, 5.0])
    def test_at_any_line_of_waiting_for_an_event_no_waiter_is_left(self, when: float) -> None:
        """One that is would be woken by the event while its task sleeps for something else."""

        async def setting(event: Event) -> None:
            event.set()

        async def main() -> None:
            current_host()
            step = 0
            while True:
                reached: list[str] = []
                event = Event()
                interrupted = False
                try:
                    with interrupted_at(step, reached), trio.move_on_after(1):
                        await event.wait_until(trio.current_time() + when)
                    await trio.lowlevel.checkpoint()
                except KeyboardInterrupt:
                    interrupted = True
                assert interrupted == bool(reached)
                start = trio.current_time()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(setting, event)
                    await trio.sleep(HOUR)
                assert trio.current_time() == start + HOUR, reached
                if not reached:
                    break
                step += 1
            assert step >= 5, "the trace has not seen it"

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
            pump, desc = current_host(), conn._desc
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
                    "close": lambda: pump.poller.close(desc),
                    "open": lambda: opened.append(pump.poller.open(fresh.fileno())),
                }
                with interrupted_at(step, reached):
                    act[operation]()
                if reached:
                    with pytest.raises(KeyboardInterrupt):
                        await trio.sleep_forever()
                assert_sound(pump.poller, desc, peer._desc, *opened)
                expected = {"first": start + 10, "earlier": start + 5, "later": start + 15, "past": start - 1}
                assert desc.read.deadline == expected.get(operation, start + 10 if operation == "open" else math.inf)
                assert (desc.read.check() == CLOSED) == (operation == "close")
                for new in opened:
                    pump.close(new)
            nursery.cancel_scope.cancel()
        return bool(reached)
