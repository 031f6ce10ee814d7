"""This project's timers in the benchmark `heap`.

python -m loadtest.bench.heap_deadlined many NUMBER
python -m loadtest.bench.heap_deadlined beside IDLE MOVED FEW
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from deadlined.timers import Timer, Timers

from . import heap_phases
from .heap_phases import NOW


def _nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the timers' callback."""


class Facility:
    """`deadlined.timers.Timers` as a `heap_phases.Queue`, by its public methods."""

    def __init__(self) -> None:
        self._timers = Timers()

    def start(self, times: Sequence[float]) -> list[Timer]:
        modify = self._timers.modify
        found = []
        for when in times:
            timer = Timer(_nothing)
            modify(timer, NOW + when)
            found.append(timer)
        return found

    def move(self, timers: list[Timer], times: Sequence[float]) -> None:
        modify = self._timers.modify
        for timer, when in zip(timers, times, strict=True):
            modify(timer, when)

    def stop(self, timers: list[Timer]) -> None:
        stop = self._timers.stop
        for timer in timers:
            stop(timer)

    def fire(self, now: float) -> None:
        self._timers.check(now)

    def count(self) -> int:
        return self._timers.statistics().fired


if __name__ == "__main__":
    heap_phases.run(Facility(), sys.argv[1], *map(int, sys.argv[2:]))
