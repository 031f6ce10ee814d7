"""The phases of the benchmark `heap`, for every queue in Python.

Runs inside the measured process. Times are drawn before a phase begins and are not part of its figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from .measured import finish, resident, spread_times

T = TypeVar("T")

# added to a timeout when a timer is started, as programs do: the sum is an object of its own and takes memory
NOW = 0.0

# repetitions of the small phases, of which the median is reported
ROUNDS = 5


class Queue(Protocol[T]):
    """A queue whose operations take many timers, so that no call of ours is measured between them."""

    def start(self, times: Sequence[float]) -> list[T]:
        """Start a new timer for each time."""

    def move(self, timers: list[T], times: Sequence[float]) -> None:
        """Move each in turn; a queue that cannot move replaces the timer in the list by a new one."""

    def stop(self, timers: list[T]) -> None:
        """Stop each in turn."""

    def fire(self, now: float) -> None:
        """Run all timers that are due at `now`."""

    def count(self) -> int:
        """Return how many timers have fired so far."""


def run(queue: Queue[T], mode: str, *sizes: int) -> None:
    """Measure, print the figures and exit. `mode`: "many" or "beside"."""
    if mode == "many":
        finish(many(queue, *sizes))
    finish(beside(queue, *sizes))


def many(queue: Queue[T], number: int) -> dict[str, float]:
    """Start, move later, move earlier, stop half and fire the other half; then start all again and fire them."""
    found = {}
    times = spread_times(number, 3600.0, 7200.0)
    later = [when + 3600.0 for when in times]
    earlier = spread_times(number, 1800.0, 3600.0)
    before = resident()
    began = time.perf_counter_ns()
    timers = queue.start(times)
    found["start"] = _since(began, number)
    after = resident()
    if before is not None and after is not None:
        found["memory"] = (after - before) / number
    found["move later"] = _timed(number, lambda: queue.move(timers, later))
    found["move earlier"] = _timed(number, lambda: queue.move(timers, earlier))
    half = timers[: number // 2]
    found["stop"] = _timed(len(half), lambda: queue.stop(half))
    queue.fire(1e9)
    assert queue.count() == number - len(half)
    half.clear()
    timers.clear()
    began = time.perf_counter_ns()
    timers = queue.start(times)
    found["fire"] = _timed(number, lambda: queue.fire(1e9))
    found["start and fire"] = _since(began, number)
    assert queue.count() == 2 * number - number // 2
    return found


def beside(queue: Queue[T], idle: int, moved: int, few: int) -> dict[str, float]:
    """Start and stop a `few` timers, and move `moved` timers at once, while `idle` ones stay in the heap."""
    held = queue.start(spread_times(idle, 1e6, 2e6))
    found = {
        "start and stop": _median(lambda: _started_and_stopped(queue, [1e5] * few)),
        "moved at once": _median(lambda: _moved_at_once(queue, moved)),
    }
    assert len(held) == idle
    return found


def _started_and_stopped(queue: Queue[T], times: Sequence[float]) -> float:
    began = time.perf_counter_ns()
    queue.stop(queue.start(times))
    return _since(began, len(times))


def _moved_at_once(queue: Queue[T], number: int) -> float:
    timers = queue.start([3600.0] * number)
    # every one of them earlier than it was, and the last one due
    times = [3600.0 - 1e-3 * (place + 1) for place in range(number - 1)] + [1.0]
    fired = queue.count()

    def move_and_fire() -> None:
        queue.move(timers, times)
        queue.fire(2.0)

    spent = _timed(number, move_and_fire)
    assert queue.count() == fired + 1
    queue.stop(timers[:-1])
    return spent


def _timed(number: int, phase: Callable[[], None]) -> float:
    began = time.perf_counter_ns()
    phase()
    return _since(began, number)


def _since(began: int, number: int) -> float:
    return (time.perf_counter_ns() - began) / number


def _median(once: Callable[[], float]) -> float:
    return sorted(once() for _ in range(ROUNDS))[ROUNDS // 2]
