"""The lateness of deadlined's `after_func` and `Ticker`, or (VARIANT "conn") of read deadlines of connections."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, closing

import trio

import deadlined
from deadlined import Conn, DeadlineExceeded

from . import lateness_report as report


async def functions(count: int, spread: float) -> list[float]:
    """Return the lateness of each function called, in seconds."""
    clock, lateness, done = trio.current_time, [], trio.Event()

    def fire(due: float) -> None:
        lateness.append(clock() - due)
        if len(lateness) == count:
            done.set()

    due = report.due_times(count, spread, clock())
    for when in due:
        # as close to `when` as a caller can get
        deadlined.after_func(when - clock(), fire, when)
    report.require_lead(due, clock())
    await done.wait()
    return lateness


async def connections(count: int, spread: float) -> list[float]:
    """Return the lateness of each read that its deadline ended. Both ends of each socket pair are measured."""
    clock = trio.current_time
    lateness: list[float] = []

    async def read(conn: Conn, when: float) -> None:
        conn.set_read_deadline(when)
        try:
            await conn.receive_some()
        except DeadlineExceeded as error:
            lateness.append(clock() - error.deadline)

    # closed at the end, because closing one end wakes the other
    with ExitStack() as stack:
        ends = [end for _ in range((count + 1) // 2) for end in socket.socketpair()]
        conns = [stack.enter_context(closing(Conn.from_socket(end))) for end in ends[:count]]
        stack.enter_context(closing(ends[-1]))
        async with trio.open_nursery() as nursery:
            due = report.due_times(count, spread, clock())
            for conn, when in zip(conns, due, strict=True):
                nursery.start_soon(read, conn, when)
            await trio.lowlevel.checkpoint()
            report.require_lead(due, clock())
    return lateness


async def ticker(period: float, seconds: float) -> dict[str, float]:
    """Measure `async for` over a Ticker."""
    ticks = deadlined.Ticker(period)
    meter = report.Meter(period, seconds, trio.current_time)
    async for _ in ticks:
        if not meter.tick():
            break
    return meter.report()


async def deadline(period: float, seconds: float) -> dict[str, float]:
    """Measure a ticker made of a read deadline that is moved after every expiry."""
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            meter = report.Meter(period, seconds, trio.current_time)
            due = trio.current_time()
            while True:
                due = meter.next(due)
                conn.set_read_deadline(due)
                try:
                    await conn.receive_some()
                except DeadlineExceeded:
                    if not meter.tick():
                        return meter.report()


def main(variant: str, what: str, first: str, second: str) -> None:
    """Run with the arguments that `lateness_report` describes; VARIANT is "func" or "conn"."""
    if what == "ticker":
        tick = deadline if variant == "conn" else ticker
        report.tell(trio.run(tick, float(first), float(second)))
        return
    timers = connections if variant == "conn" else functions
    report.measure_timers(lambda count, spread: trio.run(timers, count, spread), int(first), float(second))


if __name__ == "__main__":
    main(*sys.argv[1:])
