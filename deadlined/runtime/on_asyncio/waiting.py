"""How a task of asyncio sleeps: each sleep is a future.

Facts      A task that awaits a future is stepped again when the future is done. A cancellation cancels the future; if
           that is done already, the next step raises.
Hazard     A cancellation between a wake and the next step would lose what the wake has brought.
Answer     A wake of a half brings nothing: readiness stays in the half until an operation consumes it. A checkpoint
           comes before an operation, never after one.
Cost       A future per sleep.

A future is awaited as `Future.__await__` does it, without the iterator in between: compiled code would throw into that
by a form of `throw` that Python deprecates.
"""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ...poll import PARKED, Half
from ..host import Parking, ReadyCallback, Turn, Waiter
from .sleeping import Sleep


def wake(waiter: Any) -> None:
    """Let a future's task go on, or call the callback that waits instead of one."""
    if isinstance(waiter, ReadyCallback):
        waiter.on_ready()
    elif not waiter.done():
        # a task that was cancelled leaves its future behind until it runs
        waiter.set_result(None)


class AsyncioParking(Parking):
    """Where tasks of asyncio wait for `half`."""

    __slots__ = ("_half", "_loop")

    def __init__(self, half: Half, loop: AbstractEventLoop) -> None:
        self._half: Half = half
        self._loop: Any = loop

    def __await__(self) -> Generator[Any, Any, int]:
        half = self._half
        future = self._loop.create_future()
        status = half.park(future)
        while status == PARKED:
            try:
                future._asyncio_future_blocking = True
                yield future
                future.result()
            except BaseException:
                # a callback may have taken the place of a task that was woken and cancelled
                if half.waiter is future:
                    half.unpark()
                raise
            future = self._loop.create_future()
            status = half.resume(future)
        return status


class AsyncioTurn(Turn):
    """A checkpoint before an operation on `half`."""

    __slots__ = ("_half",)

    def __init__(self, half: Half) -> None:
        self._half: Half = half

    def __await__(self) -> Generator[Any, Any, int]:
        # asyncio steps a task that yields None again in the next round
        yield None
        return self._half.reset()


class Checkpoint:
    """`await checkpoint` lets other tasks run, and raises a pending cancellation."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        yield None


class AsyncioWaiter(Waiter):
    """One sleep of a task of asyncio. It is what `park` returns, so that the sleep takes no coroutine of its own."""

    __slots__ = ("_future", "_value")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._future: Any = Sleep(loop=loop)
        self._future.on_cancel = None
        self._value = math.inf

    def park(self, on_cancel: Callable[[], object]) -> Awaitable[float]:
        self._future.on_cancel = on_cancel
        return self

    def __await__(self) -> Generator[Any, Any, float]:
        future = self._future
        try:
            future._asyncio_future_blocking = True
            yield future
            future.result()
        except BaseException:
            if not future.done():
                # not a cancellation: the coroutine is closed
                future.on_cancel()
            raise
        finally:
            # it may refer to this object
            future.on_cancel = None
        return self._value

    def wake(self, value: float) -> None:
        self._value = value
        self._future.set_result(None)
