"""Inside a measured process: timing loops, memory, and the one line that is printed at the end.

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

# operations between two turns of an event loop, which tidies up what was cancelled there
SLICE = 500

_STATM = Path("/proc/self/statm")

# a loop that performs an operation so many times
Loop = Callable[[int], None]


def nanoseconds(loop: Loop, operations: int) -> float:
    """Per operation."""
    began = time.perf_counter_ns()
    loop(operations)
    return (time.perf_counter_ns() - began) / operations


def median(loop: Loop, operations: int, rounds: int) -> float:
    """Nanoseconds per operation: the median of several rounds, after one that warms up."""
    loop(operations // 10 + 1)
    return statistics.median(nanoseconds(loop, operations) for _ in range(rounds))


async def sliced_median(loop: Loop, operations: int, rounds: int, turn: Callable[[], Awaitable[object]]) -> float:
    """The same, with a `turn` of the event loop after every slice, which counts: it is part of the price."""
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
    """The same with a new loop for every round, for what a round leaves in another state; no warming up."""
    return statistics.median(nanoseconds(make(), operations) for _ in range(rounds))


def spread_times(number: int, least: float, most: float) -> list[float]:
    """Seconds, at random but the same in every process."""
    draw = random.Random(number).uniform
    return [draw(least, most) for _ in range(number)]


def resident() -> int | None:
    """Bytes of memory that this process holds now; None where /proc does not tell."""
    gc.collect()
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def finish(figures: Mapping[str, float]) -> NoReturn:
    """Print the figures and end at once: a million timers need not be freed one by one."""
    print(json.dumps(dict(figures)))
    sys.stdout.flush()
    os._exit(0)
