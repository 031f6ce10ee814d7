"""The lateness of `call_at` on asyncio's own loop, or (VARIANT "uvloop") on uvloop.

It is measured by `time.monotonic`, the clock of both loops: uvloop's `loop.time()` counts in milliseconds and is read
once per turn of the loop.
"""

from __future__ import annotations

import asyncio
import time

from .hosts import loop_factory
from .lateness_report import armed, main


async def calls(count: int, spread: float) -> list[float]:
    """Return the lateness of each call, in seconds."""
    call_at, done = asyncio.get_running_loop().call_at, asyncio.Event()
    lateness = armed(count, spread, time.monotonic, lambda when, fire: call_at(when, fire, when), done.set)
    await done.wait()
    return lateness


def measured(variant: str, count: int, spread: float) -> list[float]:
    """Measure on the named loop."""
    with asyncio.Runner(loop_factory=loop_factory(variant)) as runner:
        return runner.run(calls(count, spread))


if __name__ == "__main__":
    main(measured)
