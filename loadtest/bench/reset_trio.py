"""The cost of trio's own timeouts. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_trio scope|moved_scope live|expiry NUMBER LOOPS VALUES

`scope`: entered and left; `moved_scope`: one scope's deadline is moved; both with NUMBER scopes entered meanwhile.
expiry: NUMBER scopes are moved later, and past their old times. In one task that many scopes must be nested, so none of
them may come due.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import trio

from .measured import HOUR, Expiry, Timings, finish, spread_times

WAYS: Mapping[str, Mapping[str, str]] = {
    "scope": {"later": "with trio.move_on_after(5): pass"},
    "moved_scope": {
        "later": "scope.deadline = trio.current_time() + 5",
        "earlier": "seconds -= step; scope.deadline = trio.current_time() + seconds",
        "set and cleared": "scope.deadline = trio.current_time() + 5; scope.deadline = inf",
    },
}


@contextmanager
def entered(times: Sequence[float]) -> Iterator[list[trio.CancelScope]]:
    """Enter a scope for each deadline."""
    scopes = [trio.CancelScope(deadline=when) for when in times]
    for scope in scopes:
        scope.__enter__()
    try:
        yield scopes
    finally:
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)


async def live(way: str, number: int, timings: Timings) -> None:
    """Measure one way, print the figures and exit, because leaving a million scopes takes long."""
    # the measured scope is one of `number`
    far = [trio.current_time() + offset for offset in spread_times(number - 1, HOUR, 2 * HOUR)]
    with entered(far), trio.CancelScope() as scope:  # noqa: ASYNC100, the scope itself is measured
        names = {"HOUR": HOUR, "inf": math.inf, "scope": scope, "step": 2.9 * HOUR / timings.loops, "trio": trio}
        for name, statement in WAYS[way].items():
            timings.statement(name, statement, names, "seconds = 3 * HOUR")
        if way == "scope":
            timings.figures["set and cleared"] = timings.figures["later"]
        finish(timings.figures)


async def expired(number: int) -> float:
    """Return the CPU seconds of moving `number` deadlines later, and of a turn of the loop past their old times."""
    expiry = Expiry(trio.current_time, number)
    with entered(expiry.old) as scopes:
        expiry.moving()
        for scope in scopes:
            scope.deadline = trio.current_time() + HOUR
        expiry.wait()
        await trio.lowlevel.checkpoint()
        return expiry.seconds()


def main(way: str, kind: str, number: str, loops: str, values: str) -> None:
    """Measure, print the figures and exit."""
    timings = Timings(int(loops), int(values))
    if kind == "live":
        trio.run(live, way, int(number), timings)
    timings.past_expiry(lambda count: trio.run(expired, count), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
