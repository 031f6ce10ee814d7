"""The cost of each of the paper's four operations at a number of timers.

Facts      START and STOP may defer work: a wheel gives new timers their slots at the next check, and stopped timers are
           swept when they are a quarter of all.
Hazard     Timed alone, both seem cheaper than they are.
Answer     START is measured as half of the timers and the check that files them, STOP as half of the timers and the
           check that sweeps. Check is a tick at which nothing is due. Extract goes from wake time to wake time, as a
           poller does.
Cost       Ten timers are too few for a clock, so several queues hold a thousand timers together.

All operations go through `Timers`, as in programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final

from .subjects import CHECK, EXTRACT, START, STOP, Queue, Subject

INF = float("inf")

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

# while extracting, checks between two looks at the clock
LOOK: Final = 16

# of a queue, a number of timers, random values, and a budget of seconds for what can be cut short: seconds of a step
Measure = Callable[[Subject, int, random.Random, float], float]

# a queue and a timer of it
_Member = tuple[Any, Any]


def nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the timers' callback."""


def start(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Start half of the timers."""
    queues, members = _crowd(subject, n, chance)
    half = len(members) // 2
    _started(queues, members[:half], chance)
    starts = [(queue.modify, timer, BEGIN + chance.uniform(SHORTEST, LONGEST)) for queue, timer in members[half:]]
    began = perf_counter()
    for modify, timer, when in starts:
        modify(timer, when)
    for queue in queues:
        queue.check(BEGIN)
    return (perf_counter() - began) / len(starts)


def stop(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Stop half of the timers."""
    queues, members = _crowd(subject, n, chance)
    _started(queues, members, chance)
    stops = [(queue.stop, timer) for queue, timer in members[: len(members) // 2]]
    began = perf_counter()
    for cancel, timer in stops:
        cancel(timer)
    for queue in queues:
        queue.check(BEGIN)
    return (perf_counter() - began) / len(stops)


def check(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Check each queue at ticks at which nothing is due."""
    queues, members = _crowd(subject, n, chance)
    _started(queues, members, chance)
    ticks = [BEGIN + place * TICK for place in range(1, TICKS + 1)]
    began = perf_counter()
    for queue in queues:
        look = queue.check
        for now in ticks:
            look(now)
    return (perf_counter() - began) / (TICKS * len(queues))


def extract(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Fire all timers, or those that fire within the budget."""
    queues, members = _crowd(subject, n, chance)
    _started(queues, members, chance)
    began = perf_counter()
    for queue in queues:
        _drain(queue, began + budget)
    spent = perf_counter() - began
    fired = [timer for _, timer in members if timer.when == INF]
    return spent / len(fired)


OPERATIONS: Final[Mapping[str, Measure]] = {START: start, STOP: stop, CHECK: check, EXTRACT: extract}


def _crowd(subject: Subject, n: int, chance: random.Random) -> tuple[list[Queue], list[_Member]]:
    """Make queues, and n timers for each, in no order."""
    queues = [subject.queue() for _ in range(max(1, CROWD // n))]
    members = [(queue, subject.timer(nothing)) for queue in queues for _ in range(n)]
    chance.shuffle(members)
    return queues, members


def _started(queues: Sequence[Queue], members: Sequence[_Member], chance: random.Random) -> None:
    for queue, timer in members:
        queue.modify(timer, BEGIN + chance.uniform(SHORTEST, LONGEST))
    for queue in queues:
        queue.check(BEGIN)


def _drain(queue: Queue, limit: float) -> None:
    """Check at each wake time until no timer is left or the limit is reached."""
    look = queue.check
    now = queue.wake_time()
    while now < INF:
        for _ in range(LOOK):
            now = look(now)
            if now == INF:
                return
        if perf_counter() > limit:
            return
