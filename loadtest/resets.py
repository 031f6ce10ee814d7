"""What it costs to move a deadline, beside what trio and asyncio offer for the same, in the same run.

Facts      A server moves a deadline with every read and every write; nearly none of them ever passes.
Hazard     A figure that leaves out the reading of the clock, or that was taken on an empty heap, flatters.
Answer     Every operation reads its clock. Each is measured with the same number of live timers in its own heap: `live`
           connections' deadlines, entered cancel scopes, `call_later` handles. The operations take turns; medians.
Cost       Live timers are real sockets with two deadlines each. Where the limit of descriptors is too low for that,
           the poller is given made-up descriptors, and the table says so: the function that moves the deadline is
           the same, only the sleeping pump that hears of the nearest one is missing.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import trio

import deadlined
from deadlined import Conn
from deadlined.poll import FakePort, Poller

from .report import console, save, show, spread
from .servers import raise_file_limit

HOUR = 3600.0

# operations per measurement; asyncio clears its cancelled handles between two rounds of its loop, hence the slices
_OPERATIONS = 5_000
_SLICE = 500

SetDeadline = Callable[[float], None]
Operation = Callable[[SetDeadline], Awaitable[float]]


def _per_operation(began: float, operations: int = _OPERATIONS) -> float:
    return (time.perf_counter() - began) / operations * 1e9


# each returns nanoseconds per operation


async def later(set_deadline: SetDeadline) -> float:
    """The common case: now + timeout, over and over."""
    began = time.perf_counter()
    for _ in range(_OPERATIONS):
        set_deadline(trio.current_time() + HOUR)
    return _per_operation(began)


async def earlier(set_deadline: SetDeadline) -> float:
    """Every time a bit earlier: nothing can be put off."""
    start = trio.current_time() + HOUR / 2
    began = time.perf_counter()
    for number in range(_OPERATIONS):
        set_deadline(start - number * 0.1)
    return _per_operation(began)


async def cleared(set_deadline: SetDeadline) -> float:
    """Set and cleared again: both together are one operation."""
    began = time.perf_counter()
    for _ in range(_OPERATIONS):
        set_deadline(trio.current_time() + HOUR)
        set_deadline(math.inf)
    return _per_operation(began)


async def trio_scope(_: SetDeadline) -> float:
    """A new scope for every operation."""
    began = time.perf_counter()
    for _number in range(_OPERATIONS):
        with trio.move_on_after(HOUR):  # noqa: ASYNC100, the scope itself is measured
            pass
    return _per_operation(began)


async def trio_moved(_: SetDeadline) -> float:
    """One scope whose deadline is moved."""
    with trio.CancelScope() as scope:  # noqa: ASYNC100, the scope itself is measured
        began = time.perf_counter()
        for _number in range(_OPERATIONS):
            scope.deadline = trio.current_time() + HOUR
    return _per_operation(began)


async def asyncio_timeout() -> float:
    """A new timeout for every operation."""
    began = time.perf_counter()
    for _ in range(_OPERATIONS // _SLICE):
        for _number in range(_SLICE):
            async with asyncio.timeout(HOUR):  # noqa: ASYNC100, the timeout itself is measured
                pass
        await asyncio.sleep(0)
    return _per_operation(began)


async def asyncio_call_later() -> float:
    """The loop's own timer: armed and cancelled."""
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(_OPERATIONS // _SLICE):
        for _number in range(_SLICE):
            loop.call_later(HOUR, _nothing).cancel()
        await asyncio.sleep(0)
    return _per_operation(began)


def _nothing() -> None:
    """What a timer calls that never fires."""


OURS: dict[str, Operation] = {
    "set_read_deadline, later": later,
    "set_read_deadline, earlier": earlier,
    "set_read_deadline, set and cleared": cleared,
}
TRIOS: dict[str, Operation] = {
    "trio.move_on_after, enter and exit": trio_scope,
    "trio, one scope's deadline moved": trio_moved,
}
ASYNCIOS: dict[str, Callable[[], Awaitable[float]]] = {
    "asyncio.timeout, enter and exit": asyncio_timeout,
    "asyncio call_later and cancel": asyncio_call_later,
}


@dataclass(frozen=True)
class Figures:
    """Nanoseconds of every operation in every repetition, with `live` timers; `real`: those of sockets."""

    live: int
    real: bool
    nanoseconds: dict[str, list[float]]


async def measure(live: int, repetitions: int) -> Figures:
    """All operations, in turns."""
    found: dict[str, list[float]] = {name: [] for name in (*OURS, *TRIOS, *ASYNCIOS)}
    real = raise_file_limit(live // 2 + 200) >= live // 2 + 200
    async with AsyncExitStack() as stack:
        new = await _conns(live, stack) if real else _halves(live)
        with asyncio.Runner() as runner, ExitStack() as scopes:
            loop = runner.get_loop()
            handles = [loop.call_later(_some_time(), _nothing) for _ in range(live)]
            for _ in range(live):
                scopes.enter_context(trio.move_on_after(_some_time()))
            for _ in range(repetitions):
                with new() as set_deadline:
                    for name, operation in (*OURS.items(), *TRIOS.items()):
                        found[name].append(await operation(set_deadline))
                for name, foreign in ASYNCIOS.items():
                    found[name].append(runner.run(_as_coroutine(foreign)))
                await trio.lowlevel.checkpoint()
            for handle in handles:
                handle.cancel()
    return Figures(live, real, found)


NewDeadline = Callable[[], AbstractContextManager[SetDeadline]]


async def _conns(live: int, stack: AsyncExitStack) -> NewDeadline:
    """Arm `live` deadlines of connections; what is returned opens one more."""
    for number in range((live + 1) // 2):
        conn = await stack.enter_async_context(_unconnected())
        conn.set_read_deadline(trio.current_time() + _some_time())
        if 2 * number + 1 < live:
            conn.set_write_deadline(trio.current_time() + _some_time())

    @contextmanager
    def new() -> Iterator[SetDeadline]:
        conn = _unconnected()
        try:
            yield conn.set_read_deadline
        finally:
            conn.close()

    return new


def _unconnected() -> Conn:
    return Conn.from_socket(socket.socket(socket.AF_UNIX))


def _halves(live: int) -> NewDeadline:
    """The same on descriptors that exist only in name."""
    poller = Poller(FakePort(), trio.current_time, lambda _: None)
    for fd in range(live // 2):
        poller.open(fd).set_deadline(trio.current_time() + _some_time())

    @contextmanager
    def new() -> Iterator[SetDeadline]:
        desc = poller.open(live)
        try:
            yield desc.read.set_deadline
        finally:
            poller.close(desc)

    return new


def _some_time() -> float:
    """Deadlines of the others lie around the measured one, which is neither the nearest nor the last."""
    return random.uniform(HOUR / 4, 2 * HOUR)


async def _as_coroutine(measurement: Callable[[], Awaitable[float]]) -> float:
    return await measurement()


async def endure(resets: int = 200_000, rounds: int = 20) -> dict[str, Any]:
    """Move one deadline `resets` times while the clock really runs: it fires once, at the last one, from one entry.

    `good` if so. `timers` and `entries` are the heap's, at the end.
    """
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            fired: list[float] = []

            async def read() -> None:
                try:
                    await conn.receive_some()
                except deadlined.DeadlineExceeded:
                    fired.append(trio.current_time())

            most = 0
            async with trio.open_nursery() as nursery:
                conn.set_read_deadline(trio.current_time() + 5.0)
                nursery.start_soon(read)
                for _ in range(rounds):
                    for _number in range(resets // rounds):
                        conn.set_read_deadline(trio.current_time() + 0.5)
                    # longer than nothing, shorter than the deadline: entries come due and are filed anew
                    await trio.sleep(0.05)
                    most = max(most, _stored())
                too_soon = len(fired)
                last = conn.read_deadline
            counts = deadlined.statistics()
            assert counts is not None
            early = sum(when < last for when in fired)
            stale = counts.poller.stale
            return {
                "resets": resets,
                "fired": len(fired),
                "too_soon": too_soon + early,
                "stale": stale,
                "most_entries": most,
                "lateness": fired[-1] - last,
                "good": len(fired) == 1 and not too_soon and not early and not stale and most == 1,
            }


def _stored() -> int:
    counts = deadlined.statistics()
    return 0 if counts is None else counts.poller.timers.stored


def run(lives: tuple[int, ...], repetitions: int) -> bool:
    """Measure all, a table and a file; whether the endurance run kept its promises."""
    tables = []
    for live in lives:
        console.print(f"{live:,} live timers ...")
        measured = trio.run(measure, live, repetitions)
        figures = {name: spread(values) for name, values in measured.nanoseconds.items()}
        base = figures["set_read_deadline, later"]["median"]
        rows = [
            (
                name,
                f"{values['median']:,.0f}",
                f"{values['least']:,.0f} to {values['most']:,.0f}",
                f"{values['median'] / base:.1f}",
            )
            for name, values in figures.items()
        ]
        sockets = "" if measured.real else ", on made-up descriptors"
        title = f"Moving a deadline with {measured.live:,} live timers{sockets}"
        show(title, ("operation", "ns, median", "least to most", "ratio"), rows)
        tables.append({"live": measured.live, "real_sockets": measured.real, "nanoseconds": figures})
    endured = trio.run(endure)
    console.print(
        f"{endured['resets']:,} resets of one deadline while the clock ran: fired {endured['fired']} time, "
        f"{endured['too_soon']} too soon, {endured['stale']} stale, at most {endured['most_entries']} heap entry"
    )
    save("resets", {"repetitions": repetitions, "tables": tables, "endurance": endured})
    return bool(endured["good"])
