"""The lateness of timers of threads: `TimerThread.after_func` (VARIANT "thread") or `threading.Timer` ("timer")."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from deadlined.threads import TimerThread

from . import lateness_report as report

Start = Callable[[float, Callable[[float], None], float], object]


def thread(count: int, spread: float) -> list[float]:
    """Return the lateness of each call of one thread's timers, in seconds."""
    with TimerThread() as timers:
        return _called(count, spread, timers.after_func)


def timer(count: int, spread: float) -> list[float]:
    """Return the lateness of timers that have a thread each."""

    def start(seconds: float, fire: Callable[[float], None], when: float) -> None:
        threading.Timer(seconds, fire, (when,)).start()

    return _called(count, spread, start)


def _called(count: int, spread: float, start: Start) -> list[float]:
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


def main(variant: str, _: str, count: str, spread: str) -> None:
    """Run with the arguments that `lateness_report` describes; there is no ticker."""
    report.measure_timers({"thread": thread, "timer": timer}[variant], int(count), float(spread))


if __name__ == "__main__":
    main(*sys.argv[1:])
