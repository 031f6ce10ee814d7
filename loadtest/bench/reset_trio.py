"""The cost of moving a deadline of this project, and of trio's own timeouts. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_trio WAY live|expiry NUMBER LOOPS VALUES

live: the statements of the way (reset.toml), with NUMBER deadlines armed. The measured one of this project is that of a
real connection; the others are bare timers in the same heap. trio's are of scopes that are entered.

expiry: NUMBER deadlines, moved later before they come, and past their old times. Those of this project are on
descriptors that do not exist, because no machine has that many; the function is the same. Scopes of one task are
nested, so none of them may come due.
"""

from __future__ import annotations

import math
import socket
import sys
import time
import timeit
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import trio

from deadlined import Conn
from deadlined.poll import Clock, FakePort, Poller
from deadlined.runtime import current_host
from deadlined.timers import Timer

from .measured import HOUR, Expiry, Timings, finish, nothing, spread_times


async def live(way: str, number: int, timings: Timings) -> None:
    """Measure one way with `number` deadlines armed, of which the measured one is one; print the figures and exit."""
    now = trio.current_time()
    others = [now + offset for offset in spread_times(number - 1, HOUR / 4, 2 * HOUR)]
    names: dict[str, Any] = {"HOUR": HOUR, "inf": math.inf, "step": 2.9 * HOUR / timings.loops, "trio": trio}
    with ExitStack() as stack:
        if "scope" in way:
            _scopes(stack, others)
            names["scope"] = stack.enter_context(trio.CancelScope())
            setup = "seconds = 3 * HOUR; fresh = scope"
        else:
            near, far = socket.socketpair()
            stack.enter_context(far)
            names |= {"conn": Conn.from_socket(near), "Conn": Conn, "socket": socket}
            for when in others:
                current_host().set_timer(Timer(nothing), when)
            # a new connection: an entry that is already filed at an earlier time would not have to move
            setup = "seconds = 3 * HOUR; fresh = Conn.from_socket(socket.socket(socket.AF_UNIX))"
        timings.time_statements("trio", way, lambda statement: timeit.Timer(statement, setup, globals=names).timeit)
        # leaving a million scopes takes long
        finish(timings.figures)


def _scopes(stack: ExitStack, times: Sequence[float]) -> list[trio.CancelScope]:
    return [stack.enter_context(trio.CancelScope(deadline=when)) for when in times]


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


async def expired(number: int) -> float:
    """Return the CPU seconds of moving `number` scopes later, and of a turn of the loop past their old times."""
    expiry = Expiry(trio.current_time, number)
    with ExitStack() as stack:
        scopes = _scopes(stack, expiry.old)
        expiry.moving()
        for scope in scopes:
            scope.deadline = trio.current_time() + HOUR
        expiry.wait()
        await trio.lowlevel.checkpoint()
        return expiry.seconds()


def main(way: str, kind: str, number: str, loops: str, values: str) -> None:
    timings = Timings(int(loops), int(values))
    if kind == "live":
        trio.run(live, way, int(number), timings)
    timings.past_expiry(refiled if way == "deadline" else lambda count: trio.run(expired, count), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
