"""Timing loops, memory and the final line of output, for use inside a measured process.

Imports nothing that a contestant does not need.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn

# operations between two turns of an event loop, in which it removes what was cancelled
SLICE = 500

_STATM = Path("/proc/self/statm")

# a function that performs an operation the given number of times
Loop = Callable[[int], None]


def nanoseconds(loop: Loop, operations: int) -> float:
    """Run the loop once, and return nanoseconds per operation."""
    began = time.perf_counter_ns()
    loop(operations)
    return (time.perf_counter_ns() - began) / operations


def median(loop: Loop, operations: int, rounds: int) -> float:
    """Return nanoseconds per operation: the median of `rounds`, after a warm-up."""
    loop(operations // 10 + 1)
    return statistics.median(nanoseconds(loop, operations) for _ in range(rounds))


async def sliced_median(loop: Loop, operations: int, rounds: int, turn: Callable[[], Awaitable[object]]) -> float:
    """Do the same with a `turn` of the event loop after every SLICE operations, which is included in the figure."""
    found = []
    slices = max(1, operations // SLICE)
    size = min(operations, SLICE)
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _slice in range(slices):
            loop(size)
            await turn()
        found.append((time.perf_counter_ns() - began) / (slices * size))
    return statistics.median(found)


def fresh_median(make: Callable[[], Loop], operations: int, rounds: int) -> float:
    """Do the same with a new loop for each round, because a round changes its state; there is no warm-up."""
    return statistics.median(nanoseconds(make(), operations) for _ in range(rounds))


def spread_times(number: int, least: float, most: float) -> list[float]:
    """Return random seconds between `least` and `most`; the same in every process."""
    draw = random.Random(number).uniform
    return [draw(least, most) for _ in range(number)]


def resident() -> int | None:
    """Collect garbage and return the resident bytes of this process; None without /proc."""
    gc.collect()
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def finish(figures: Mapping[str, float]) -> NoReturn:
    """Print the figures and exit at once, without freeing a million timers one by one."""
    print(json.dumps(dict(figures)))
    sys.stdout.flush()
    os._exit(0)
