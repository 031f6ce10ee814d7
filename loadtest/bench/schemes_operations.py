"""What is measured of a queue of timers: each of the paper's four operations, and three workloads.

A step of a workload includes everything. Its times are simulated: it takes no time but moves the clock of the queue. A
turn is up to 64 steps and one check, like a poll that returns up to 64 events. The loop costs every queue the same,
some tens of nanoseconds per step. Workloads go on until their consumer has enough.

All go through `Timers`, as in programs. Each is a generator: what precedes its first `yield` is preparation, and every
other `yield` says how many steps were done since.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from deadlined.timers import SCHEMES, Timer, Timers

from .lazy_heapq import INF, Alarm, Callback, LazyHeapq

# seconds; the time at which every measurement begins. Not 0, because a wheel must not rely on a clock's origin
BEGIN = 1000.0
# seconds; timeouts are within the range of the simple wheel and after the ticks of the idle checks
SHORTEST = 1.0
LONGEST = 3.5
# the idle checks
TICKS = 256
TICK = 1 / 1024
# the least number of timers in all queues together
CROWD = 1000
# checks between two looks at the clock, while extracting
LOOK = 16
# the least number of steps, however few timers there are
LEAST_STEPS = 2000
# the most steps between two checks
TURN = 64

HEADER = 10.0  # seconds; a timeout that few connections reach
LIFE = 2.0  # seconds; the mean life of a connection: 0.7 % of them reach the timeout
ALIVE = 5.0  # seconds without an operation until a connection is idle; each has one operation per second


class Subject(NamedTuple):
    """A measured queue: how one is made, and how a timer for it."""

    queue: Callable[[], Timers | LazyHeapq]
    timer: Callable[[Callback], Any]


SUBJECTS: Mapping[str, Subject] = {
    **{scheme: Subject(partial(Timers, scheme), Timer) for scheme in SCHEMES},
    "heapq, lazy": Subject(LazyHeapq, Alarm),
}

# of a queue, a number of timers, and random values: the steps of each turn
Measured = Callable[[Subject, int, random.Random], Iterator[int]]

# a queue and a timer of it
_Member = tuple[Any, Any]


def nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the timers' callback."""


def start(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Start half of the timers."""
    queues, members = _crowd(subject, n, chance, part=0.5)
    others = members[len(members) // 2 :]
    starts = [(queue.modify, timer, BEGIN + chance.uniform(SHORTEST, LONGEST)) for queue, timer in others]
    yield 0
    for modify, timer, when in starts:
        modify(timer, when)
    for queue in queues:
        queue.check(BEGIN)
    yield len(starts)


def stop(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Stop half of the timers."""
    queues, members = _crowd(subject, n, chance)
    stops = [(queue.stop, timer) for queue, timer in members[: len(members) // 2]]
    yield 0
    for cancel, timer in stops:
        cancel(timer)
    for queue in queues:
        queue.check(BEGIN)
    yield len(stops)


def check(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Check each queue at ticks at which nothing is due."""
    queues, _ = _crowd(subject, n, chance)
    ticks = [BEGIN + place * TICK for place in range(1, TICKS + 1)]
    yield 0
    for queue in queues:
        look = queue.check
        for now in ticks:
            look(now)
    yield TICKS * len(queues)


def extract(subject: Subject, n: int, chance: random.Random) -> Iterator[int]:
    """Fire all timers, by a check at each wake time."""
    queues, _ = _crowd(subject, n, chance)
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


OPERATIONS: Mapping[str, Measured] = {"START": start, "STOP": stop, "check": check, "extract": extract}


def _crowd(subject: Subject, n: int, chance: random.Random, part: float = 1.0) -> tuple[list[Any], list[_Member]]:
    """Make queues, and n timers for each, in no order, of which the first part is started."""
    queues = [subject.queue() for _ in range(max(1, CROWD // n))]
    members = [(queue, subject.timer(nothing)) for queue in queues for _ in range(n)]
    chance.shuffle(members)
    for queue, timer in members[: int(len(members) * part)]:
        queue.modify(timer, BEGIN + chance.uniform(SHORTEST, LONGEST))
    for queue in queues:
        queue.check(BEGIN)
    return queues, members


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


WORKLOADS: Mapping[str, Measured] = {
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
