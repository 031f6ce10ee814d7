"""The cost of asyncio's timeouts on its own loop or on uvloop. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_asyncio asyncio|uvloop WAY live|expiry NUMBER LOOPS VALUES

WAY is `timeout`: entered and left; `reschedule`: one timeout is moved; `call_later`: armed and cancelled; `lazy`: a
deadline is stored, and its `call_at` armed anew when it comes; `settimeout` of a socket. All with NUMBER `call_later`
handles armed meanwhile. expiry: NUMBER deadlines of the way, moved later and past their old times. The loop gets a turn
after every few hundred operations, in which asyncio removes what was cancelled.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from timeit import Timer
from typing import Any

from .measured import HOUR, SLICE, Expiry, Timings, finish, spread_times

WAYS: Mapping[str, Mapping[str, str]] = {
    "reschedule": {
        "later": "timeout.reschedule(now() + 5)",
        "earlier": "timeout.reschedule(now() + next(seconds))",
        "set and cleared": "timeout.reschedule(now() + 5); timeout.reschedule(None)",
    },
    "call_later": {"later": "call_later(5, nothing).cancel()"},
    "lazy": {"later": "lazy.move(now() + 5)", "set and cleared": "lazy.move(now() + 5); lazy.move(inf)"},
    "settimeout": {"later": "settimeout(5.0)", "set and cleared": "settimeout(5.0); settimeout(None)"},
}


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


def _nothing() -> None:
    """Do nothing: the callback of timers that never fire."""


def _turn() -> Awaitable[None]:
    return asyncio.sleep(0)


async def repeat(way: str, name: str, operations: int) -> float:
    """Return the seconds of the operations of one way, with a turn of the loop after every SLICE of them."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:
        with socket.socket() as endpoint:
            falling = (3 * HOUR - place * 2.9 * HOUR / operations for place in range(operations))
            names = {
                "call_later": loop.call_later, "inf": math.inf, "lazy": Lazy(loop, loop.time() + 5),
                "nothing": _nothing,
                "now": loop.time, "seconds": falling, "settimeout": endpoint.settimeout, "timeout": timeout,
            }  # fmt: skip
            run = Timer(WAYS[way][name], globals=names).timeit
            began = time.perf_counter()
            for done in range(0, operations, SLICE):
                run(min(SLICE, operations - done))
                await _turn()
            return time.perf_counter() - began


async def enter_and_leave(operations: int) -> float:
    """Return the seconds of so many timeouts."""
    began = time.perf_counter()
    for number in range(operations):
        async with asyncio.timeout(5):  # noqa: ASYNC100, the timeout itself is measured
            pass
        if number % SLICE == 0:
            await _turn()
    return time.perf_counter() - began


async def expired_handles(number: int) -> float:
    """Return the CPU seconds of cancelling `number` handles and arming later ones, past the times of the first."""
    loop = asyncio.get_running_loop()
    expiry = Expiry(loop.time, number)
    handles = [loop.call_at(when, _nothing) for when in expiry.old]
    expiry.moving()
    for place, handle in enumerate(handles):
        handle.cancel()
        handles[place] = loop.call_later(HOUR, _nothing)
        if place % SLICE == 0:
            await _turn()
    return await _past(expiry)


async def expired_lazy(number: int) -> float:
    """Return the CPU seconds of moving `number` stored deadlines, and of arming them anew when their old times come.

    RuntimeError if one was not armed anew.
    """
    loop = asyncio.get_running_loop()
    expiry = Expiry(loop.time, number)
    deadlines = [Lazy(loop, when) for when in expiry.old]
    expiry.moving()
    for deadline in deadlines:
        deadline.move(loop.time() + HOUR)
    spent = await _past(expiry)
    if any(deadline.armed != deadline.when for deadline in deadlines):
        raise RuntimeError("not all deadlines were armed anew")
    return spent


async def _past(expiry: Expiry) -> float:
    expiry.wait()
    for _ in range(3):  # uvloop reads the clock in one turn, and fires in the next
        await _turn()
    return expiry.seconds()


async def expired_timeouts(number: int) -> float:
    """Return the CPU seconds of `number` timeouts of a socket, of which nothing is left to do when they have passed."""
    with socket.socket() as endpoint:
        began = time.process_time()
        for _ in range(number):
            endpoint.settimeout(HOUR)
        return time.process_time() - began


EXPIRED: Mapping[str, Callable[[int], Any]] = {
    "call_later": expired_handles,
    "lazy": expired_lazy,
    "settimeout": expired_timeouts,
}


def live(runner: asyncio.Runner, way: str, number: int, timings: Timings) -> None:
    """Measure one way, print the figures and exit."""
    loop = runner.get_loop()
    # the measured timer is one of `number`
    held = [loop.call_later(offset, _nothing) for offset in spread_times(number - 1, HOUR, 2 * HOUR)]
    if way == "timeout":
        timings.function("later", lambda operations: runner.run(enter_and_leave(operations)))
    for name in WAYS.get(way, ()):
        timings.function(name, partial(_repeated, runner, way, name))
    if way in ("timeout", "call_later"):
        timings.figures["set and cleared"] = timings.figures["later"]
    assert len(held) == number - 1
    finish(timings.figures)


def _repeated(runner: asyncio.Runner, way: str, name: str, operations: int) -> float:
    return runner.run(repeat(way, name, operations))


def main(host: str, way: str, kind: str, number: str, loops: str, values: str) -> None:
    """Run on the named loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if host == "uvloop":
        import uvloop  # absent where uvloop is not a contestant

        factory = uvloop.new_event_loop
    timings = Timings(int(loops), int(values))
    with asyncio.Runner(loop_factory=factory) as runner:
        if kind == "live":
            live(runner, way, int(number), timings)
        timings.past_expiry(lambda count: runner.run(EXPIRED[way](count)), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
