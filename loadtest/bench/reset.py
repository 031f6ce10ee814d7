"""The cost of moving a deadline, beside the equivalents of trio, asyncio, uvloop and Go.

Facts      A server moves a deadline with every read and every write; hardly any of them passes.
Hazard     A figure without reading the clock, or on an empty heap, is too good.
Answer     Every operation reads its clock. Each is measured with the same number of timers armed in its own heap. An
           operation that arms a new timer and cancels it (a scope entered and left, `call_later`) has one figure, shown
           under "later" and under "set and cleared".
Cost       No machine has descriptors for a million connections: beyond a few hundred the armed timers are bare ones in
           the same heap. The metric "connections" says how many were real.

The fair rivals do as little as ours: a deadline that is stored in an object, whose `call_at` looks at it when it comes
and is armed anew, and `socket.settimeout`, which stores a timeout and reads no clock.

"Past expiry" is the worst case of a deadline that is stored: each is moved later once only, and the old time of each
comes, so that a timer queue must file it anew. The figure is the CPU time of both, because the runtime of Go does the
second whenever it likes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from . import golang, processes
from .builds import INSTALLED, PURE, contestants, environment
from .contest import Benchmark, Contestant, Metric, Target

INSIDE = ", set_read_timeout"
GO = "Go SetReadDeadline"
SCOPE = "trio.move_on_after, entered and left"
MOVED_SCOPE = "trio, one scope moved"
TIMEOUT = "asyncio.timeout, entered and left"
RESCHEDULE = "asyncio.timeout, rescheduled"
CALL_LATER = "asyncio call_later, cancelled"
UVLOOP = "uvloop call_later, cancelled"
LAZY = "asyncio, stored, call_at armed anew when it comes"
UVLOOP_LAZY = "uvloop, stored, call_at armed anew when it comes"
SETTIMEOUT = "socket.settimeout"


class Program(NamedTuple):
    """A contestant's module, the way in which it moves a deadline, and whether it has a figure past expiry."""

    module: str
    way: str
    expires: bool = False


_PROGRAMS: dict[str, Program] = {
    **{build: Program("reset_deadlined", "deadline", expires=True) for build in (INSTALLED, PURE)},
    **{build + INSIDE: Program("reset_deadlined", "timeout") for build in (INSTALLED, PURE)},
    SCOPE: Program("reset_trio", "scope"),
    MOVED_SCOPE: Program("reset_trio", "moved_scope", expires=True),
    TIMEOUT: Program("reset_asyncio", "asyncio timeout"),
    RESCHEDULE: Program("reset_asyncio", "asyncio reschedule"),
    CALL_LATER: Program("reset_asyncio", "asyncio call_later", expires=True),
    UVLOOP: Program("reset_asyncio", "uvloop call_later", expires=True),
    LAZY: Program("reset_asyncio", "asyncio lazy", expires=True),
    UVLOOP_LAZY: Program("reset_asyncio", "uvloop lazy", expires=True),
    SETTIMEOUT: Program("reset_asyncio", "asyncio settimeout", expires=True),
}


_METRICS: Mapping[str, Metric] = {
    "later": Metric("ns", "less"),
    "earlier": Metric("ns", "less"),
    "set and cleared": Metric("ns", "less"),
    "moved and filed anew": Metric("ns of CPU", "less"),
    "connections": Metric("", None),
}


def _live(number: int) -> str:
    return f"{number:,} live"


def _expiry(number: int) -> str:
    return f"{number:,} past expiry"


def _targets() -> Sequence[Target]:
    found = []
    for live in (1, 10_000, 1_000_000):
        for build, share in ((INSTALLED, 0.5), (PURE, 0.8)):
            found.append(Target(_live(live), "later", build + INSIDE, GO, at_most=share))
            # 40 times cheaper
            found += [Target(_live(live), "later", build + INSIDE, peer, at_most=1 / 40) for peer in (SCOPE, TIMEOUT)]
    return found


@dataclass(frozen=True)
class Reset(Benchmark):
    """The benchmark `reset`: deadlines beside `lives` others, and `refiled` ones past expiry."""

    name = "reset"
    title = "Moving a deadline"
    metrics = _METRICS
    targets = _targets()

    lives: tuple[int, ...] = (1, 10_000, 1_000_000)
    refiled: int = 10_000
    # many short rounds: an interruption of some does not change the median
    operations: int = 5_000
    rounds: int = 15

    def contestants(self) -> Sequence[Contestant]:
        ours = contestants()
        absent = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
        return (
            *ours,
            *(Contestant(build.name + INSIDE, build.missing) for build in ours),
            golang.contestant(GO),
            *(Contestant(name) for name in (SCOPE, MOVED_SCOPE, TIMEOUT, RESCHEDULE, CALL_LATER, LAZY, SETTIMEOUT)),
            *(Contestant(name, absent) for name in (UVLOOP, UVLOOP_LAZY)),
        )

    def cases(self) -> Sequence[str]:
        return [*map(_live, self.lives), _expiry(self.refiled)]

    def skips(self, contestant: str, case: str) -> str | None:
        measured = contestant == GO or case != _expiry(self.refiled) or _PROGRAMS[contestant].expires
        return None if measured else "no figure of its own here"

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        for live in self.lives:
            if case == _live(live):
                return _run(contestant, "live", live, self.operations, self.rounds)
        return _run(contestant, "expiry", self.refiled, 1, 1)

    def quick(self) -> Self:
        return type(self)(lives=(100,), refiled=200, operations=500, rounds=1)


def _run(contestant: str, kind: str, *sizes: int) -> Mapping[str, float]:
    if contestant == GO:
        return processes.run([golang.program("resets"), kind, *map(str, sizes)])
    program = _PROGRAMS[contestant]
    command = processes.python(program.module, *program.way.split(), kind, *sizes)
    return processes.run(command, environment(contestant))


BENCHMARK = Reset()
