"""What a measured process needs: pyperf's runner, turns of an event loop, memory, and the final line of output.

Facts      pyperf warms up, repeats and times. Alone it starts processes of its own, one benchmark after another.
Hazard     Contestants that are measured one after another meet different states of a shared machine.
Answer     The runner of all benchmarks starts the processes, in turns, and pyperf is its own worker in each of them.

Imports nothing else that a contestant does not need.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from timeit import Timer
from typing import Any, NoReturn

import pyperf  # type: ignore[import-untyped,unused-ignore]

# operations between two turns of an event loop, in which it removes what was cancelled
SLICE = 500

HOUR = 3600.0
# seconds from now: a bit ahead, because a time that has passed needs no timer
SOON = 2e-6

# seconds until the first deadline of an Expiry comes, in which all must have been made and moved; and until the last
_LEAD = 1.0
_WINDOW = 0.05

_STATM = Path("/proc/self/statm")

# a function that performs an operation the given number of times
Loop = Callable[[int], object]


class Timings:
    """The figures of this process, in nanoseconds: medians of `values` runs of `loops` operations, after a warm-up."""

    def __init__(self, loops: int, values: int, warmups: int = 1) -> None:
        self._pyperf = pyperf.Runner()
        sizes = {"loops": loops, "values": values, "warmups": warmups}
        self._pyperf.parse_args(["--worker", *(f"--{name}={size}" for name, size in sizes.items())])
        self.figures: dict[str, float] = {}

    def statement(self, name: str, statement: str, names: dict[str, Any], setup: str = "pass") -> None:
        """Time a statement, which sees `names`; `setup` is executed before each run."""
        self.function(name, Timer(statement, setup, globals=names).timeit)

    def function(self, name: str, seconds: Callable[[int], float], operations: int = 1) -> None:
        """Time a function that returns the seconds of that many runs of `operations` operations each."""
        found = self._pyperf.bench_time_func(name, seconds, inner_loops=operations)
        self.figures[name] = found.median() * 1e9


def repeated(action: Callable[..., float], *arguments: Any) -> Callable[[int], float]:
    """Return a function for `Timings.function` that adds up the seconds which `action` returns."""
    return lambda loops: sum(action(*arguments) for _ in range(loops))


async def sliced(loop: Loop, operations: int, turn: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of the operations, with a `turn` of the event loop after every SLICE of them."""
    began = time.perf_counter()
    for done in range(0, operations, SLICE):
        loop(min(SLICE, operations - done))
        await turn()
    return time.perf_counter() - began


class Expiry:
    """The CPU time of deadlines that are moved later, and of what a timer queue does when their old times have come.

    `old`: their times, on `clock`. They are set before `moving`, moved before `wait`, and filed anew before `seconds`.
    """

    def __init__(self, clock: Callable[[], float], number: int) -> None:
        self._clock = clock
        self._spent = 0.0
        self.old = [clock() + offset for offset in spread_times(number, _LEAD, _LEAD + _WINDOW)]

    def moving(self) -> None:
        """Begin to count."""
        self._spent = time.process_time()

    def wait(self) -> None:
        """Sleep until all old times have come. RuntimeError if one has come already."""
        if self._clock() >= min(self.old):
            raise RuntimeError(f"moving {len(self.old)} deadlines took too long: the first had come already")
        time.sleep(max(self.old) - self._clock() + 0.01)

    def seconds(self) -> float:
        """Return the seconds of this process since `moving`."""
        return time.process_time() - self._spent


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
