"""A run of an open loop in as many processes as it needs, and the search for the highest rate that holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from ..crew import LEAD, crew, need_descriptors
from ..histogram import together
from .client import Client
from .condition import Condition
from .result import Plan, Result

# the search ends when the highest rate that holds and the lowest that does not differ by this part
CLOSE_ENOUGH = 0.05
_TRIALS = 40
# the least and the highest rate that can be asked, per second
LEAST, MOST = 0.1, 1_000_000


def main(channel: Connection[Any, Any]) -> None:
    """Be one client process: run the load that the parent sends. Any further message ends it early."""
    load, start = channel.recv()
    channel.send(Client(load).run(start, channel.poll))


def run(plan: Plan, progress: Callable[[float], object]) -> Result:
    """Run the plan; `progress` is called with the seconds so far. Ctrl-C ends it early, and the result says so.

    ForbiddenTargetError if there are too few descriptors.
    """
    need_descriptors(math.ceil(plan.connections / plan.clients))
    with crew(main, plan.clients) as clients:
        start = monotonic() + LEAD
        clients.order((plan.share(part), start) for part in range(plan.clients))
        tallies = clients.collect(lambda: progress(monotonic() - start), lambda *_: None)
    return Result(plan, together(tallies))


def holds(result: Result, conditions: Sequence[Condition]) -> bool:
    """Tell if no condition that fails a run is true, and the server and not the client was measured, nor nothing."""
    figures, measured = result.figures(), result.tally.due and not result.invalid
    return bool(measured) and not any(condition.true_of(figures) for condition in conditions)


def search(plan: Plan, conditions: Sequence[Condition], one: Callable[[Plan], Result]) -> list[Result]:
    """Run at rising rates, then between the highest that holds and the lowest that does not. Return all runs.

    `one` runs a plan. The search ends with what it has when a run is interrupted.
    """
    results: list[Result] = []
    good, bad, rate = 0.0, math.inf, plan.rate
    while len(results) < _TRIALS and (math.isinf(bad) or bad - good > CLOSE_ENOUGH * bad):
        result = one(replace(plan, rate=rate))
        results.append(result)
        if result.tally.interrupted:
            break
        if holds(result, conditions):
            good = rate
        else:
            bad = rate
        rate = min(2 * good, MOST) if math.isinf(bad) else max((good + bad) / 2, LEAST)
        if rate in (good, bad):
            break
    return results


def best(results: Sequence[Result], conditions: Sequence[Condition]) -> Result | None:
    """Return the run with the highest rate that holds; None if none does."""
    good = [result for result in results if not result.tally.interrupted and holds(result, conditions)]
    return max(good, key=lambda result: result.plan.rate, default=None)
