"""No deadline fires before its time, on a clock that is read outside of the event loop, which is kept busy."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import pytest
import trio

from deadlined import DeadlineExceeded, Timer, after_func, sleep, sleep_until
from deadlined.runtime import LOOPS, checkpoint, open_group, run
from tests.support.conformance import SURELY
from tests.support.net import unix_pair

each_loop = pytest.mark.parametrize("loop", LOOPS)

# deadlines of one test, and the longest of them in seconds
MANY = 300
LONGEST = 0.3

Clock = Callable[[], float]


def clock_of(loop: str) -> Clock:
    """Return a clock that no event loop caches."""
    return trio.current_time if loop == "trio" else time.monotonic


async def _keep_busy(until: list[bool]) -> None:
    """Occupy the loop in steps of different lengths, so that a cached clock is often old."""
    chance = random.Random(2)
    while not until:
        _spin(chance.choice([0.0, 0.0, 0.0003, 0.0007, 0.002]))
        await checkpoint()


def _spin(seconds: float) -> None:
    """Let time pass in the middle of a step, so that what the loop has cached is old."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def _read(clock: Clock, due: float, seconds: float) -> float:
    async with unix_pair() as (conn, _):
        conn.set_read_deadline(due)
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
        return clock()


async def _sleep(clock: Clock, due: float, seconds: float) -> float:
    await sleep(seconds)
    return clock()


async def _timer(clock: Clock, due: float, seconds: float) -> float:
    await Timer(seconds).wait()
    return clock()


async def _function(clock: Clock, due: float, seconds: float) -> float:
    called: list[float] = []
    after_func(seconds, lambda: called.append(clock()))
    while not called:
        await sleep_until(due + 0.001)
    return called[0]


@each_loop
@pytest.mark.parametrize("precise", ["0", pytest.param("1", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("measure", [_read, _sleep, _timer, _function])
def test_no_deadline_fires_early_in_a_busy_loop(
    loop: str,
    measure: Callable[[Clock, float, float], Awaitable[float]],
    precise: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEADLINED_PRECISE", precise)
    clock = clock_of(loop)
    chance = random.Random(3)
    ends: list[tuple[float, float]] = []

    async def measure_one(seconds: float) -> None:
        _spin(0.0002)
        due = clock() + seconds
        ends.append((due, await measure(clock, due, seconds)))

    async def main() -> None:
        over: list[bool] = []
        async with open_group() as group:
            group.start_soon(_keep_busy, over)
            async with open_group() as measures:
                for _ in range(MANY):
                    measures.start_soon(measure_one, chance.uniform(0.0, LONGEST))
            over.append(True)

    run(loop, main)
    assert len(ends) == MANY
    assert not [due - end for due, end in ends if end < due]
    assert max(end - due for due, end in ends) < SURELY
