"""The programs of the benchmark `lateness` in Python: timers that are due at random times, and how late each comes.

    python -m loadtest.peers.lateness WAY COUNT SPREAD

func, precise: `deadlined.after_func`, without and with precise wakes. thread: that of its `TimerThread`. sleep: trio's
`sleep_until`. asyncio, uvloop: `call_at` of that loop.

The last line of output is one JSON object: quantiles and the largest in milliseconds, and the per cent that were
"early". What is measured is imported by its own function: no other is in the memory of its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence

from .hosts import runner_of

# seconds from the start to the first timer that is due, in all and per timer: by then even half a core has made all
# timers (trio takes 50 us for a task)
LEAD = 0.1
LEAD_EACH = 150e-6

# the warm-up round, which loads code and fills caches
WARM_COUNT = 100
WARM_SPREAD = 0.1

# called with a time, and with what is to be called with that time when it has come
Arm = Callable[[float, Callable[[float], None]], object]


def due_times(count: int, spread: float, now: float) -> list[float]:
    """Return `count` times, uniform over `spread` seconds, in no order; with the same distances in every process."""
    chance = random.Random(count)
    first = now + LEAD + count * LEAD_EACH
    return [first + chance.uniform(0.0, spread) for _ in range(count)]


def require_lead(due: Sequence[float], now: float) -> None:
    """Raise RuntimeError if a timer was due before all were made, because its lateness would include the making."""
    if now >= min(due):
        raise RuntimeError(f"making {len(due)} timers took too long: the first was due already")


def armed(count: int, spread: float, clock: Callable[[], float], arm: Arm, done: Callable[[], object]) -> list[float]:
    """Arm timers; return the list that gets the seconds by which each is late, and call `done` with the last of them.

    `arm(when, fire)` must have `fire(when)` called at that time.
    """
    lateness: list[float] = []

    def fire(due: float) -> None:
        lateness.append(clock() - due)
        if len(lateness) == count:
            done()

    due = due_times(count, spread, clock())
    for when in due:
        arm(when, fire)
    require_lead(due, clock())
    return lateness


def figures(lateness: Sequence[float]) -> dict[str, float]:
    """Summarize seconds of lateness; negative ones are of timers that were early, and count as a microsecond."""
    # what is measured is over, and does not have it in memory
    from ..histogram import histogram, milliseconds, record

    found = histogram()
    for late in lateness:
        record(found, late)
    early = 100 * sum(late < 0.0 for late in lateness) / len(lateness)
    return {**{name: value or 0.0 for name, value in milliseconds(found).items()}, "early": early}


async def functions(count: int, spread: float) -> list[float]:
    """Return the lateness of each function that deadlined calls in trio, in seconds."""
    import trio

    import deadlined

    clock, done = trio.current_time, trio.Event()
    # as close to `when` as a caller can get
    lateness = armed(
        count, spread, clock, lambda when, fire: deadlined.after_func(when - clock(), fire, when), done.set
    )
    await done.wait()
    return lateness


def thread(count: int, spread: float) -> list[float]:
    """Return the lateness of each call of one thread's timers, in seconds."""
    from deadlined.threads import TimerThread

    clock, done = time.monotonic, threading.Event()
    with TimerThread() as timers:
        lateness = armed(
            count, spread, clock, lambda when, fire: timers.after_func(when - clock(), fire, when), done.set
        )
        done.wait()
    return lateness


async def sleeps(count: int, spread: float) -> list[float]:
    """Return the lateness of each task of trio that sleeps, in seconds."""
    import trio

    clock = trio.current_time
    lateness: list[float] = []

    async def sleep(when: float) -> None:
        await trio.sleep_until(when)
        lateness.append(clock() - when)

    async with trio.open_nursery() as nursery:
        due = due_times(count, spread, clock())
        for when in due:
            nursery.start_soon(sleep, when)
        await trio.lowlevel.checkpoint()
        require_lead(due, clock())
    return lateness


async def calls(count: int, spread: float) -> list[float]:
    """Return the lateness of each call of asyncio, in seconds.

    By `time.monotonic`, the clock of both loops: uvloop's `loop.time()` counts in milliseconds and is read once per
    turn of the loop.
    """
    call_at, done = asyncio.get_running_loop().call_at, asyncio.Event()
    lateness = armed(count, spread, time.monotonic, lambda when, fire: call_at(when, fire, when), done.set)
    await done.wait()
    return lateness


def measured(way: str, count: int, spread: float) -> list[float]:
    if way == "thread":
        return thread(count, spread)
    if way in ("asyncio", "uvloop"):
        with runner_of(way) as runner:
            return runner.run(calls(count, spread))
    import trio

    os.environ["DEADLINED_PRECISE"] = "1" if way == "precise" else "0"
    return trio.run(sleeps if way == "sleep" else functions, count, spread)


def main(measured: Callable[[str, int, float], list[float]]) -> None:
    """Follow the command line above: warm up, measure, and print the figures."""
    way, count, spread = sys.argv[1:]
    measured(way, WARM_COUNT, WARM_SPREAD)
    print(json.dumps(figures(measured(way, int(count), float(spread)))))


if __name__ == "__main__":
    main(measured)
