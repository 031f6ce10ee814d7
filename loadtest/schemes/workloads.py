"""Three workloads of timers: the cost of one step, everything included.

Times are simulated: a step takes no time but moves the clock of the queue. A turn is up to 64 steps and one check, like
a poll that returns up to 64 events. The loop costs every queue the same, some tens of nanoseconds per step.

Each is a generator as those of `operations` are, and goes on until its consumer has enough.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, Final

from .operations import BEGIN, Measured, nothing
from .queues import Subject

# the least number of steps, however few timers there are
LEAST_STEPS: Final = 2000

# the most steps between two checks
TURN: Final = 64

HEADER: Final = 10.0  # seconds; a timeout that few connections reach
LIFE: Final = 2.0  # seconds; the mean life of a connection: 0.7 % of them reach the timeout
ALIVE: Final = 5.0  # seconds without an operation until a connection is idle; each has one operation per second


def connection_deadlines(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Replace connections that each have a timeout. A step: one ends, its timeout is cancelled, another begins."""
    queue, timers = _many(subject, n)
    stop, modify, check, make = queue.stop, queue.modify, queue.check, subject.timer
    for timer in timers:
        modify(timer, BEGIN + HEADER - chance.uniform(0.0, LIFE))
    check(BEGIN)
    turn = _turn(n)
    ending = cycle(chance.choices(range(n), k=max(LEAST_STEPS, n)))
    now = BEGIN
    yield 0
    while True:
        for _ in range(turn):
            place = next(ending)
            stop(timers[place])
            timer = timers[place] = make(nothing)
            modify(timer, now + HEADER)
        now += turn * LIFE / n
        check(now)
        yield turn


def keep_alive(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Use connections that each have an idle timeout. A step: an operation on one moves its timeout."""
    queue, timers = _many(subject, n)
    modify, check = queue.modify, queue.check
    for place, timer in enumerate(timers):
        # moved before the clock runs, so that the keys of the entries are spread over the time until then
        when = BEGIN + ALIVE - 1.0 + place / n
        modify(timer, chance.uniform(BEGIN + 0.01, when))
        modify(timer, when)
    check(BEGIN)
    turn = _turn(n)
    now = BEGIN
    yield 0
    for start in cycle(range(0, n, turn)):
        moved = timers[start : start + turn]
        for timer in moved:
            modify(timer, now + ALIVE)
        now += len(moved) / n
        check(now)
        yield len(moved)


def mass_expiry(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Expire n timeouts of one second in one check, as after a network outage. A step: one of them."""
    rounds = [_many(subject, n) for _ in range(max(1, LEAST_STEPS // n))]
    for queue, timers in rounds:
        for timer in timers:
            queue.modify(timer, BEGIN + chance.uniform(1.0, 2.0))
        queue.check(BEGIN)
    yield 0
    for queue, _ in rounds:
        queue.check(BEGIN + 2.5)
        yield n - len(queue)


WORKLOADS: Final[Mapping[str, Measured]] = {
    "connection deadlines": connection_deadlines,
    "keep-alive": keep_alive,
    "mass expiry": mass_expiry,
}


def _many(subject: Subject, n: int) -> tuple[Any, list[Any]]:
    """Make a queue that has been checked once, and n timers for it."""
    queue = subject.queue()
    queue.check(BEGIN)
    return queue, [subject.timer(nothing) for _ in range(n)]


def _turn(n: int) -> int:
    return max(1, min(TURN, n // 10))
