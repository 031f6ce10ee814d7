"""The measured process: COUNT timers within SPREAD seconds, by one driver.

    python -m loadtest.precision.child DRIVER COUNT SPREAD

Prints "warm" after a warm-up, so that the parent can start to disturb it, and as its last line one JSON object: the
lateness of the timers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable

import trio

import deadlined
from deadlined.threads import TimerThread

from ..peers import lateness_asyncio, lateness_deadlined, lateness_trio
from ..peers import lateness_report as report
from .lateness import Lateness


def thread(count: int, spread: float) -> list[float]:
    """Measure `TimerThread.after_func`."""
    with TimerThread() as timers:
        return _called(count, spread, timers.after_func)


def threading_timers(count: int, spread: float) -> list[float]:
    """Measure `threading.Timer`, which has a thread each."""

    def start(seconds: float, fire: Callable[[float], None], when: float) -> None:
        threading.Timer(seconds, fire, (when,)).start()

    return _called(count, spread, start)


def _called(count: int, spread: float, start: Callable[[float, Callable[[float], None], float], object]) -> list[float]:
    clock, late, done = time.monotonic, [], threading.Event()

    def fire(when: float) -> None:
        late.append(clock() - when)
        if len(late) == count:
            done.set()

    due = report.due_times(count, spread, clock())
    for when in due:
        # as close to `when` as a caller can get
        start(when - clock(), fire, when)
    report.require_lead(due, clock())
    done.wait()
    return late


def _asyncio(count: int, spread: float) -> list[float]:
    with asyncio.Runner() as runner:
        return runner.run(lateness_asyncio.calls(count, spread))


def _uvloop(count: int, spread: float) -> list[float]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(lateness_asyncio.calls(count, spread))


DRIVERS: dict[str, Callable[[int, float], list[float]]] = {
    "after_func": lambda count, spread: trio.run(lateness_deadlined.functions, count, spread),
    "sleep_until": lambda count, spread: trio.run(lateness_trio.tasks, count, spread, deadlined.sleep_until),
    "thread": thread,
    "trio": lambda count, spread: trio.run(lateness_trio.tasks, count, spread),
    "asyncio": _asyncio,
    "uvloop": _uvloop,
    "threading": threading_timers,
}


# the warm-up round, which loads code and fills caches
WARM_COUNT = 100
WARM_SPREAD = 0.02


def main(driver: str, count: str, spread: str) -> None:
    """Measure, and print the result."""
    measure = DRIVERS[driver]
    measure(WARM_COUNT, WARM_SPREAD)
    print("warm", flush=True)
    print(json.dumps(Lateness.of(measure(int(count), float(spread))).document()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
