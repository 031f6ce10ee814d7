"""The lateness of `call_at` on asyncio's own loop, or (VARIANT "uvloop") on uvloop.

It is measured by `time.monotonic`, the clock of both loops: uvloop's `loop.time()` counts in milliseconds and is read
once per turn of the loop.
"""

from __future__ import annotations

import asyncio
import sys
import time

from . import lateness_report as report


async def calls(count: int, spread: float) -> list[float]:
    """Return the lateness of each call, in seconds."""
    clock, loop, lateness, done = time.monotonic, asyncio.get_running_loop(), [], asyncio.Event()

    def fire(due: float) -> None:
        lateness.append(clock() - due)
        if len(lateness) == count:
            done.set()

    due = report.due_times(count, spread, clock())
    for when in due:
        loop.call_at(when, fire, when)
    report.require_lead(due, clock())
    await done.wait()
    return lateness


async def ticker(period: float, seconds: float) -> dict[str, float]:
    """Measure a ticker made of `sleep`."""
    meter = report.Meter(period, seconds, time.monotonic)
    due = time.monotonic()
    while True:
        due = meter.next(due)
        await asyncio.sleep(due - time.monotonic())
        if not meter.tick():
            return meter.report()


def main(variant: str, what: str, first: str, second: str) -> None:
    """Run with the arguments that `lateness_report` describes; VARIANT is "asyncio" or "uvloop"."""
    factory = asyncio.new_event_loop
    if variant == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        if what == "ticker":
            report.tell(runner.run(ticker(float(first), float(second))))
            return
        report.measure_timers(lambda count, spread: runner.run(calls(count, spread)), int(first), float(second))


if __name__ == "__main__":
    main(*sys.argv[1:])
