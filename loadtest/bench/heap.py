"""A million timers in one heap: the cost to start, move, stop and fire one, and its memory.

Facts      Timers are started and stopped all the time, and few fire (Varghese and Lauck, SOSP 1987). asyncio uses
           `heapq`: a stopped timer stays in the heap until it is reached, or until half of the heap is stopped.
           Its handles compare in Python; the same heap of tuples, which compare in C, is a contestant of its own.
Hazard     One sum of all phases hides a slow one. An empty callback favours implementations that call it directly.
Answer     The phases are measured apart, one after another on the same timers. Times are random and the same for all
           contestants. "start and fire" can be measured in Go, too: from the first start until all have fired.
Cost       Go runs every AfterFunc in a goroutine of its own, which is part of its figure.

Memory is the growth of the process, including the timer object and the reference that its owner keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from . import golang, processes
from .builds import INSTALLED, PURE, contestants, environment
from .contest import Benchmark, Contestant, Metric, Target

TUPLES = "heapq of tuples, lazy cancel"
ASYNCIO = "asyncio call_at, lazy cancel"
GO = "Go AfterFunc"

_QUEUES = {INSTALLED: "deadlined", PURE: "deadlined", TUPLES: "tuples", ASYNCIO: "asyncio"}

_METRICS: Mapping[str, Metric] = {
    "start": Metric("ns", "less"),
    "move later": Metric("ns", "less"),
    "move earlier": Metric("ns", "less"),
    "stop": Metric("ns", "less"),
    "fire": Metric("ns", "less"),
    "start and fire": Metric("ns", "less"),
    "memory": Metric("bytes", "less"),
}


def _many(number: int) -> str:
    return f"{number:,} timers"


@dataclass(frozen=True)
class Heap(Benchmark):
    """The benchmark `heap`, of `many` timers."""

    name = "heap"
    title = "Timers in one heap, per timer"
    metrics = _METRICS
    targets = (Target(_many(1_000_000), "start and fire", INSTALLED, GO, at_most=0.7),)

    many: int = 1_000_000

    def contestants(self) -> Sequence[Contestant]:
        return (*contestants(), Contestant(TUPLES), Contestant(ASYNCIO), golang.contestant(GO))

    def cases(self) -> Sequence[str]:
        return (_many(self.many),)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if contestant == GO:
            return processes.run([golang.program("heap"), str(self.many)])
        return processes.run(processes.python("heap_child", _QUEUES[contestant], self.many), environment(contestant))

    def quick(self) -> Self:
        return type(self)(many=2_000)


BENCHMARK = Heap()
