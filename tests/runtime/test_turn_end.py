"""Calls at the end of a turn of trio's loop: after its tasks, before the loop waits, and without making it wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.runtime.on_trio.turn_end import TurnEnd
from tests.support.net import HOUR


@asynccontextmanager
async def open_turn_end() -> AsyncIterator[TurnEnd]:
    turn_end = TurnEnd()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn_end.run)
        await wait_all_tasks_blocked()
        assert turn_end.is_open
        yield turn_end
        nursery.cancel_scope.cancel()
    assert not turn_end.is_open


async def test_a_call_comes_after_all_tasks_of_the_turn_and_before_those_of_the_next(
    autojump_clock: MockClock,
) -> None:
    seen: list[str] = []

    async def task(name: str) -> None:
        seen.append(f"{name} 1")
        await checkpoint()
        seen.append(f"{name} 2")

    async with open_turn_end() as turn_end, trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(task, name)
        await checkpoint()
        # tasks that are started run in the next turn, as does this one
        turn_end.call(lambda: seen.append("end"))
        await checkpoint()
    place = seen.index("end")
    assert sorted(seen[:place]) == ["a 1", "b 1", "c 1"]
    assert sorted(seen[place + 1 :]) == ["a 2", "b 2", "c 2"]


async def test_what_a_call_schedules_does_not_wait_for_the_clock(autojump_clock: MockClock) -> None:
    """By then trio has decided how long to wait."""
    woken = trio.Event()
    async with open_turn_end() as turn_end:
        start = trio.current_time()
        with trio.move_on_after(HOUR):
            turn_end.call(woken.set)
            await woken.wait()
        assert trio.current_time() == start


async def test_a_deadline_that_a_call_sets_is_kept(autojump_clock: MockClock) -> None:
    async with open_turn_end() as turn_end:
        start = trio.current_time()
        with trio.move_on_after(HOUR) as scope:
            turn_end.call(lambda: setattr(scope, "deadline", start + 1))
            await trio.sleep_forever()
        assert trio.current_time() == start + 1


async def test_a_call_out_of_a_call_is_made_at_the_end_of_the_next_turn(autojump_clock: MockClock) -> None:
    seen: list[str] = []
    async with open_turn_end() as turn_end:

        def first() -> None:
            seen.append("first")
            turn_end.call(lambda: seen.append("second"))

        turn_end.call(first)
        await checkpoint()
        assert seen == ["first"]
        await checkpoint()
        assert seen == ["first", "second"]


async def test_each_call_is_made_once_and_then_the_loop_rests(autojump_clock: MockClock) -> None:
    seen: list[str] = []
    turns = 0

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            nonlocal turns
            turns += 1

    async with open_turn_end() as turn_end:
        for name in "ab":
            turn_end.call(lambda name=name: seen.append(name))  # type: ignore[misc]
        await wait_all_tasks_blocked()
        counter = Turns()
        trio.lowlevel.add_instrument(counter)
        await trio.sleep(HOUR)
        trio.lowlevel.remove_instrument(counter)
    assert seen == ["a", "b"]
    assert turns < 10


async def test_a_call_that_fails_ends_the_task_with_its_error(autojump_clock: MockClock) -> None:
    turn_end = TurnEnd()

    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn_end.run)
            await wait_all_tasks_blocked()
            turn_end.call(fail)
            await trio.sleep_forever()
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)
    assert not turn_end.is_open


@pytest.mark.parametrize("asleep", [True, False])
async def test_what_is_due_at_the_end_is_called_nevertheless(asleep: bool, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    calls: list[Callable[[], None]] = [lambda: seen.append("called")]
    turn_end = TurnEnd()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn_end.run)
        await wait_all_tasks_blocked()
        if not asleep:
            turn_end.call(lambda: turn_end.call(calls[0]))
            await checkpoint()
        else:
            turn_end.call(calls[0])
        nursery.cancel_scope.cancel()
    assert seen == ["called"]
