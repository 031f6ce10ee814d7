"""The cost of moving a deadline of this project. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_deadlined live|bound|inside|held|least|moved|least_moved NUMBER OPERATIONS ROUNDS

`live`: on a real connection whose run has NUMBER deadlines armed. Up to CONNECTIONS of these belong to connections, a
read and a write deadline each; the others are bare timers in the same heap. `bound`: the same with the clock looked up
once. `inside`: by `set_read_timeout`, which reads the clock itself; `held`: by that method looked up once and called
with a float, which saves the conversion of an int. `moved`: NUMBER deadlines, all moved earlier in turn, on descriptors
that do not exist, because no machine has that many; the function is the same. `least` and `least_moved` are bounds: the
same loops around a method that only reads the clock, or, interpreted, around one that does nothing after its caller has
read the clock.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Callable

import trio

from deadlined import Conn
from deadlined.poll import Clock, FakePort, Poller
from deadlined.runtime import current_host
from deadlined.timers import COMPILED, Timer

from .measured import finish, fresh_median, median, spread_times

HOUR = 3600.0
SOON = 2e-6
# the most real connections beside the measured one: below every usual limit of descriptors
CONNECTIONS = 400


def _nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the callback of timers that never fire."""


async def live(number: int, operations: int, rounds: int, way: str) -> None:
    """Measure one way of moving a deadline with `number` armed, print the figures and exit."""
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            # the measured deadline is one of `number`
            others = _others(number - 1)
            connections = {"connections": 1.0 + len(others)}
            if way == "least":
                finish({"later": median(_least(), operations, rounds), **connections})
            if way == "inside":
                finish({"later": median(_later_inside(conn), operations, rounds), **connections})
            if way == "held":
                finish({"later": median(_later_held(conn), operations, rounds), **connections})
            if way == "bound":
                clock = trio.lowlevel.current_clock().current_time
                finish({"later": median(_later_bound(conn, clock), operations, rounds), **connections})
            finish(
                {
                    "later": median(_later(conn), operations, rounds),
                    "earlier": fresh_median(_earlier, operations, rounds),
                    "set and cleared": median(_cleared(conn), operations, rounds),
                    **connections,
                }
            )


def _others(number: int) -> list[Conn]:
    """Arm `number` other deadlines, at times around the measured one."""
    now = trio.current_time()
    pump = current_host()
    conns: list[Conn] = []
    times = spread_times(number, HOUR / 4, 2 * HOUR)
    while len(times) >= 2 and len(conns) < CONNECTIONS:
        conn = _unconnected()
        conn.set_read_deadline(now + times.pop())
        conn.set_write_deadline(now + times.pop())
        conns.append(conn)
    for offset in times:
        pump.set_timer(Timer(_nothing), now + offset)
    return conns


def _unconnected() -> Conn:
    return Conn.from_socket(socket.socket(socket.AF_UNIX))


def _later(conn: Conn) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            conn.set_read_deadline(trio.current_time() + 5)

    return loop


def _later_bound(conn: Conn, clock: Callable[[], float]) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            conn.set_read_deadline(clock() + 5)

    return loop


def _later_inside(conn: Conn) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            conn.set_read_timeout(5)

    return loop


def _later_held(conn: Conn) -> Callable[[int], None]:
    set_read_timeout = conn.set_read_timeout

    def loop(operations: int) -> None:
        for _ in range(operations):
            set_read_timeout(5.0)

    return loop


def _least() -> Callable[[int], None]:
    clock = current_host().clock
    idle = _Idle()
    read = trio.lowlevel.current_clock().current_time

    def compiled(operations: int) -> None:
        for _ in range(operations):
            clock.now()

    def interpreted(operations: int) -> None:
        for _ in range(operations):
            idle.set_read_deadline(read() + 5)

    return compiled if COMPILED else interpreted


class _Idle:
    """An object whose method does nothing."""

    __slots__ = ()

    def set_read_deadline(self, when: float) -> None:
        return


def _earlier() -> Callable[[int], None]:
    # a new connection: an entry that is already filed at an earlier time would not have to move
    conn = _unconnected()
    conn.set_read_deadline(trio.current_time() + 3 * HOUR)

    def loop(operations: int) -> None:
        # each a bit earlier than the one before, however the clock advances: no move can be deferred
        timeout, step = 3 * HOUR, 2.9 * HOUR / operations
        for _ in range(operations):
            timeout -= step
            conn.set_read_deadline(trio.current_time() + timeout)

    return loop


def _cleared(conn: Conn) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            conn.set_read_deadline(trio.current_time() + 5)
            conn.set_read_deadline(math.inf)

    return loop


def moved(number: int, sample: int) -> dict[str, float]:
    """Move `number` deadlines earlier in turn, then `sample` of them so that each is due before the next."""
    clock = time.perf_counter
    poller = _poller()
    now = clock()
    halves = [poller.open(fd).read for fd in range(number)]
    for half, offset in zip(halves, spread_times(number, HOUR, 2 * HOUR), strict=True):
        half.set_deadline(now + offset)
    earlier = spread_times(number, HOUR / 4, HOUR / 2)
    began = time.perf_counter_ns()
    for half, offset in zip(halves, earlier, strict=True):
        half.set_deadline(clock() + offset)
    poller.poll(0.0)
    in_turn = (time.perf_counter_ns() - began) / number
    sampled = halves[:sample]
    began = time.perf_counter_ns()
    for half in sampled:
        # a bit ahead, because a time that has passed needs no timer
        half.set_deadline(clock() + SOON)
        while not half.expired:
            poller.poll(0.0)
    due = (time.perf_counter_ns() - began) / len(sampled)
    return {"moved earlier": in_turn, "moved, due at once": due}


def _poller() -> Poller:
    """Make a poller without sockets, on the clock that a trio run has."""
    return Poller(FakePort(), Clock(time.perf_counter, 0.0), lambda _: None)


def least_moved(number: int) -> dict[str, float]:
    """Run the loop of `moved` around a method that only reads the clock, which every move must do."""
    clock = time.perf_counter
    method = _poller().clock.now
    halves = [object() for _ in range(number)]
    earlier = spread_times(number, HOUR / 4, HOUR / 2)
    began = time.perf_counter_ns()
    for _, offset in zip(halves, earlier, strict=True):
        clock() + offset
        method()
    return {"moved earlier": (time.perf_counter_ns() - began) / number}


def main(mode: str, number: int, operations: int, rounds: int) -> None:
    """Measure, print the figures and exit."""
    if mode == "moved":
        finish(moved(number, operations))
    if mode == "least_moved":
        finish(least_moved(number))
    trio.run(live, number, operations, rounds, mode)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
