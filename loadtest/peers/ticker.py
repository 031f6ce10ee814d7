"""A program that wakes once a millisecond, and does nothing else: `python -m loadtest.peers.ticker LOOP WAY TICKS`.

own: by the event loop's own `sleep`. sleep: by `deadlined.sleep`. ticker: by `deadlined.Ticker`. Its output is one JSON
object: the microseconds of the processor per tick.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import trio

from deadlined import Ticker, sleep
from deadlined.runtime import run

PERIOD = 0.001

# ticks before the measurement: the first ones load code and start the host
WARM = 500


async def tick(loop: str, way: str, ticks: int) -> None:
    if way == "ticker":
        ticker = Ticker(PERIOD)
        for _ in range(ticks):
            await anext(ticker)
        return
    pause: Any = sleep if way == "sleep" else trio.sleep if loop == "trio" else asyncio.sleep
    for _ in range(ticks):
        await pause(PERIOD)


async def main(loop: str, way: str, ticks: int) -> float:
    await tick(loop, way, WARM)
    began = time.process_time()
    await tick(loop, way, ticks)
    return (time.process_time() - began) / ticks * 1e6


if __name__ == "__main__":
    print(json.dumps({"cpu": run(sys.argv[1], main, sys.argv[1], sys.argv[2], int(sys.argv[3]))}))
