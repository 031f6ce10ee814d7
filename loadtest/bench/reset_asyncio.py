"""The cost of asyncio's timeouts on its own loop or on uvloop. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_asyncio asyncio|uvloop MODE NUMBER LOOPS VALUES

MODE is `timeout`: entered and left; `reschedule`: one timeout is moved; `call_later`: armed and cancelled; `lazy`: a
deadline is stored, and its `call_at` armed anew when it comes; `settimeout` of a socket. All with NUMBER `call_later`
handles armed meanwhile. `moved`: NUMBER handles, each cancelled and armed for an earlier time in turn, and LOOPS of
them so that each is due. `MODE_expiry`: NUMBER deadlines of the mode, moved later and past their old times.
The loop gets a turn after every few hundred operations, in which asyncio removes what was cancelled.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from timeit import Timer
from typing import Any

from .measured import HOUR, SLICE, SOON, Expiry, Timings, finish, repeated, sliced, spread_times

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


async def repeat(mode: str, name: str, operations: int) -> float:
    """Return the seconds of the operations of one way."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:
        with socket.socket() as endpoint:
            falling = (3 * HOUR - place * 2.9 * HOUR / operations for place in range(operations))
            names = {
                "call_later": loop.call_later, "inf": math.inf, "lazy": Lazy(loop, loop.time() + 5),
                "nothing": _nothing,
                "now": loop.time, "seconds": falling, "settimeout": endpoint.settimeout, "timeout": timeout,
            }  # fmt: skip
            return await sliced(Timer(WAYS[mode][name], globals=names).timeit, operations, _turn)


async def enter_and_leave(operations: int) -> float:
    """Return the seconds of so many timeouts."""
    began = time.perf_counter()
    for number in range(operations):
        async with asyncio.timeout(5):  # noqa: ASYNC100, the timeout itself is measured
            pass
        if number % SLICE == 0:
            await _turn()
    return time.perf_counter() - began


async def moved(number: int) -> float:
    """Return the seconds in which `number` handles are cancelled and armed for an earlier time in turn."""
    loop = asyncio.get_running_loop()
    handles = _armed(loop, number)
    offsets = spread_times(number, HOUR / 4, HOUR / 2)
    began = time.perf_counter()
    for place, offset in enumerate(offsets):
        handles[place].cancel()
        handles[place] = loop.call_later(offset, _nothing)
        if place % SLICE == 0:
            await _turn()
    await _turn()
    return time.perf_counter() - began


async def due_at_once(number: int, sample: int) -> float:
    """Return the seconds in which `sample` of `number` handles fire, each moved so that it is due before the next."""
    loop = asyncio.get_running_loop()
    handles = _armed(loop, number)
    began = time.perf_counter()
    for handle in handles[:sample]:
        handle.cancel()
        due = asyncio.Event()
        loop.call_later(SOON, due.set)
        await due.wait()
    return time.perf_counter() - began


def _armed(loop: asyncio.AbstractEventLoop, number: int) -> list[asyncio.TimerHandle]:
    return [loop.call_later(offset, _nothing) for offset in spread_times(number, HOUR, 2 * HOUR)]


async def expired(mode: str, number: int) -> float:
    """Return the CPU seconds of moving `number` deadlines later, and of the turns of the loop past their old times.

    RuntimeError if a stored one was not armed anew.
    """
    loop = asyncio.get_running_loop()
    expiry = Expiry(loop.time, number)
    if mode == "lazy":
        lazy = [Lazy(loop, when) for when in expiry.old]
        expiry.moving()
        for deadline in lazy:
            deadline.move(loop.time() + HOUR)
    else:
        handles = [loop.call_at(when, _nothing) for when in expiry.old]
        expiry.moving()
        for place, handle in enumerate(handles):
            handle.cancel()
            handles[place] = loop.call_later(HOUR, _nothing)
            if place % SLICE == 0:
                await _turn()
    expiry.wait()
    for _ in range(3):  # uvloop reads the clock in one turn, and fires in the next
        await _turn()
    spent = expiry.seconds()
    if mode == "lazy" and any(deadline.armed != deadline.when for deadline in lazy):
        raise RuntimeError("not all deadlines were armed anew")
    return spent


def settimeout(number: int) -> float:
    """Return the CPU seconds of `number` timeouts of a socket, of which nothing is left to do when they have passed."""
    with socket.socket() as endpoint:
        began = time.process_time()
        for _ in range(number):
            endpoint.settimeout(HOUR)
        return time.process_time() - began


def main(host: str, mode: str, number: int, loops: int, values: int) -> None:
    """Run on the named loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if host == "uvloop":
        import uvloop  # absent where uvloop is not a contestant

        factory = uvloop.new_event_loop

    def fresh(action: Callable[..., Any], *arguments: Any) -> Any:
        """Run on a loop of its own."""
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(action(*arguments))

    if mode in WAYS or mode == "timeout":
        _live(factory, mode, number, loops, values)
    timings = Timings(1, values, warmups=0)
    if mode == "moved":
        timings.function("moved earlier", repeated(fresh, moved, number), number)
        timings.function("moved, due at once", repeated(fresh, due_at_once, number, loops), loops)
    else:
        way = mode.removesuffix("_expiry")
        action = repeated(settimeout, number) if way == "settimeout" else repeated(fresh, expired, way, number)
        timings.function("moved and filed anew", action, number)
    finish(timings.figures)


def _live(factory: Callable[[], asyncio.AbstractEventLoop], mode: str, number: int, loops: int, values: int) -> None:
    timings = Timings(loops, values)
    with asyncio.Runner(loop_factory=factory) as runner:
        held = _armed(runner.get_loop(), number - 1)  # the measured timer is one of `number`
        if mode == "timeout":
            timings.function("later", lambda operations: runner.run(enter_and_leave(operations)))
        for name in WAYS.get(mode, ()):
            timings.function(name, _on(runner, mode, name))
        if mode in ("timeout", "call_later"):
            timings.figures["set and cleared"] = timings.figures["later"]
        assert len(held) == number - 1
        finish(timings.figures)


def _on(runner: asyncio.Runner, mode: str, name: str) -> Callable[[int], float]:
    return lambda operations: runner.run(repeat(mode, name, operations))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
