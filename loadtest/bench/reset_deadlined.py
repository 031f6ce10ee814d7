"""What moving a deadline of this project costs: run by the benchmark `reset`.

    python -m loadtest.bench.reset_deadlined live|bound|inside|held|least|moved|least_moved NUMBER OPERATIONS ROUNDS

`live`: on a real connection whose run has NUMBER deadlines armed. As many of them as descriptors allow belong to
connections too, a read and a write deadline each; the rest are bare timers in the same heap. `bound`: the same with
the clock looked up once, as a program may. `inside`: with `set_read_timeout`, which reads the clock itself; `held`:
with that looked up once, and given a float, which an int must be made into. `moved`: NUMBER deadlines, all moved
earlier in turn, on descriptors that exist only in name, because nobody has so many; the function is the same. `least`
and `least_moved`: the same loops around a method that does nothing but read the clock, or nothing at all where it is
interpreted and its caller has read the clock: what cannot be avoided.
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
from deadlined.runtime import current_pump
from deadlined.timers import COMPILED, Timer

from .measured import finish, fresh_median, median, spread_times

HOUR = 3600.0
SOON = 2e-6
# real connections that live beside the measured one, at most: below every usual limit of descriptors
CONNECTIONS = 400


def _nothing(arg: object, seq: int, lateness: float) -> None:
    """What a timer calls that never fires."""


async def live(number: int, operations: int, rounds: int, way: str) -> None:
    """Later, earlier, set and cleared, with `number` deadlines armed meanwhile. Prints, and does not come back."""
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            # the measured one is one of them
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
    """Arm `number` other deadlines; the measured one lies among them."""
    now = trio.current_time()
    pump = current_pump()
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
    clock = current_pump().clock
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
    """Has the method, and does nothing in it."""

    __slots__ = ()

    def set_read_deadline(self, when: float) -> None:
        return


def _earlier() -> Callable[[int], None]:
    # a connection of its own: one whose entry is filed at an earlier time already has nothing to do
    conn = _unconnected()
    conn.set_read_deadline(trio.current_time() + 3 * HOUR)

    def loop(operations: int) -> None:
        # each a bit earlier than the one before, whatever the clock did meanwhile: nothing can be put off
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
    """All of `number` deadlines moved earlier in turn; then `sample` of them so that each is due before the next."""
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
        # a bit ahead: a time that has passed already would need no timer
        half.set_deadline(clock() + SOON)
        while not half.expired:
            poller.poll(0.0)
    due = (time.perf_counter_ns() - began) / len(sampled)
    return {"moved earlier": in_turn, "moved, due at once": due}


def _poller() -> Poller:
    """With no sockets, and the clock that a run of trio has."""
    return Poller(FakePort(), Clock(time.perf_counter, 0.0), lambda _: None)


def least_moved(number: int) -> dict[str, float]:
    """The loop of `moved` around a method that only reads the clock, as one must who tells the past from the future."""
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
    """Measure, and print."""
    if mode == "moved":
        finish(moved(number, operations))
    if mode == "least_moved":
        finish(least_moved(number))
    trio.run(live, number, operations, rounds, mode)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
