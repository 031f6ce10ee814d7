"""The lateness of deadlined's `after_func` (VARIANT "func", or "precise" with precise wakes), of its `TimerThread`
("thread"), and of trio's `sleep_until` ("sleep")."""

from __future__ import annotations

import os
import threading
import time

import trio

import deadlined
from deadlined.threads import TimerThread

from .lateness_report import armed, due_times, main, require_lead


async def functions(count: int, spread: float) -> list[float]:
    """Return the lateness of each function called, in seconds."""
    clock, done = trio.current_time, trio.Event()
    # as close to `when` as a caller can get
    lateness = armed(
        count, spread, clock, lambda when, fire: deadlined.after_func(when - clock(), fire, when), done.set
    )
    await done.wait()
    return lateness


async def sleeps(count: int, spread: float) -> list[float]:
    """Return the lateness of each task that sleeps, in seconds."""
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


def thread(count: int, spread: float) -> list[float]:
    """Return the lateness of each call of one thread's timers, in seconds."""
    clock, done = time.monotonic, threading.Event()
    with TimerThread() as timers:
        lateness = armed(
            count, spread, clock, lambda when, fire: timers.after_func(when - clock(), fire, when), done.set
        )
        done.wait()
    return lateness


def measured(variant: str, count: int, spread: float) -> list[float]:
    """Measure one of them."""
    if variant == "thread":
        return thread(count, spread)
    os.environ["DEADLINED_PRECISE"] = "1" if variant == "precise" else "0"
    return trio.run(sleeps if variant == "sleep" else functions, count, spread)


if __name__ == "__main__":
    main(measured)
