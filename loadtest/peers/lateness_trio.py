"""The lateness of deadlined's `after_func` (VARIANT "func"), of its read deadlines ("conn"), of its `TimerThread`
("thread"), and of trio's `sleep_until` ("sleep")."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import ExitStack, closing

import trio

import deadlined
from deadlined import Conn, DeadlineExceeded
from deadlined.threads import TimerThread

from . import lateness_report as report


async def functions(count: int, spread: float) -> list[float]:
    """Return the lateness of each function called, in seconds."""
    clock, done = trio.current_time, trio.Event()
    # as close to `when` as a caller can get
    lateness = report.armed(
        count, spread, clock, lambda when, fire: deadlined.after_func(when - clock(), fire, when), done
    )
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


async def tasks(count: int, spread: float) -> list[float]:
    """Return the lateness of each task that sleeps, in seconds."""
    clock = trio.current_time
    lateness: list[float] = []

    async def sleep(when: float) -> None:
        await trio.sleep_until(when)
        lateness.append(clock() - when)

    async with trio.open_nursery() as nursery:
        due = report.due_times(count, spread, clock())
        for when in due:
            nursery.start_soon(sleep, when)
        await trio.lowlevel.checkpoint()
        report.require_lead(due, clock())
    return lateness


def thread(count: int, spread: float) -> list[float]:
    """Return the lateness of each call of one thread's timers, in seconds."""
    clock, done = time.monotonic, threading.Event()
    with TimerThread() as timers:
        lateness = report.armed(
            count, spread, clock, lambda when, fire: timers.after_func(when - clock(), fire, when), done
        )
        done.wait()
    return lateness


def main(variant: str, count: str, spread: str) -> None:
    """Measure one of them."""
    if variant == "thread":
        report.measure(thread, count, spread)
        return
    lateness = {"func": functions, "conn": connections, "sleep": tasks}[variant]
    report.measure(lambda count, spread: trio.run(lateness, count, spread), count, spread)


if __name__ == "__main__":
    main(*sys.argv[1:])
