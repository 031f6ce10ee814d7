"""How a task yields, parks and is woken."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import AsyncGenerator, Generator

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from deadlined import Conn
from deadlined.poll import CLOSED, EXPIRED, OK, Half
from deadlined.runtime.on_trio.parking import TaskParker, TrioParking, TrioTurn, yield_shielded
from deadlined.runtime.on_trio.waking import WOKEN
from tests.support.poll import conn_pair
from tests.support.runtime import HOUR, park


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
        things = [thing for thing in gc.get_objects() if isinstance(thing, (Half, TrioParking))]
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
    """A checkpoint before an act, in one step."""

    async def test_it_is_a_checkpoint_and_returns_the_state_of_the_half(self) -> None:
        async with conn_pair() as (conn, _):
            half = conn._desc.read
            turn = TrioTurn(half)
            for _ in range(2):
                with assert_checkpoints():
                    assert await turn == OK
            half.set_deadline(trio.current_time() - 1)
            assert await turn == EXPIRED
            half.close()
            assert await turn == CLOSED

    async def test_a_task_that_is_cancelled_already_does_not_go_on(self) -> None:
        async with conn_pair() as (conn, _):
            turn = TrioTurn(conn._desc.read)
            with trio.CancelScope() as scope:
                scope.cancel()
                await turn
                pytest.fail("went on")
            assert scope.cancelled_caught
            with assert_checkpoints():
                assert await turn == OK

    async def test_a_task_that_is_cancelled_meanwhile_does_not_go_on(self) -> None:
        seen: list[str] = []

        async def take(turn: TrioTurn) -> None:
            for number in range(3):
                await turn
                seen.append(f"turn {number}")

        async with conn_pair() as (conn, _), trio.open_nursery() as nursery:
            nursery.start_soon(take, TrioTurn(conn._desc.read))
            # begun, whichever task trio lets run first
            while not seen:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert seen in (["turn 0"], ["turn 0", "turn 1"])

    def test_a_cancellation_that_came_between_two_turns_and_has_gone_is_not_raised(self) -> None:
        went_on: list[int] = []

        async def main() -> None:
            async with conn_pair() as (conn, _):
                turn = TrioTurn(conn._desc.read)
                with trio.CancelScope() as scope:
                    await turn
                    scope.cancel()
                went_on.append(await turn)

        trio.run(main)
        assert went_on == [OK]

    async def test_a_shielded_one_is_not_cancelled(self) -> None:
        async with conn_pair() as (conn, _):
            turn = TrioTurn(conn._desc.read)
            with trio.CancelScope() as scope:
                scope.cancel()
                with trio.CancelScope(shield=True):
                    assert await turn == OK
                await turn
            assert scope.cancelled_caught

    def test_ctrl_c_that_comes_meanwhile_is_raised(self) -> None:
        async def main() -> None:
            async with conn_pair() as (conn, _):
                turn = TrioTurn(conn._desc.read)
                await turn
                trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)
                for _ in range(100):
                    await turn
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
    """Where a task sleeps until somebody wakes it."""

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
            nursery.start_soon(park, parker)
            await wait_all_tasks_blocked()
            parker.wake()

    async def test_a_woken_task_is_not_cancelled_any_more(self) -> None:
        parker = TaskParker(pytest.fail)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(park, parker)
                await wait_all_tasks_blocked()
                parker.wake()
                scope.cancel()
