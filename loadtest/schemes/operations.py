"""The four operations of the paper, each at a number of timers: what one of them costs.

Facts      START and STOP may leave work behind: a wheel gives its arrivals their slots at the next check, and stopped
           timers are swept away once they are a quarter of all.
Hazard     Timed alone, both look as if that work did not exist.
Answer     START is half of the timers and the check that files them; STOP is half of the timers and the check that
           sweeps. Check is a tick at which nothing is due. Extract goes from wake time to wake time, as a poller does.
Cost       Ten timers are too few for a clock: there are as many queues as make a thousand timers.

All go through `Timers`, as programs do; `bare` is the scheme alone, without lazy extension, callbacks and zombies.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deadlined.timers import SCHEMES, Scheme, Timer

from .subjects import CHECK, EXTRACT, START, STOP, Subject

INF = float("inf")

# seconds: when every measurement begins. Not 0: a clock's origin is nothing that a wheel may rely on.
BEGIN: Final = 1000.0

# seconds: timeouts lie within the range of the simple wheel, and after the ticks of the idle checks
SHORTEST: Final = 1.0
LONGEST: Final = 3.5

# of nothing due
TICKS: Final = 256
TICK: Final = 1 / 1024

# timers in all queues together, at least
CROWD: Final = 1000

# between two looks at the clock
LOOK: Final = 16

BARE_START: Final = "START, scheme alone"
BARE_EXTRACT: Final = "extract, scheme alone"
NAMES: Final = (START, STOP, CHECK, EXTRACT)
BARE_NAMES: Final = (BARE_START, BARE_EXTRACT)


def nothing(arg: object, seq: int, lateness: float) -> None:
    """What the timers call."""


def operations(subject: Subject, n: int, chance: random.Random, budget: float) -> dict[str, float]:
    """Nanoseconds of each operation. Extracting ends after `budget` seconds, whether all were extracted or not."""
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

    rest = [timer for _, timer in crowd[half:]]
    began = clock()
    limit = began + int(budget * 1e9)
    for queue in queues:
        _drain(queue, limit)
    spent = clock() - began
    found[EXTRACT] = spent / sum(timer.when == INF for timer in rest)
    return found


def _drain(queue: Any, limit: int) -> None:
    """From wake time to wake time until nothing is left, or the time is over."""
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
    """Nanoseconds of START and extract of a scheme alone, and of the check that completes each."""
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
    """Filed by its scheme alone, a timer has its rank from us."""
    timer = Timer(nothing)
    timer.order = number
    # a scheme takes what is not wanted at any time for a zombie
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


def all_operations(subject: Subject, n: int, chance: random.Random, budget: float) -> Mapping[str, float]:
    """Through `Timers`, and of the scheme alone where there is one."""
    found = operations(subject, n, chance, budget)
    if subject.scheme:
        found.update(bare(subject.scheme, n, chance, budget))
    return found
