"""No deadline fires before its time, on a clock that is read outside of the event loop, which is kept busy."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import pytest
import trio

from deadlined import Conn, DeadlineExceeded, Timer, after_func, current_time, sleep_until
from deadlined.runtime import LOOPS, checkpoint, open_group, run
from tests.support.conformance import SURELY
from tests.support.net import unix_pair

each_loop = pytest.mark.parametrize("loop", LOOPS)

# deadlines of one test, and the longest of them in seconds
MANY = 300
LONGEST = 0.3

Measure = Callable[[float], Awaitable[float]]


def clock_of(loop: str) -> Callable[[], float]:
    """Return a clock that no event loop caches."""
    return trio.current_time if loop == "trio" else time.monotonic


async def _keep_busy(until: list[bool]) -> None:
    """Occupy the loop in steps of different lengths, so that a cached clock is often old."""
    chance = random.Random(2)
    while not until:
        end = time.monotonic() + chance.choice([0.0, 0.0, 0.0003, 0.0007, 0.002])
        while time.monotonic() < end:
            pass
        await checkpoint()


async def _measure(measure: Measure, ends: list[tuple[float, float]], seconds: float) -> None:
    due = current_time() + seconds
    ends.append((due, await measure(due)))


@each_loop
@pytest.mark.parametrize("precise", ["0", "1"])
@pytest.mark.parametrize("what", ["read", "sleep", "timer", "function"])
def test_no_deadline_fires_early_in_a_busy_loop(
    loop: str, what: str, precise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLINED_PRECISE", precise)
    clock = clock_of(loop)

    async def read(due: float) -> float:
        async with unix_pair() as (conn, _):
            return await _fails(conn, due)

    async def _fails(conn: Conn, due: float) -> float:
        conn.set_read_deadline(due)
        try:
            await conn.receive_some()
        except DeadlineExceeded:
            return clock()
        raise AssertionError("it received nothing")

    async def sleeps(due: float) -> float:
        await sleep_until(due)
        return clock()

    async def timer(due: float) -> float:
        await Timer(due - current_time()).wait()
        return clock()

    async def function(due: float) -> float:
        called: list[float] = []
        after_func(due - current_time(), lambda: called.append(clock()))
        while not called:
            await sleep_until(due + 0.001)
        return called[0]

    measure = {"read": read, "sleep": sleeps, "timer": timer, "function": function}[what]
    chance = random.Random(3)
    ends: list[tuple[float, float]] = []

    async def main() -> None:
        over: list[bool] = []
        async with open_group() as group:
            group.start_soon(_keep_busy, over)
            async with open_group() as measures:
                for _ in range(MANY):
                    measures.start_soon(_measure, measure, ends, chance.uniform(0.0, LONGEST))
            over.append(True)

    run(loop, main)
    assert len(ends) == MANY
    # `due - current_time()` is rounded when it is added to the clock again
    early = [due - end for due, end in ends if end < due - 1e-6 * (what in ("timer", "function"))]
    assert not early
    assert max(end - due for due, end in ends) < SURELY
