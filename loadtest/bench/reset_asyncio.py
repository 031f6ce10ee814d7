"""The cost of asyncio's timeouts on its own loop or on uvloop. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_asyncio asyncio|uvloop MODE NUMBER OPERATIONS ROUNDS

MODE is `timeout`: entered and left; `reschedule`: one timeout is moved; `call_later`: armed and cancelled; `lazy`: a
deadline is stored, and its `call_at` armed anew when it comes; `settimeout` of a socket. All with NUMBER `call_later`
handles armed meanwhile. `moved`: NUMBER handles, each cancelled and armed for an earlier time in turn.
The loop gets a turn after every few hundred operations, in which asyncio removes what was cancelled.
"""

from __future__ import annotations

import asyncio
import math
import socket
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from .measured import SLICE, finish, sliced_median, spread_times

HOUR = 3600.0
SOON = 2e-6


def _nothing() -> None:
    """Do nothing: the callback of timers that never fire."""


def _turn() -> Coroutine[Any, Any, None]:
    return asyncio.sleep(0)


async def measure(mode: str, number: int, operations: int, rounds: int) -> None:
    """Measure, print the figures and exit."""
    loop = asyncio.get_running_loop()
    # the measured timer is one of `number`
    armed = number if mode == "moved" else number - 1
    handles = [loop.call_later(offset, _nothing) for offset in spread_times(armed, HOUR, 2 * HOUR)]
    if mode == "moved":
        finish({"moved earlier": await _moved(handles), "moved, due at once": await _due(handles[:operations])})
    if mode == "reschedule":
        finish(await _reschedule(operations, rounds))
    if mode in ("lazy", "settimeout"):
        with socket.socket() as endpoint:
            loops = _lazy(loop) if mode == "lazy" else _settimeout(endpoint)
            finish({name: await sliced_median(repeat, operations, rounds, _turn) for name, repeat in loops.items()})
    if mode == "timeout":
        cost = await _timeout(operations, rounds)
    else:
        cost = await sliced_median(_call_later(loop), operations, rounds, _turn)
    finish({"later": cost, "set and cleared": cost})


class Lazy:
    """A deadline that is stored. Its handle fires at the time that it was armed for, and is armed anew if that is over.

    Only a deadline before that time arms it at once, as ours does.
    """

    __slots__ = ("_armed", "_handle", "_loop", "when")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._loop = loop
        self.when = when
        self._arm()

    def move(self, when: float) -> None:
        """Set the deadline; inf for none."""
        self.when = when
        if when < self._armed:
            self._handle.cancel()
            self._arm()

    def _arm(self) -> None:
        self._armed = self.when
        self._handle = self._loop.call_at(self.when, self._come)

    def _come(self) -> None:
        self._armed = math.inf
        if self._loop.time() < self.when < math.inf:
            self._arm()


def _lazy(loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[int], None]]:
    now, deadline = loop.time, Lazy(loop, loop.time() + 5)

    def later(repeats: int) -> None:
        for _ in range(repeats):
            deadline.move(now() + 5)

    def cleared(repeats: int) -> None:
        for _ in range(repeats):
            deadline.move(now() + 5)
            deadline.move(math.inf)

    return {"later": later, "set and cleared": cleared}


def _settimeout(endpoint: socket.socket) -> dict[str, Callable[[int], None]]:
    def later(repeats: int) -> None:
        for _ in range(repeats):
            endpoint.settimeout(5.0)

    def cleared(repeats: int) -> None:
        for _ in range(repeats):
            endpoint.settimeout(5.0)
            endpoint.settimeout(None)

    return {"later": later, "set and cleared": cleared}


def _call_later(loop: asyncio.AbstractEventLoop) -> Callable[[int], None]:
    def repeat(operations: int) -> None:
        for _ in range(operations):
            loop.call_later(5, _nothing).cancel()

    return repeat


async def _timeout(operations: int, rounds: int) -> float:
    found = []
    slices, size = max(1, operations // SLICE), min(operations, SLICE)
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _slice in range(slices):
            for _number in range(size):
                async with asyncio.timeout(5):  # noqa: ASYNC100, the timeout itself is measured
                    pass
            await _turn()
        found.append((time.perf_counter_ns() - began) / (slices * size))
    return statistics.median(found)


async def _reschedule(operations: int, rounds: int) -> dict[str, float]:
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as timeout:

        def later(repeats: int) -> None:
            for _ in range(repeats):
                timeout.reschedule(now() + 5)

        def earlier(repeats: int) -> None:
            seconds, step = 3 * HOUR, 2.9 * HOUR / repeats
            for _ in range(repeats):
                seconds -= step
                timeout.reschedule(now() + seconds)

        def cleared(repeats: int) -> None:
            for _ in range(repeats):
                timeout.reschedule(now() + 5)
                timeout.reschedule(None)

        loops = {"later": later, "earlier": earlier, "set and cleared": cleared}
        finish({name: await sliced_median(repeat, operations, rounds, _turn) for name, repeat in loops.items()})


async def _moved(handles: list[asyncio.TimerHandle]) -> float:
    loop = asyncio.get_running_loop()
    offsets = spread_times(len(handles), HOUR / 4, HOUR / 2)
    began = time.perf_counter_ns()
    for number, offset in enumerate(offsets):
        handles[number].cancel()
        handles[number] = loop.call_later(offset, _nothing)
        if number % SLICE == 0:
            await _turn()
    await _turn()
    return (time.perf_counter_ns() - began) / len(handles)


async def _due(handles: list[asyncio.TimerHandle]) -> float:
    loop = asyncio.get_running_loop()
    began = time.perf_counter_ns()
    for handle in handles:
        handle.cancel()
        due = asyncio.Event()
        loop.call_later(SOON, due.set)
        await due.wait()
    return (time.perf_counter_ns() - began) / len(handles)


def main(host: str, mode: str, number: int, operations: int, rounds: int) -> None:
    """Run on the named loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if host == "uvloop":
        import uvloop  # absent where uvloop is not a contestant

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(measure(mode, number, operations, rounds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
