"""The measured process of the benchmark `heap`, for every queue in Python.

    python -m loadtest.bench.heap_child deadlined|tuples NUMBER

Times are drawn before a phase begins, and are not part of its figure.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .lazy_heapq import Alarm, LazyHeapq
from .measured import Timings, finish, nothing, resident, spread_times

# added to a timeout when a timer is started, as programs do: the sum is an object of its own and takes memory
NOW = 0.0
# after all timers
LATE = 1e5


def start(queue: Any, make: Callable[[Callable[..., object]], Any], times: Sequence[float]) -> list[Any]:
    """Start a new timer, which `make` makes of a callback, for each time."""
    modify = queue.modify
    timers = []
    for when in times:
        timer = make(nothing)
        modify(timer, NOW + when)
        timers.append(timer)
    return timers


def move(queue: Any, timers: list[Any], times: Sequence[float]) -> None:
    modify = queue.modify
    for timer, when in zip(timers, times, strict=True):
        modify(timer, when)


def stop(queue: Any, timers: Sequence[Any]) -> None:
    cancel = queue.stop
    for timer in timers:
        cancel(timer)


def fire(queue: Any) -> None:
    """Run all that are pending, and see to it that they have run."""
    assert queue.check(LATE) > LATE


def many(queue: Any, make: Callable[[Callable[..., object]], Any], number: int) -> dict[str, float]:
    """Start, move later, move earlier, stop half and fire the other half; then start all again and fire them."""
    timings = Timings(loops=1, values=1)

    def phase(name: str, operations: int, action: Callable[..., object], *arguments: Any) -> None:
        def seconds(_: int) -> float:
            began = time.perf_counter()
            action(*arguments)
            return time.perf_counter() - began

        timings.function(name, seconds, operations)

    times = spread_times(number, 3600.0, 7200.0)
    earlier = spread_times(number, 1800.0, 3600.0)
    timers: list[Any] = []
    before = resident()
    phase("start", number, lambda: timers.extend(start(queue, make, times)))
    after = resident()
    phase("move later", number, move, queue, timers, [when + 3600.0 for when in times])
    phase("move earlier", number, move, queue, timers, earlier)
    phase("stop", number // 2, stop, queue, timers[: number // 2])
    fire(queue)
    timers.clear()
    phase("start again", number, lambda: timers.extend(start(queue, make, times)))
    phase("fire", number, fire, queue)
    found = timings.figures
    found["start and fire"] = found.pop("start again") + found["fire"]
    return {**found, "memory": (after - before) / number}


def main(name: str, number: str) -> None:
    if name == "deadlined":
        from deadlined.timers import Timer, Timers  # not what a peer is measured with

        finish(many(Timers(), Timer, int(number)))
    finish(many(LazyHeapq(), Alarm, int(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
