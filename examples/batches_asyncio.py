"""Go's time API in an asyncio program: items are written in batches, and a watchdog notices when none is.

    python examples/batches_asyncio.py --second 0.2

A batch is written half a second after its first item (a `Timer` that each first item starts). A `Ticker` reports every
second. A function is called if nothing was written for two seconds (`after_func`, which each batch postpones). All of
it ends after four and a half seconds: `asyncio.timeout` works around the waits of this library as around any other.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable

import deadlined

# seconds from the first item of a batch until the batch is written
DELAY = 0.5
# seconds without a batch after which the watchdog is called
PATIENCE = 2.0
# seconds that the program runs
TOTAL = 4.5
# when items come, in seconds: three at once, then a long pause, then one
ITEMS = (0.1, 0.2, 0.3, 3.1)


class Batches:
    """Collects items and writes them together. `second` is how long a second lasts here; `say` writes a line."""

    def __init__(self, second: float, say: Callable[[str], None]) -> None:
        self._second = second
        self._say = say
        self._items: list[int] = []
        self.written = 0
        # stopped until the first item
        self._due = deadlined.Timer(math.inf)
        self._watchdog = deadlined.after_func(PATIENCE * second, say, f"watchdog: nothing for {PATIENCE:g} s")

    def add(self, item: int) -> None:
        """Take an item."""
        if not self._items:
            self._due.reset(DELAY * self._second)
        self._items.append(item)

    async def write(self) -> None:
        """Write each batch when its time has come, until cancelled."""
        try:
            while True:
                await self._due.wait()
                self._watchdog.reset(PATIENCE * self._second)
                self.written += len(self._items)
                self._say(f"wrote {self._items}")
                self._items = []
        finally:
            self._watchdog.stop()


async def produce(batches: Batches, second: float) -> None:
    """Add the items at their times."""
    began = deadlined.current_time()
    for number, when in enumerate(ITEMS, start=1):
        await deadlined.sleep_until(began + when * second)
        batches.add(number)


async def report(batches: Batches, second: float, say: Callable[[str], None]) -> None:
    """Say every second how many items were written, until cancelled."""
    began = deadlined.current_time()
    async for when in deadlined.Ticker(second):
        # `when` is the time at which the tick was due, so this is a whole number
        say(f"{(when - began) / second:.0f} s: {batches.written} written")


async def run(second: float, say: Callable[[str], None]) -> None:
    """Run all of it for TOTAL seconds, of which each lasts `second`."""
    batches = Batches(second, say)
    try:
        async with asyncio.timeout(TOTAL * second), asyncio.TaskGroup() as tasks:
            tasks.create_task(batches.write())
            tasks.create_task(produce(batches, second))
            tasks.create_task(report(batches, second, say))
    except TimeoutError:
        say("time is up")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Batches, a heartbeat and a watchdog on asyncio.")
    parser.add_argument("--second", type=float, default=1.0, help="how long a second of the program lasts")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.second, print))


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
