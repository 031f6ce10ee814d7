"""What only the garbage collector frees: reference cycles. And what is still there without it."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType

from deadlined.http import Exchange
from deadlined.http.connection import Connection

TIMES = 3

_SUSPENDABLE = (AsyncGeneratorType, CoroutineType, GeneratorType)


async def assert_leaves_no_garbage(act: Callable[[], Awaitable[object]]) -> None:
    """Await `act()` three times, and fail if it leaves the collector something to free each time.

    What is left only once is not its own: a thread that an earlier test has left ends meanwhile, or the first run fills
    a cache.
    """
    left = [await _kinds_left(act) for _ in range(TIMES)]
    assert [] in left


def kept_connections() -> list[type]:
    """Return a type for each connection and each exchange that was not freed."""
    return [type(thing) for thing in gc.get_objects() if type(thing) in (Connection, Exchange)]


async def _kinds_left(act: Callable[[], Awaitable[object]]) -> list[str]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await act()
        before = _suspended()
        gc.collect()
        # the collector closes them first, which breaks their cycles: nothing is garbage then
        closed = before - _suspended()
        return sorted(type(thing).__name__ for thing in gc.garbage) + ["suspended"] * closed
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _suspended() -> int:
    return sum([isinstance(thing, _SUSPENDABLE) for thing in gc.get_objects()])
