"""The cost of moving a deadline of this project. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_deadlined deadline|timeout live|expiry NUMBER LOOPS VALUES

live: the statements of WAYS, on a real connection whose run has NUMBER deadlines armed. Up to CONNECTIONS of these
belong to connections, a read and a write deadline each; the others are bare timers in the same heap. expiry: NUMBER
deadlines, moved later before they come, and filed anew when their old times have come. They are on descriptors that do
not exist, because no machine has that many; the function is the same.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Mapping

import trio

from deadlined import Conn
from deadlined.poll import Clock, FakePort, Poller
from deadlined.runtime import current_host
from deadlined.timers import Timer

from .measured import HOUR, Expiry, Timings, finish, spread_times

# the most real connections beside the measured one: below every usual limit of descriptors
CONNECTIONS = 400

# `deadline`: the caller reads the clock; `timeout`: the method does
WAYS: Mapping[str, Mapping[str, str]] = {
    "deadline": {
        "later": "conn.set_read_deadline(trio.current_time() + 5)",
        "earlier": "seconds -= step; fresh.set_read_deadline(trio.current_time() + seconds)",
        "set and cleared": "conn.set_read_deadline(trio.current_time() + 5); conn.set_read_deadline(inf)",
    },
    "timeout": {"later": "conn.set_read_timeout(5)"},
}
# a new connection: an entry that is already filed at an earlier time would not have to move
SETUP = "seconds = 3 * HOUR; fresh = unconnected()"


def _nothing(arg: object, seq: int, lateness: float) -> None:
    """Do nothing: the callback of timers that never fire."""


async def live(way: str, number: int, timings: Timings) -> None:
    """Measure one way of moving a deadline with `number` armed, print the figures and exit."""
    near, far = socket.socketpair()
    with far:
        async with Conn.from_socket(near) as conn:
            # the measured deadline is one of `number`
            others = _others(number - 1)
            names = {"HOUR": HOUR, "conn": conn, "inf": math.inf, "step": 2.9 * HOUR / timings.loops, "trio": trio,
                     "unconnected": _unconnected}  # fmt: skip
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


def refiled(number: int) -> float:
    """Return the CPU seconds of moving `number` deadlines later and of filing them anew. RuntimeError if some were
    not."""
    # without sockets, on the clock that a trio run has
    poller = Poller(FakePort(), Clock(time.perf_counter, 0.0), lambda _: None)
    expiry = Expiry(time.perf_counter, number)
    halves = [poller.open(fd).read for fd in range(number)]
    for half, when in zip(halves, expiry.old, strict=True):
        half.set_deadline(when)
    expiry.moving()
    for half in halves:
        half.set_timeout(HOUR)
    expiry.wait()
    poller.poll(0.0)
    spent = expiry.seconds()
    if poller.timers.statistics().refiled < number:
        raise RuntimeError("not all deadlines were filed anew")
    return spent


def main(way: str, kind: str, number: str, loops: str, values: str) -> None:
    """Measure, print the figures and exit."""
    timings = Timings(int(loops), int(values))
    if kind == "live":
        trio.run(live, way, int(number), timings)
    timings.past_expiry(refiled, int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
