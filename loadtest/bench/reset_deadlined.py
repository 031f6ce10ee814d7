"""The cost of moving a deadline of this project. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_deadlined live|bound|inside|held|least|moved|least_moved|expiry NUMBER LOOPS VALUES

The first five are the statements of WAYS, on a real connection whose run has NUMBER deadlines armed. Up to CONNECTIONS
of these belong to connections, a read and a write deadline each; the others are bare timers in the same heap. `moved`:
NUMBER deadlines, all moved earlier in turn, and LOOPS of them then so that each is due. `expiry`: NUMBER deadlines,
moved later before they come, and filed anew when their old times have come. Both are on descriptors that do not exist,
because no machine has that many; the function is the same. `least_moved` is a bound: the loop of `moved` around a
method that only reads the clock.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Mapping, Sequence

import trio

from deadlined import Conn
from deadlined.poll import Clock, FakePort, Half, Poller
from deadlined.runtime import current_host
from deadlined.timers import COMPILED, Timer

from .measured import HOUR, SOON, Expiry, Timings, finish, repeated, spread_times

# the most real connections beside the measured one: below every usual limit of descriptors
CONNECTIONS = 400

# `bound`: the clock is looked up once. `inside`: it is read by the method; `held`: which is looked up once and called
# with a float, which saves the conversion of an int. `least`: a bound, a method that only reads the clock, or,
# interpreted, one that does nothing after its caller has read the clock.
WAYS: Mapping[str, Mapping[str, str]] = {
    "live": {
        "later": "conn.set_read_deadline(trio.current_time() + 5)",
        "earlier": "seconds -= step; fresh.set_read_deadline(trio.current_time() + seconds)",
        "set and cleared": "conn.set_read_deadline(trio.current_time() + 5); conn.set_read_deadline(inf)",
    },
    "bound": {"later": "conn.set_read_deadline(now() + 5)"},
    "inside": {"later": "conn.set_read_timeout(5)"},
    "held": {"later": "set_read_timeout(5.0)"},
    "least": {"later": "clock.now()" if COMPILED else "idle.set_read_deadline(now() + 5)"},
}
# a new connection: an entry that is already filed at an earlier time would not have to move
SETUP = "seconds = 3 * HOUR; fresh = unconnected()"


class Idle:
    """An object whose method does nothing."""

    __slots__ = ()

    def set_read_deadline(self, when: float) -> None:
        return


def _nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the callback of timers that never fire."""


async def live(way: str, number: int, loops: int, values: int) -> None:
    """Measure one way of moving a deadline with `number` armed, print the figures and exit."""
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            # the measured deadline is one of `number`
            others = _others(number - 1)
            names = {
                "HOUR": HOUR, "clock": current_host().clock, "conn": conn, "idle": Idle(), "inf": math.inf,
                "now": trio.lowlevel.current_clock().current_time, "set_read_timeout": conn.set_read_timeout,
                "step": 2.9 * HOUR / loops, "trio": trio, "unconnected": _unconnected,
            }  # fmt: skip
            timings = Timings(loops, values)
            for name, statement in WAYS[way].items():
                timings.statement(name, statement, names, SETUP)
            finish({**timings.figures, "connections": 1.0 + len(others)})


def _others(number: int) -> list[Conn]:
    """Arm `number` other deadlines, at times around the measured one."""
    now = trio.current_time()
    host = current_host()
    conns: list[Conn] = []
    times = spread_times(number, HOUR / 4, 2 * HOUR)
    while len(times) >= 2 and len(conns) < CONNECTIONS:
        conn = _unconnected()
        conn.set_read_deadline(now + times.pop())
        conn.set_write_deadline(now + times.pop())
        conns.append(conn)
    for offset in times:
        host.set_timer(Timer(_nothing), now + offset)
    return conns


def _unconnected() -> Conn:
    return Conn.from_socket(socket.socket(socket.AF_UNIX))


def _poller() -> Poller:
    """Make a poller without sockets, on the clock that a trio run has."""
    return Poller(FakePort(), Clock(time.perf_counter, 0.0), lambda _: None)


def _armed(poller: Poller, times: Sequence[float]) -> list[Half]:
    """Return halves with deadlines at these times."""
    halves = [poller.open(fd).read for fd in range(len(times))]
    for half, when in zip(halves, times, strict=True):
        half.set_deadline(when)
    return halves


def _far(number: int) -> list[float]:
    now = time.perf_counter()
    return [now + offset for offset in spread_times(number, HOUR, 2 * HOUR)]


def moved(number: int) -> float:
    """Return the seconds in which `number` deadlines are moved earlier in turn."""
    clock, poller, earlier = time.perf_counter, _poller(), spread_times(number, HOUR / 4, HOUR / 2)
    halves = _armed(poller, _far(number))
    began = clock()
    for half, offset in zip(halves, earlier, strict=True):
        half.set_deadline(clock() + offset)
    poller.poll(0.0)
    return clock() - began


def least_moved(number: int) -> float:
    """Return the seconds of the loop of `moved` around a method that only reads the clock, which every move must do."""
    clock, method, earlier = time.perf_counter, _poller().clock.now, spread_times(number, HOUR / 4, HOUR / 2)
    halves = [object() for _ in range(number)]
    began = clock()
    for _, offset in zip(halves, earlier, strict=True):
        clock() + offset
        method()
    return clock() - began


def due_at_once(number: int, sample: int) -> float:
    """Return the seconds in which `sample` of `number` deadlines come, each moved so that it is due before the next."""
    clock, poller = time.perf_counter, _poller()
    halves = _armed(poller, _far(number))
    began = clock()
    for half in halves[:sample]:
        half.set_deadline(clock() + SOON)
        while not half.expired:
            poller.poll(0.0)
    return clock() - began


def refiled(number: int) -> float:
    """Return the CPU seconds of moving `number` deadlines later and of filing them anew. RuntimeError if some were
    not."""
    poller, expiry = _poller(), Expiry(time.perf_counter, number)
    halves = _armed(poller, expiry.old)
    expiry.moving()
    for half in halves:
        half.set_timeout(HOUR)
    expiry.wait()
    poller.poll(0.0)
    spent = expiry.seconds()
    if poller.timers.statistics().refiled < number:
        raise RuntimeError("not all deadlines were filed anew")
    return spent


def main(mode: str, number: int, loops: int, values: int) -> None:
    """Measure, print the figures and exit."""
    if mode in WAYS:
        trio.run(live, mode, number, loops, values)
    timings = Timings(1, values, warmups=0)
    if mode == "moved":
        timings.function("moved earlier", repeated(moved, number), number)
        timings.function("moved, due at once", repeated(due_at_once, number, loops), loops)
    elif mode == "expiry":
        timings.function("moved and filed anew", repeated(refiled, number), number)
    else:
        timings.function("moved earlier", repeated(least_moved, number), number)
    finish(timings.figures)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
