"""The cost of each of the paper's four operations at a number of timers.

Facts      START and STOP may defer work: a wheel gives new timers their slots at the next check, and stopped timers are
           swept when they are a quarter of all.
Hazard     Timed alone, both seem cheaper than they are.
Answer     START is measured as half of the timers and the check that files them, STOP as half of the timers and the
           check that sweeps. Check is a tick at which nothing is due. Extract goes from wake time to wake time, as a
           poller does.
Cost       Ten timers are too few for a clock, so several queues hold a thousand timers together.

All operations go through `Timers`, as in programs; `bare` is the scheme alone, without lazy extension, callbacks and
zombies.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final

from deadlined.timers import SCHEMES, Scheme, Timer

from .subjects import CHECK, EXTRACT, START, STOP, Subject

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

# checks between two readings of the clock
LOOK: Final = 16

BARE_START: Final = "START, scheme alone"
BARE_EXTRACT: Final = "extract, scheme alone"
NAMES: Final = (START, STOP, CHECK, EXTRACT)
BARE_NAMES: Final = (BARE_START, BARE_EXTRACT)


def nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the timers' callback."""


def operations(subject: Subject, n: int, chance: random.Random, budget: float) -> dict[str, float]:
    """Return the nanoseconds of each operation. Extracting ends after `budget` seconds at the latest."""
    clock = time.perf_counter_ns
    queues = [subject.queue() for _ in range(max(1, CROWD // n))]
    checks = [queue.check for queue in queues]
    crowd = [(queue, subject.timer(nothing)) for queue in queues for _ in range(n)]
    chance.shuffle(crowd)
    found = {}
    half = len(crowd) // 2
    starts = [(queue.modify, timer, BEGIN + chance.uniform(SHORTEST, LONGEST)) for queue, timer in crowd]
    first, second = starts[:half], starts[half:]
    for start, timer, when in first:
        start(timer, when)
    for check in checks:
        check(BEGIN)

    began = clock()
    for start, timer, when in second:
        start(timer, when)
    for check in checks:
        check(BEGIN)
    found[START] = (clock() - began) / len(second)

    ticks = [BEGIN + place * TICK for place in range(1, TICKS + 1)]
    began = clock()
    for check in checks:
        for now in ticks:
            check(now)
    found[CHECK] = (clock() - began) / (TICKS * len(checks))

    chance.shuffle(crowd)
    stopped = [(queue.stop, timer) for queue, timer in crowd[:half]]
    began = clock()
    for stop, timer in stopped:
        stop(timer)
    for check in checks:
        check(ticks[-1])
    found[STOP] = (clock() - began) / len(stopped)

    remaining = [timer for _, timer in crowd[half:]]
    began = clock()
    limit = began + int(budget * 1e9)
    for queue in queues:
        _drain(queue, limit)
    spent = clock() - began
    found[EXTRACT] = spent / sum(timer.when == INF for timer in remaining)
    return found


def _drain(queue: Any, limit: int) -> None:
    """Check at each wake time until no timer is left or the limit is reached."""
    check = queue.check
    now = queue.wake_time()
    while now < INF:
        for _ in range(LOOK):
            now = check(now)
            if now == INF:
                return
        if time.perf_counter_ns() > limit:
            return


def bare(scheme: str, n: int, chance: random.Random, budget: float) -> dict[str, float]:
    """Return the nanoseconds of START and extract of a scheme alone, including the check that completes each."""
    clock = time.perf_counter_ns
    queues = [SCHEMES[scheme]() for _ in range(max(1, CROWD // n))]
    crowd = [
        (queue.file, _ordered(number), BEGIN + chance.uniform(SHORTEST, LONGEST))
        for queue in queues
        for number in range(n)
    ]
    chance.shuffle(crowd)
    half = len(crowd) // 2
    first, second = crowd[:half], crowd[half:]
    _file(first)
    for queue in queues:
        queue.due(BEGIN)
    began = clock()
    _file(second)
    for queue in queues:
        queue.due(BEGIN)
    started = (clock() - began) / len(second)

    began = clock()
    limit = began + int(budget * 1e9)
    extracted = sum(_drain_scheme(queue, limit) for queue in queues)
    return {BARE_START: started, BARE_EXTRACT: (clock() - began) / extracted}


def _ordered(number: int) -> Timer:
    """Make a timer for a scheme alone, with its order, which `Timers` would set."""
    timer = Timer(nothing)
    timer.order = number
    # for a scheme a timer without a time is a zombie
    timer.when = 0.0
    return timer


def _file(crowd: Sequence[tuple[Any, Timer, float]]) -> None:
    for file, timer, key in crowd:
        file(timer, key)


def _drain_scheme(queue: Scheme, limit: int) -> int:
    """How many were taken out."""
    due, remove_first = queue.due, queue.remove_first
    taken = 0
    now = queue.wake_time()
    while now < INF:
        while due(now) is not None:
            remove_first()
            taken += 1
            if taken % LOOK == 0 and time.perf_counter_ns() > limit:
                return taken
        now = queue.wake_time()
    return taken
