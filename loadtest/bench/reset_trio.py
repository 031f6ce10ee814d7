"""The cost of trio's own timeouts. Run by the benchmark `reset`.

    python -m loadtest.bench.reset_trio scope|moved_scope|moved NUMBER OPERATIONS ROUNDS

`scope`: entered and left. `moved_scope`: one scope's deadline is moved. Both with NUMBER scopes entered meanwhile.
`moved`: NUMBER scopes, whose deadlines are moved earlier in turn. In one task that many scopes must be nested, so none
of them may come due.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import trio

from .measured import finish, median, spread_times

HOUR = 3600.0


async def measure(mode: str, *sizes: int) -> None:
    """Measure, print the figures and exit, because leaving a million scopes takes long.

    `sizes`: the numbers of scopes, operations and rounds.
    """
    number, operations, rounds = sizes
    now = trio.current_time()
    # the measured scope is one of `number`
    entered = number if mode == "moved" else number - 1
    scopes = [trio.CancelScope(deadline=now + offset) for offset in spread_times(entered, HOUR, 2 * HOUR)]
    for scope in scopes:
        scope.__enter__()
    if mode == "scope":
        cost = median(_scope, operations, rounds)
        finish({"later": cost, "set and cleared": cost})
    if mode == "moved":
        finish({"moved earlier": await _moved(scopes)})
    with trio.CancelScope() as scope:  # noqa: ASYNC100, the scope itself is measured
        finish(
            {
                "later": median(_later(scope), operations, rounds),
                "earlier": median(_earlier(scope), operations, rounds),
                "set and cleared": median(_cleared(scope), operations, rounds),
            }
        )


def _scope(operations: int) -> None:
    for _ in range(operations):
        with trio.move_on_after(5):  # noqa: ASYNC100, the scope itself is measured
            pass


def _later(scope: trio.CancelScope) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            scope.deadline = trio.current_time() + 5

    return loop


def _earlier(scope: trio.CancelScope) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        timeout, step = 3 * HOUR, 2.9 * HOUR / operations
        for _ in range(operations):
            timeout -= step
            scope.deadline = trio.current_time() + timeout

    return loop


def _cleared(scope: trio.CancelScope) -> Callable[[int], None]:
    def loop(operations: int) -> None:
        for _ in range(operations):
            scope.deadline = trio.current_time() + 5
            scope.deadline = math.inf

    return loop


async def _moved(scopes: list[trio.CancelScope]) -> float:
    offsets = spread_times(len(scopes), HOUR / 4, HOUR / 2)
    began = time.perf_counter_ns()
    for scope, offset in zip(scopes, offsets, strict=True):
        scope.deadline = trio.current_time() + offset
    await trio.lowlevel.checkpoint()
    return (time.perf_counter_ns() - began) / len(scopes)


if __name__ == "__main__":
    trio.run(measure, sys.argv[1], *map(int, sys.argv[2:]))
