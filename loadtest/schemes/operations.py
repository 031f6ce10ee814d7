"""The cost of each of the paper's four operations at a number of timers.

Facts      START and STOP may defer work: a wheel gives new timers their slots at the next check, and stopped timers are
           swept when they are a quarter of all.
Hazard     Timed alone, both seem cheaper than they are.
Answer     START is measured as half of the timers and the check that files them, STOP as half of the timers and the
           check that sweeps. Check is a tick at which nothing is due. Extract goes from wake time to wake time, as a
           poller does.
Cost       Ten timers are too few for a clock, so several queues hold a thousand timers together.

All operations go through `Timers`, as in programs. Each is a generator: what precedes its first `yield` is preparation,
and every other `yield` says how many steps were done since.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from .baseline import INF
from .queues import Subject

# seconds; the time at which every measurement begins. Not 0, because a wheel must not rely on a clock's origin
BEGIN: Final = 1000.0

# seconds; timeouts are within the range of the simple wheel and after the ticks of the idle checks
SHORTEST: Final = 1.0
LONGEST: Final = 3.5

# the idle checks
TICKS: Final = 256
TICK: Final = 1 / 1024

# the least number of timers in all queues together
CROWD: Final = 1000

# checks between two looks at the clock, while extracting
LOOK: Final = 16

# of a queue, a number of timers, and random values: the steps of each turn
Measured = Callable[[Subject, int, random.Random], Iterator[int]]

# a queue and a timer of it
_Member = tuple[Any, Any]


def nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the timers' callback."""


def start(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Start half of the timers."""
    queues, members = _crowd(subject, n, chance)
    half = len(members) // 2
    _start(queues, members[:half], chance)
    starts = [(queue.modify, timer, BEGIN + chance.uniform(SHORTEST, LONGEST)) for queue, timer in members[half:]]
    yield 0
    for modify, timer, when in starts:
        modify(timer, when)
    for queue in queues:
        queue.check(BEGIN)
    yield len(starts)


def stop(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Stop half of the timers."""
    queues, members = _crowd(subject, n, chance)
    _start(queues, members, chance)
    stops = [(queue.stop, timer) for queue, timer in members[: len(members) // 2]]
    yield 0
    for cancel, timer in stops:
        cancel(timer)
    for queue in queues:
        queue.check(BEGIN)
    yield len(stops)


def check(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Check each queue at ticks at which nothing is due."""
    queues, members = _crowd(subject, n, chance)
    _start(queues, members, chance)
    ticks = [BEGIN + place * TICK for place in range(1, TICKS + 1)]
    yield 0
    for queue in queues:
        look = queue.check
        for now in ticks:
            look(now)
    yield TICKS * len(queues)


def extract(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Fire all timers, by a check at each wake time."""
    queues, members = _crowd(subject, n, chance)
    _start(queues, members, chance)
    yield 0
    for queue in queues:
        look, now, left = queue.check, queue.wake_time(), n
        while left:
            for _ in range(LOOK):
                now = look(now)
                if now == INF:
                    break
            before, left = left, len(queue)
            yield before - left


OPERATIONS: Final[Mapping[str, Measured]] = {"START": start, "STOP": stop, "check": check, "extract": extract}


def _crowd(subject: Subject, n: int, chance: random.Random) -> tuple[list[Any], list[_Member]]:
    """Make queues, and n timers for each, in no order."""
    queues = [subject.queue() for _ in range(max(1, CROWD // n))]
    members = [(queue, subject.timer(nothing)) for queue in queues for _ in range(n)]
    chance.shuffle(members)
    return queues, members


def _start(queues: Sequence[Any], members: Sequence[_Member], chance: random.Random) -> None:
    for queue, timer in members:
        queue.modify(timer, BEGIN + chance.uniform(SHORTEST, LONGEST))
    for queue in queues:
        queue.check(BEGIN)
