"""The cost of moving a deadline, beside the equivalents of trio, asyncio, uvloop and Go.

Facts      A server moves a deadline with every read and every write; hardly any of them passes.
Hazard     A figure without reading the clock, or on an empty heap, is too good.
Answer     Every operation reads its clock. Each is measured with the same number of timers armed in its own heap. An
           operation that arms a new timer and cancels it (a scope entered and left, `call_later`) has one figure, shown
           under "later" and under "set and cleared".
Cost       No machine has descriptors for a million connections: beyond a few hundred the armed timers are bare ones in
           the same heap. The metric "connections" says how many were real.

Deadlines moved earlier are measured twice, because implementations defer the work: "moved earlier" moves all of them in
turn and puts the heap in order once; "moved, due at once" moves one so that it is due, waits until it has fired, and
continues with the next (Go then scans its whole heap each time). "growth" is the cost with the larger number of timers
divided by the cost with the smaller, measured one right after the other.

The fair rivals do as little as ours: a deadline that is stored in an object, whose `call_at` looks at it when it comes
and is armed anew, and `socket.settimeout`, which stores a timeout and reads no clock.

"Past expiry" is the worst case of a deadline that is stored: each is moved later once only, and the old time of each
comes, so that a timer queue must file it anew. The figure is the CPU time of both, because the runtime of Go does the
second whenever it likes.

"Held" is the cheapest call: the method is looked up once and given a float.

"The least" is a bound, not a deadline: the same loop around a method that only reads the clock, or, interpreted, around
one that does nothing after its caller has read the clock.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from . import golang, processes
from .builds import INSTALLED, PURE, contestants, environment
from .contest import Benchmark, Contestant, Metric, Target

BOUND = ", clock bound"
INSIDE = ", set_read_timeout"
HELD = ", set_read_timeout held"
LEAST = ", the least"
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
    """A contestant's module, and its modes in the three kinds of cases; None where it has no figure of its own."""

    module: str
    live: str
    moved: str | None = None
    expiry: str | None = None


_PROGRAMS: dict[str, Program] = {
    **{build: Program("reset_deadlined", "live", "moved", "expiry") for build in (INSTALLED, PURE)},
    **{build + BOUND: Program("reset_deadlined", "bound") for build in (INSTALLED, PURE)},
    **{build + INSIDE: Program("reset_deadlined", "inside") for build in (INSTALLED, PURE)},
    **{build + HELD: Program("reset_deadlined", "held") for build in (INSTALLED, PURE)},
    **{build + LEAST: Program("reset_deadlined", "least", "least_moved") for build in (INSTALLED, PURE)},
    SCOPE: Program("reset_trio", "scope"),
    MOVED_SCOPE: Program("reset_trio", "moved_scope", "moved", "expiry"),
    TIMEOUT: Program("reset_asyncio", "asyncio timeout"),
    RESCHEDULE: Program("reset_asyncio", "asyncio reschedule"),
    CALL_LATER: Program("reset_asyncio", "asyncio call_later", "asyncio moved", "asyncio call_later_expiry"),
    UVLOOP: Program("reset_asyncio", "uvloop call_later", "uvloop moved", "uvloop call_later_expiry"),
    LAZY: Program("reset_asyncio", "asyncio lazy", None, "asyncio lazy_expiry"),
    UVLOOP_LAZY: Program("reset_asyncio", "uvloop lazy", None, "uvloop lazy_expiry"),
    SETTIMEOUT: Program("reset_asyncio", "asyncio settimeout", None, "asyncio settimeout_expiry"),
}


_METRICS: Mapping[str, Metric] = {
    "later": Metric("ns", "less"),
    "earlier": Metric("ns", "less"),
    "set and cleared": Metric("ns", "less"),
    "moved earlier": Metric("ns", "less"),
    "moved, due at once": Metric("ns", "less"),
    "moved earlier: growth": Metric("", None),
    "moved, due at once: growth": Metric("", None),
    "moved and filed anew": Metric("ns of CPU", "less"),
    "connections": Metric("", None),
}


def _live(number: int) -> str:
    return f"{number:,} live"


def _moved(number: int) -> str:
    return f"{number:,} moved earlier"


def _expiry(number: int) -> str:
    return f"{number:,} past expiry"


def _targets() -> Sequence[Target]:
    found = []
    for live in (1, 10_000, 1_000_000):
        # each build by its cheapest ordinary call; held calls have no target
        for build, share in ((INSTALLED + INSIDE, 0.5), (PURE + BOUND, 0.8)):
            found.append(Target(_live(live), "later", build, GO, at_most=share))
            # 40 times cheaper
            found += [Target(_live(live), "later", build, peer, at_most=1 / 40) for peer in (SCOPE, TIMEOUT)]
    case = _moved(160_000)
    for build in (INSTALLED, PURE):
        for metric in ("moved earlier", "moved, due at once"):
            found.append(Target(case, metric, build, GO, at_most=1.0))
            found.append(Target(case, f"{metric}: growth", build, "", at_most=1.5))
    return found


@dataclass(frozen=True)
class Reset(Benchmark):
    """The benchmark `reset`. `sample`: the number of deadlines that are moved so that they are due at once."""

    name = "reset"
    title = "Moving a deadline"
    metrics = _METRICS
    targets = _targets()

    lives: tuple[int, ...] = (1, 10_000, 1_000_000)
    moved: tuple[int, int] = (10_000, 160_000)
    # many short rounds: an interruption of some does not change the median
    operations: int = 5_000
    rounds: int = 15
    sample: int = 1_000
    refiled: int = 10_000

    def contestants(self) -> Sequence[Contestant]:
        ours = contestants()
        absent = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
        return (
            *ours,
            *(Contestant(build.name + way, build.missing) for way in (BOUND, INSIDE, HELD, LEAST) for build in ours),
            golang.contestant(GO),
            *(Contestant(name) for name in (SCOPE, MOVED_SCOPE, TIMEOUT, RESCHEDULE, CALL_LATER, LAZY, SETTIMEOUT)),
            *(Contestant(name, absent) for name in (UVLOOP, UVLOOP_LAZY)),
        )

    def cases(self) -> Sequence[str]:
        return [*map(_live, self.lives), *map(_moved, self.moved), _expiry(self.refiled)]

    def skips(self, contestant: str, case: str) -> str | None:
        known = contestant == GO or self._mode(contestant, case)
        return None if known else "no figure of its own here"

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        for live in self.lives:
            if case == _live(live):
                return self._run(contestant, case, live, self.operations)
        if case == _expiry(self.refiled):
            return self._run(contestant, case, self.refiled, 1)
        small, large = (_moved(number) for number in self.moved)
        found = self._run(contestant, case, self.moved[case == large], self.sample)
        if case == small:
            return found
        # measure the smaller number again beside the larger one, in the same state of the machine
        base = self._run(contestant, small, self.moved[0], self.sample)
        return {**found, **{f"{metric}: growth": value / base[metric] for metric, value in found.items()}}

    def quick(self) -> Self:
        return type(self)(lives=(100,), moved=(50, 200), operations=500, rounds=1, sample=20, refiled=200)

    def _mode(self, contestant: str, case: str) -> str | None:
        program = _PROGRAMS[contestant]
        if case == _expiry(self.refiled):
            return program.expiry
        return program.moved if case in map(_moved, self.moved) else program.live

    def _run(self, contestant: str, case: str, number: int, operations: int) -> Mapping[str, float]:
        live = case in map(_live, self.lives)
        sizes = [str(size) for size in (number, operations, self.rounds if live else 1)]
        if contestant == GO:
            kind = "live" if live else "expiry" if case == _expiry(self.refiled) else "moved"
            return processes.run([golang.program("resets"), kind, *sizes])
        mode = self._mode(contestant, case)
        assert mode is not None
        return processes.run(
            processes.python(_PROGRAMS[contestant].module, *mode.split(), *sizes), environment(contestant)
        )


BENCHMARK = Reset()
