"""What a measured process needs: pyperf's runner, memory, and the final line of output.

Facts      pyperf warms up, repeats and times. Alone it starts processes of its own, one benchmark after another.
Hazard     Contestants that are measured one after another meet different states of a shared machine.
Answer     The runner of all benchmarks starts the processes, in turns, and pyperf is its own worker in each of them.

Imports nothing else that a contestant does not need; psutil is imported by pyperf.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import psutil  # type: ignore[import-untyped,unused-ignore]
import pyperf  # type: ignore[import-untyped,unused-ignore]

# operations between two turns of an event loop, in which it removes what was cancelled
SLICE = 500

HOUR = 3600.0

# seconds until the first deadline of an Expiry comes, in which all must have been made and moved; and until the last
_LEAD = 1.0
_WINDOW = 0.05


class Timings:
    """The figures of this process, in nanoseconds: medians of `values` runs of `loops` operations.

    A warm-up comes first, unless an operation is run once only.
    """

    def __init__(self, loops: int, values: int) -> None:
        self.loops = loops
        self.figures: dict[str, float] = {}
        self._pyperf = pyperf.Runner()
        sizes = {"loops": loops, "values": values, "warmups": 1 if loops > 1 else 0}
        self._pyperf.parse_args(["--worker", *(f"--{name}={size}" for name, size in sizes.items())])

    def function(
        self, name: str, seconds: Callable[[int], float], operations: int = 1, values: int | None = None
    ) -> None:
        """Time a function that returns the seconds of that many runs of `operations` operations each.

        `values`: the number of runs, if it is another from here on.
        """
        if values is not None:
            self._pyperf.args.values = values
        found = self._pyperf.bench_time_func(name, seconds, inner_loops=operations)
        self.figures[name] = found.median() * 1e9

    def time_statements(self, loop: str, way: str, timed: Callable[[str], Callable[[int], float]]) -> None:
        """Time the statements of a way; `timed` returns the function that gives the seconds of so many runs of one."""
        for name, statement in statements(loop, way).items():
            if statement in self.figures:
                self.figures[name] = self.figures[statement]
            else:
                self.function(name, timed(statement))

    def past_expiry(self, seconds: Callable[[int], float], number: int) -> NoReturn:
        """Measure `number` deadlines that are moved past their old times, once; print the figure, and exit."""
        self.function("moved and filed anew", lambda _: seconds(number), number)
        finish(self.figures)


class Expiry:
    """The CPU time of deadlines that are moved later, and of what a timer queue does when their old times have come.

    `old`: their times, on `clock`. They are set before `moving`, moved before `wait`, and filed anew before `seconds`.
    """

    def __init__(self, clock: Callable[[], float], number: int) -> None:
        self._clock = clock
        self._spent = 0.0
        self.old = [clock() + offset for offset in spread_times(number, _LEAD, _LEAD + _WINDOW)]

    def moving(self) -> None:
        self._spent = time.process_time()

    def wait(self) -> None:
        """Sleep until all old times have come. RuntimeError if one has come already."""
        if self._clock() >= min(self.old):
            raise RuntimeError(f"moving {len(self.old)} deadlines took too long: the first had come already")
        time.sleep(max(self.old) - self._clock() + 0.01)

    def seconds(self) -> float:
        """Return the seconds of this process since `moving`."""
        return time.process_time() - self._spent


def statements(kind: str, way: str) -> dict[str, str]:
    """Return the statements of a way, as reset.toml has them."""
    found = tomllib.loads(Path(__file__).with_name("reset.toml").read_text(encoding="utf-8"))
    return dict(found[kind][way])


def nothing(*_: object) -> None:
    """Do nothing: the callback of timers."""


def spread_times(number: int, least: float, most: float) -> list[float]:
    """Return random seconds between `least` and `most`; the same in every process."""
    draw = random.Random(number).uniform
    return [draw(least, most) for _ in range(number)]


def resident() -> int:
    """Collect garbage and return the resident bytes of this process."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def finish(figures: Mapping[str, float]) -> NoReturn:
    """Print the figures and exit at once, without freeing a million timers one by one."""
    print(json.dumps(dict(figures)))
    sys.stdout.flush()
    os._exit(0)
