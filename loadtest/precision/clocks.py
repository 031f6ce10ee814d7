"""The clocks: the cost of a reading, and the smallest observed step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import trio


@dataclass(frozen=True)
class Clock:
    """A clock: nanoseconds per reading, including the call from Python; its smallest step and promised resolution.

    `step` and `promised` are in seconds. `promised` is None if no resolution is promised.
    """

    name: str
    implementation: str
    cost: float
    step: float
    promised: float | None


async def measure(readings: int, rounds: int) -> list[Clock]:
    """Measure all clocks. Runs in trio, because one of them is trio's own."""
    monotonic, performance = time.get_clock_info("monotonic"), time.get_clock_info("perf_counter")
    found = [
        ("time.monotonic", monotonic.implementation, time.monotonic, monotonic.resolution),
        ("time.perf_counter", performance.implementation, time.perf_counter, performance.resolution),
        ("trio.current_time", "perf_counter and an offset", trio.current_time, None),
    ]
    found += [
        (f"clock_gettime, {name}", "clock_gettime", _reader(number), time.clock_getres(number))
        for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME")
        if (number := _clock(name)) is not None
    ]
    return [
        Clock(name, implementation, cost(clock, readings, rounds), step(clock, readings), promised)
        for name, implementation, clock, promised in found
    ]


def _clock(name: str) -> int | None:
    """Return the number of a POSIX clock, or None if the system lacks it. The coarse one has no name in Python."""
    number = 6 if name == "CLOCK_MONOTONIC_COARSE" else getattr(time, name, None)
    if number is None:
        return None
    try:
        time.clock_gettime(number)
    except OSError:
        return None
    return int(number)


def _reader(number: int) -> Callable[[], float]:
    return lambda: time.clock_gettime(number)


def cost(clock: Callable[[], float], readings: int, rounds: int) -> float:
    """Return nanoseconds per reading without the loop around it: the median of several rounds."""

    def loop(times: range) -> int:
        began = time.perf_counter_ns()
        for _ in times:
            clock()
        return time.perf_counter_ns() - began

    def empty(times: range) -> int:
        began = time.perf_counter_ns()
        for _ in times:
            pass
        return time.perf_counter_ns() - began

    return statistics.median((loop(range(readings)) - empty(range(readings))) / readings for _ in range(rounds))


# seconds after which a clock that stands still is abandoned
PATIENCE = 0.2


def step(clock: Callable[[], float], readings: int) -> float:
    """Return the smallest nonzero difference of two readings, in seconds; inf for a clock that stands still.

    It is at least the time of a reading. A coarse clock is read more often, until it has stepped.
    """
    least = math.inf
    last = clock()
    end = time.monotonic() + PATIENCE
    done = 0
    while done < readings or (least == math.inf and time.monotonic() < end):
        done += 2
        # the second follows at once; a coarse clock may also step between two turns of the loop
        first = clock()
        second = clock()
        least = min(least, first - last or math.inf, second - first or math.inf)
        last = second
    return least
