"""The clocks: the cost of a reading, and the smallest observed step.

python -m loadtest.bench.clocks NAME READINGS   is the measured process
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import trio

from ..report import machine
from . import processes
from .contest import Benchmark, Contestant, Metric
from .measured import Timings, finish
from .results import Results

CASE: Final = "a reading"
# seconds after which a clock that stands still is abandoned
PATIENCE: Final = 0.2
# of which the median is reported
ROUNDS: Final = 5


class Clocks(Benchmark):
    """The benchmark `clocks`: nanoseconds per reading, with the call from Python; steps as seen and as promised."""

    name = "clocks"
    title = "The clocks"
    metrics: Mapping[str, Metric] = {
        "cost": Metric("ns", "less"),
        "step": Metric("ns", "less"),
        "promised": Metric("ns", None),
    }

    def __init__(self, readings: int = 200_000) -> None:
        self._readings = readings

    @property
    def file(self) -> str:
        return "precision-clocks"

    def contestants(self) -> Sequence[Contestant]:
        return [Contestant(name, None if found else "not on this system") for name, found in _CLOCKS.items()]

    def cases(self) -> Sequence[str]:
        return (CASE,)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        return processes.run(processes.python("clocks", contestant, self._readings))

    def remarks(self, results: Results, contestant: str, case: str) -> Mapping[str, str]:
        return {"by": _IMPLEMENTATIONS.get(contestant, "")}

    def more(self, results: Results) -> Mapping[str, object]:
        return {"system": machine()["system"]}

    def quick(self) -> Self:
        return type(self)(1_000)


def _posix(name: str) -> tuple[Callable[[], float], float] | None:
    """Return a POSIX clock and its resolution; None if the system lacks it. The coarse one has no name in Python."""
    number = 6 if name == "CLOCK_MONOTONIC_COARSE" else getattr(time, name, None)
    try:
        return None if number is None else (lambda: time.clock_gettime(number), time.clock_getres(number))
    except OSError:
        return None


# the promised resolution in seconds is None where none is promised
_CLOCKS: Final[Mapping[str, tuple[Callable[[], float], float | None] | None]] = {
    "time.monotonic": (time.monotonic, time.get_clock_info("monotonic").resolution),
    "time.perf_counter": (time.perf_counter, time.get_clock_info("perf_counter").resolution),
    "trio.current_time": (trio.current_time, None),
    **{f"clock_gettime, {name}": _posix(name)
       for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME")},
}  # fmt: skip


_IMPLEMENTATIONS: Final = {
    "time.monotonic": time.get_clock_info("monotonic").implementation,
    "time.perf_counter": time.get_clock_info("perf_counter").implementation,
    "trio.current_time": "perf_counter and an offset",
}


async def read(name: str, readings: int) -> None:
    """Measure a clock, print the figures and exit. In trio, because one of the clocks is trio's own."""
    clock, promised = _CLOCKS[name] or (time.monotonic, None)
    timings = Timings(readings, ROUNDS)
    timings.statement("loop", "pass", {})
    timings.statement("reading", "clock()", {"clock": clock})
    found = {"cost": timings.figures["reading"] - timings.figures["loop"], "step": step(clock, readings) * 1e9}
    finish(found if promised is None else {**found, "promised": promised * 1e9})


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


BENCHMARK = Clocks()

if __name__ == "__main__":
    trio.run(read, sys.argv[1], int(sys.argv[2]))
