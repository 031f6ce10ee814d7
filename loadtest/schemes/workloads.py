"""Five workloads of timers: the cost of one step, everything included.

Times are simulated: a step takes no time but moves the clock of the queue. A turn is up to 64 steps and one check, like
a poll that returns up to 64 events. The loop costs every queue the same, some tens of nanoseconds per step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from time import perf_counter
from typing import Any, Final

from .operations import BEGIN, Measure, nothing
from .subjects import Subject

# the least number of steps, however few timers there are
LEAST_STEPS: Final = 2000

# the most steps between two checks
TURN: Final = 64

# random values drawn before the clock runs; then they repeat
DRAWS: Final = 65_536

# seconds; the shortest sleep of a poller that counts in milliseconds
NAP: Final = 0.001

HEADER: Final = 10.0  # seconds; a timeout that few connections reach
LIFE: Final = 2.0  # seconds; the mean life of a connection: 0.7 % of them reach the timeout
ALIVE: Final = 5.0  # seconds without an operation until a connection is idle; each has one operation per second


def connection_deadlines(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Replace connections that each have a timeout. A step: one ends, its timeout is cancelled, another begins."""
    queue, timers = _many(subject, n, nothing)
    stop, modify, check, make = queue.stop, queue.modify, queue.check, subject.timer
    for timer in timers:
        modify(timer, BEGIN + HEADER - chance.uniform(0.0, LIFE))
    check(BEGIN)
    steps, turn = max(LEAST_STEPS, n), _turn(n)
    ending = chance.choices(range(n), k=steps)
    now = BEGIN
    watch = _Watch(budget)
    done = 0
    while done < steps and watch.running():
        for place in ending[done : done + turn]:
            stop(timers[place])
            timer = timers[place] = make(nothing)
            modify(timer, now + HEADER)
        done += turn
        now += turn * LIFE / n
        check(now)
    return watch.per_step(done)


def keep_alive(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Use connections that each have an idle timeout. A step: an operation on one moves its timeout."""
    queue, timers = _many(subject, n, nothing)
    modify, check = queue.modify, queue.check
    for place, timer in enumerate(timers):
        # moved before the clock runs, so that the keys of the entries are spread over the time until then
        when = BEGIN + ALIVE - 1.0 + place / n
        modify(timer, chance.uniform(BEGIN + 0.01, when))
        modify(timer, when)
    check(BEGIN)
    steps, turn = max(LEAST_STEPS, 2 * n), _turn(n)
    now = BEGIN
    watch = _Watch(budget)
    done = 0
    while done < steps and watch.running():
        start = done % n
        moved = timers[start : start + turn]
        for timer in moved:
            modify(timer, now + ALIVE)
        done += len(moved)
        now += len(moved) / n
        check(now)
    return watch.per_step(done)


def far_and_wide(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Mix sleeps of 10 us to 1 s with contexts of 1 s to 1 hour, half of each.

    A step: a sleep ends and another begins, a context is cancelled and another begins.
    """
    woken: list[Any] = []

    def wake(arg: Any, seq: int, lateness: float) -> None:
        woken.append(arg)

    queue, timers = _many(subject, n, wake)
    stop, modify, check, wake_time = queue.stop, queue.modify, queue.check, queue.wake_time
    sleeps, contexts = _log_uniform(chance, 1e-5, 1.0), _log_uniform(chance, 1.0, 3600.0)
    half = n // 2
    for place, timer in enumerate(timers):
        timer.arg = timer
        modify(timer, BEGIN + next(sleeps if place < half else contexts))
    check(BEGIN)
    cancelled = cycle(chance.choices(timers[half:], k=min(n, DRAWS)))
    steps = max(LEAST_STEPS, n // 4)
    now = BEGIN
    watch = _Watch(budget)
    done = 0
    while done < steps and watch.running():
        now = max(now, wake_time())
        check(now)
        for timer in woken:
            modify(timer, now + next(sleeps))
            context = next(cancelled)
            stop(context)
            modify(context, now + next(contexts))
        done += len(woken)
        woken.clear()
    return watch.per_step(done)


def mass_expiry(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Expire n timeouts of one second in one check, as after a network outage. A step: one of them."""
    rounds = [_many(subject, n, nothing) for _ in range(max(1, LEAST_STEPS // n))]
    for queue, timers in rounds:
        for timer in timers:
            queue.modify(timer, BEGIN + chance.uniform(1.0, 2.0))
        queue.check(BEGIN)
    watch = _Watch(budget)
    for queue, _ in rounds:
        queue.check(BEGIN + 2.5)
    spent = watch.per_step(n * len(rounds))
    assert not any(len(queue) for queue, _ in rounds)
    return spent


def steady_tickers(subject: Subject, n: int, chance: random.Random, budget: float) -> float:
    """Run n tickers of one second at any phase, with at most one check per millisecond. A step: one tick."""
    ticked = [0]

    def tick(arg: Any, seq: int, lateness: float) -> None:
        ticked[0] += 1

    queue, timers = _many(subject, n, tick)
    check = queue.check
    for timer in timers:
        queue.modify(timer, BEGIN + chance.uniform(0.0, 1.0), 1.0)
    wake = queue.wake_time()
    steps = max(LEAST_STEPS, n)
    now = BEGIN
    watch = _Watch(budget)
    while ticked[0] < steps and watch.running():
        now = max(wake, now + NAP)
        wake = check(now)
    return watch.per_step(ticked[0])


WORKLOADS: Final[Mapping[str, Measure]] = {
    "connection deadlines": connection_deadlines,
    "keep-alive": keep_alive,
    "far and wide": far_and_wide,
    "mass expiry": mass_expiry,
    "steady tickers": steady_tickers,
}


class _Watch:
    """A stopwatch that starts when it is made."""

    def __init__(self, budget: float) -> None:
        self._began = perf_counter()
        self._end = self._began + budget
        self._running = False

    def running(self) -> bool:
        """True if there is time for another turn. The first turn always has time, so that there is a figure."""
        first, self._running = not self._running, True
        return first or perf_counter() < self._end

    def per_step(self, steps: int) -> float:
        """Return the seconds of a step so far."""
        return (perf_counter() - self._began) / steps


def _many(subject: Subject, n: int, callback: Callable[[Any, int, float], object]) -> tuple[Any, list[Any]]:
    """Make a queue that has been checked once, and n timers for it."""
    queue = subject.queue()
    queue.check(BEGIN)
    return queue, [subject.timer(callback) for _ in range(n)]


def _turn(n: int) -> int:
    return max(1, min(TURN, n // 10))


def _log_uniform(chance: random.Random, least: float, most: float) -> Iterator[float]:
    """Draw values of which every order of magnitude is equally frequent."""
    low, high = math.log(least), math.log(most)
    return cycle([math.exp(chance.uniform(low, high)) for _ in range(DRAWS)])
