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
    call_at, done = asyncio.get_running_loop().call_at, asyncio.Event()
    lateness = report.armed(count, spread, time.monotonic, lambda when, fire: call_at(when, fire, when), done)
    await done.wait()
    return lateness


def main(variant: str, count: str, spread: str) -> None:
    """Measure on the named loop."""
    factory = asyncio.new_event_loop
    if variant == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        report.measure(lambda count, spread: runner.run(calls(count, spread)), count, spread)


if __name__ == "__main__":
    main(*sys.argv[1:])
