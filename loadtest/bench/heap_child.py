"""The measured process of the benchmark `heap`, for every queue in Python.

    python -m loadtest.bench.heap_child deadlined|tuples|asyncio many NUMBER
    python -m loadtest.bench.heap_child deadlined|tuples|asyncio beside IDLE MOVED FEW

Times are drawn before a phase begins, and are not part of its figure.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..schemes.baselines import Alarm, LazyHeapq
from .measured import Timings, finish, repeated, resident, spread_times

# added to a timeout when a timer is started, as programs do: the sum is an object of its own and takes memory
NOW = 0.0

# repetitions of the small phases, of which the median is reported
ROUNDS = 5


def _nothing(*_: object) -> None:
    """Do nothing: the timers' callback."""


class Timed:
    """A queue and what its phases take. `make` makes a timer of a callback."""

    def __init__(self, queue: Any, make: Callable[[Callable[..., object]], Any], rounds: int) -> None:
        self._queue = queue
        self._make = make
        self.timings = Timings(1, rounds, warmups=0)

    def start(self, times: Sequence[float]) -> list[Any]:
        """Start a new timer for each time."""
        modify, make = self._queue.modify, self._make
        timers = []
        for when in times:
            timer = make(_nothing)
            modify(timer, NOW + when)
            timers.append(timer)
        return timers

    def move(self, timers: list[Any], times: Sequence[float]) -> None:
        """Move each in turn; a queue that cannot move replaces the timer in the list by a new one."""
        modify = self._queue.modify
        for timer, when in zip(timers, times, strict=True):
            modify(timer, when)

    def stop(self, timers: Sequence[Any]) -> None:
        """Stop each in turn."""
        stop = self._queue.stop
        for timer in timers:
            stop(timer)

    def fire(self, now: float) -> None:
        """Run all that are due, and see to it that what remains is later."""
        assert self._queue.check(now) > now

    def phase(self, name: str, operations: int, action: Callable[..., object], *arguments: Any) -> None:
        """Time an action of so many operations."""
        self.timings.function(name, repeated(_seconds, action, *arguments), operations)


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with a time that it is told."""

    now = 0.0

    def time(self) -> float:
        """Return that time."""
        return self.now


class Asyncio(Timed):
    """The handles of asyncio's loop, which removes the cancelled ones in a turn: that is part of a phase."""

    def __init__(self, rounds: int) -> None:
        self._loop = Loop()
        super().__init__(None, lambda callback: callback, rounds)

    def start(self, times: Sequence[float]) -> list[Any]:
        call_at = self._loop.call_at
        return [call_at(NOW + when, _nothing) for when in times]

    def move(self, timers: list[Any], times: Sequence[float]) -> None:
        call_at = self._loop.call_at
        for place, when in enumerate(times):
            timers[place].cancel()
            timers[place] = call_at(when, _nothing)
        self._turn()

    def stop(self, timers: Sequence[Any]) -> None:
        for timer in timers:
            timer.cancel()
        self._turn()

    def fire(self, now: float) -> None:
        before, self._loop.now = self._loop.now, now
        fired: list[bool] = []
        self._loop.call_at(now, fired.append, True)
        self._turn()
        assert fired
        self._loop.now = before

    def _turn(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0))


def _seconds(action: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - began


def many(timed: Timed, number: int) -> dict[str, float]:
    """Start, move later, move earlier, stop half and fire the other half; then start all again and fire them."""
    times = spread_times(number, 3600.0, 7200.0)
    earlier = spread_times(number, 1800.0, 3600.0)
    timers: list[Any] = []
    before = resident()
    timed.phase("start", number, lambda: timers.extend(timed.start(times)))
    after = resident()
    timed.phase("move later", number, timed.move, timers, [when + 3600.0 for when in times])
    timed.phase("move earlier", number, timed.move, timers, earlier)
    timed.phase("stop", number // 2, timed.stop, timers[: number // 2])
    timed.fire(1e5)
    timers.clear()
    timed.phase("start again", number, lambda: timers.extend(timed.start(times)))
    timed.phase("fire", number, timed.fire, 1e5)
    found = timed.timings.figures
    found["start and fire"] = found.pop("start again") + found["fire"]
    if before is not None and after is not None:
        found["memory"] = (after - before) / number
    return found


def beside(timed: Timed, idle: int, moved: int, few: int) -> dict[str, float]:
    """Start and stop a `few` timers, and move `moved` timers at once, while `idle` ones stay in the heap."""
    held = timed.start(spread_times(idle, 1e6, 2e6))
    # every one of them earlier than it was, and the last one due
    times = [3600.0 - 1e-3 * (place + 1) for place in range(moved - 1)] + [1.0]

    def moved_at_once() -> float:
        timers = timed.start([3600.0] * moved)
        began = time.perf_counter()
        timed.move(timers, times)
        timed.fire(2.0)
        spent = time.perf_counter() - began
        timed.stop(timers[:-1])
        return spent

    timed.phase("start and stop", few, lambda: timed.stop(timed.start([1e5] * few)))
    timed.timings.function("moved at once", repeated(moved_at_once), moved)
    assert len(held) == idle
    return timed.timings.figures


def main(queue: str, mode: str, *sizes: str) -> None:
    """Measure, print the figures and exit."""
    rounds = 1 if mode == "many" else ROUNDS
    if queue == "deadlined":
        from deadlined.timers import Timer, Timers  # not what a peer is measured with

        timed = Timed(Timers(), Timer, rounds)
    else:
        timed = Asyncio(rounds) if queue == "asyncio" else Timed(LazyHeapq(), Alarm, rounds)
    finish((many if mode == "many" else beside)(timed, *map(int, sizes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
