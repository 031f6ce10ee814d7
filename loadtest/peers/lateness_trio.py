"""The lateness of trio's `sleep_until`, or (VARIANT "deadlined") of deadlined's: a task for each timer, and a loop as a
ticker."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import trio

import deadlined

from . import lateness_report as report


async def tasks(
    count: int, spread: float, sleep_until: Callable[[float], Awaitable[object]] = trio.sleep_until
) -> list[float]:
    """Return the lateness of each task, in seconds."""
    clock = trio.current_time
    lateness: list[float] = []

    async def sleep(when: float) -> None:
        await sleep_until(when)
        lateness.append(clock() - when)

    async with trio.open_nursery() as nursery:
        due = report.due_times(count, spread, clock())
        for when in due:
            nursery.start_soon(sleep, when)
        await trio.lowlevel.checkpoint()
        report.require_lead(due, clock())
    return lateness


async def ticker(period: float, seconds: float) -> dict[str, float]:
    """Measure a ticker made of `sleep_until`."""
    meter = report.Meter(period, seconds, trio.current_time)
    due = trio.current_time()
    while True:
        due = meter.next(due)
        await trio.sleep_until(due)
        if not meter.tick():
            return meter.report()


def main(variant: str, what: str, first: str, second: str) -> None:
    """Run with the arguments that `lateness_report` describes; VARIANT is "trio" or "deadlined"."""
    if what == "ticker":
        report.tell(trio.run(ticker, float(first), float(second)))
        return
    sleep = deadlined.sleep_until if variant == "deadlined" else trio.sleep_until
    report.measure_timers(lambda count, spread: trio.run(tasks, count, spread, sleep), int(first), float(second))


if __name__ == "__main__":
    main(*sys.argv[1:])
