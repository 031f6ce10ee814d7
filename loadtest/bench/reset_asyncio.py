"""The cost of asyncio's timeouts on its own loop or on uvloop. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_asyncio asyncio|uvloop WAY live|expiry NUMBER LOOPS VALUES

live: the statements of the way (reset.toml), with NUMBER `call_later` handles armed meanwhile. expiry: NUMBER deadlines
of the way, moved later and past their old times. The loop gets a turn after every few hundred operations, in which
asyncio removes what was cancelled.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
import time
from typing import Any

from ..peers.hosts import runner_of
from .measured import HOUR, SLICE, Expiry, Timings, finish, nothing, spread_times, statements

# as timeit does it, which cannot await
_REPEAT = """
async def repeat(operations):
    for done in range(0, operations, SLICE):
        for _ in range(min(SLICE, operations - done)):
            {statement}
        await asyncio.sleep(0)
"""
_MOVE = """
async def move(expiry):
    held = [{made} for when in expiry.old]
    expiry.moving()
    for first in range(0, len(held), SLICE):
        for place in range(first, min(first + SLICE, len(held))):
            {moved}
        await asyncio.sleep(0)
    return held
"""


class Lazy:
    """A deadline that is stored. Its handle fires at the time that it was armed for, and is armed anew if that is over.

    Only a deadline before that time arms it at once, as ours does.
    """

    __slots__ = ("_handle", "_loop", "armed", "when")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._loop = loop
        self.when = when
        self._arm()

    def move(self, when: float) -> None:
        """Set the deadline; inf for none."""
        self.when = when
        if when < self.armed:
            self._handle.cancel()
            self._arm()

    def _arm(self) -> None:
        self.armed = self.when
        self._handle = self._loop.call_at(self.when, self._come)

    def _come(self) -> None:
        self.armed = math.inf
        if self._loop.time() < self.when < math.inf:
            self._arm()


def _names(endpoint: socket.socket) -> dict[str, Any]:
    """Return what the statements use."""
    loop = asyncio.get_running_loop()
    return {
        "HOUR": HOUR, "Lazy": Lazy, "SLICE": SLICE, "asyncio": asyncio, "call_at": loop.call_at,
        "call_later": loop.call_later, "inf": math.inf, "lazy": Lazy(loop, loop.time() + 5), "loop": loop,
        "nothing": nothing, "now": loop.time, "settimeout": endpoint.settimeout,
    }  # fmt: skip


async def repeated(statement: str, operations: int) -> float:
    """Return the seconds of so many operations, with a turn of the loop after every SLICE of them."""
    with socket.socket() as endpoint:
        names = _names(endpoint)
        exec(_REPEAT.format(statement=statement), names)
        began = time.perf_counter()
        await names["repeat"](operations)
        return time.perf_counter() - began


def live(runner: asyncio.Runner, way: str, number: int, timings: Timings) -> None:
    """Measure one way, print the figures and exit."""
    # the measured timer is one of `number`
    held = [runner.get_loop().call_later(offset, nothing) for offset in spread_times(number - 1, HOUR, 2 * HOUR)]
    timings.time_statements("asyncio", way, lambda statement: lambda count: runner.run(repeated(statement, count)))
    assert len(held) == number - 1
    finish(timings.figures)


async def expired(way: str, number: int) -> float:
    """Return the CPU seconds of moving `number` deadlines, and of turns past their old times.

    RuntimeError if a stored one was not armed anew.
    """
    with socket.socket() as endpoint:
        names = _names(endpoint)
        exec(_MOVE.format(**statements("past_expiry", way)), names)
        expiry = Expiry(names["now"], number)
        held = await names["move"](expiry)
    expiry.wait()
    for _ in range(3):  # uvloop reads the clock in one turn, and fires in the next
        await asyncio.sleep(0)
    spent = expiry.seconds()
    if any(isinstance(one, Lazy) and one.armed != one.when for one in held):
        raise RuntimeError("not all deadlines were armed anew")
    return spent


def main(host: str, way: str, kind: str, number: str, loops: str, values: str) -> None:
    timings = Timings(int(loops), int(values))
    with runner_of(host) as runner:
        if kind == "live":
            live(runner, way, int(number), timings)
        timings.past_expiry(lambda count: runner.run(expired(way, count)), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
