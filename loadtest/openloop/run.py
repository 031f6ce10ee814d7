"""A run of an open loop in as many processes as it needs, and the search for the highest rate that holds."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from ..child import Child
from ..servers import raise_file_limit
from ..target import ForbiddenTargetError, Target
from .client import Client, Load, Tally
from .condition import Condition
from .result import Result, together
from .schedule import Schedule

# requests per second that one process asks with half of a processor
PER_PROCESS = 8000.0
# seconds from the order to the first request, so that all processes have begun
_LEAD = 0.3
# descriptors of a process beside its connections
_SPARE = 50
# the search ends when the highest rate that holds and the lowest that does not differ by this part
CLOSE_ENOUGH = 0.05
_TRIALS = 20


@dataclass(frozen=True)
class Plan:
    """What to ask. `processes`: 0 for as many as the rate needs. `patience`: seconds that a request may take."""

    target: Target
    rate: float
    duration: float
    connections: int
    patience: float
    ramp: bool = False
    processes: int = 0

    @property
    def clients(self) -> int:
        """The number of processes: at most one per connection, and one per processor unless told."""
        wanted = self.processes or min(os.cpu_count() or 1, math.ceil(self.rate / PER_PROCESS))
        return max(1, min(wanted, self.connections))


def main(channel: Connection[Any, Any]) -> None:
    """Be one client process: run each load that the parent sends, until it has gone."""
    while True:
        load, start = channel.recv()
        tally = Client(load).run(start, channel.poll)
        if tally.interrupted:
            channel.recv()
        channel.send(tally)


def run(plan: Plan, progress: Callable[[float], None]) -> Result:
    """Run the plan; `progress` is called with the seconds so far. Ctrl-C ends it early, and the result says so.

    ForbiddenTargetError if there are too few descriptors.
    """
    share = math.ceil(plan.connections / plan.clients)
    limit = raise_file_limit(max(share + _SPARE, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    if limit < share + _SPARE:
        raise ForbiddenTargetError(
            f"{share} connections per process need {share + _SPARE} descriptors, and the limit is {limit}: "
            "raise it (ulimit -n), or give fewer --connections"
        )
    with ExitStack() as stack:
        children = [stack.enter_context(Child(main)) for _ in range(plan.clients)]
        start = monotonic() + _LEAD
        for part, child in enumerate(children):
            connections = plan.connections // plan.clients + (part < plan.connections % plan.clients)
            schedule = Schedule(plan.rate, plan.duration, plan.ramp, part, plan.clients)
            child.connection.send((Load(plan.target, schedule, connections, plan.patience), start))
        tallies = _collect(children, start, progress)
    return together(plan.target.url, plan.rate, plan.duration, plan.connections, tallies)


def _collect(children: Sequence[Child], start: float, progress: Callable[[float], None]) -> list[Tally]:
    """Wait for all. At Ctrl-C tell those that still run to stop."""
    tallies: dict[int, Tally] = {}

    def wait() -> None:
        for number, child in enumerate(children):
            while number not in tallies:
                if child.connection.poll(0.25):
                    tallies[number] = child.receive()
                progress(monotonic() - start)

    try:
        wait()
    except KeyboardInterrupt:
        for number, child in enumerate(children):
            if number not in tallies and not child.connection.poll(0):
                child.connection.send("enough")
        wait()
    return list(tallies.values())


def holds(result: Result, conditions: Sequence[Condition]) -> bool:
    """Tell if no condition that fails a run is true, and the server and not the client was measured."""
    return not result.invalid and not any(condition.true_of(result.figures()) for condition in conditions)


def search(plan: Plan, conditions: Sequence[Condition], one: Callable[[Plan], Result]) -> list[Result]:
    """Run at rising rates, then between the highest that holds and the lowest that does not. Return all runs.

    `one` runs a plan. The search ends with what it has when a run is interrupted.
    """
    results: list[Result] = []
    good, bad, rate = 0.0, math.inf, plan.rate
    while len(results) < _TRIALS and (math.isinf(bad) or bad - good > CLOSE_ENOUGH * bad):
        result = one(replace(plan, rate=rate))
        results.append(result)
        if result.interrupted:
            break
        if holds(result, conditions):
            good = rate
        else:
            bad = rate
        if bad < 1.0:
            break
        rate = 2 * good if math.isinf(bad) else (good + bad) / 2
    return results


def best(results: Sequence[Result], conditions: Sequence[Condition]) -> Result | None:
    """Return the run with the highest rate that holds; None if none does."""
    good = [result for result in results if not result.interrupted and holds(result, conditions)]
    return max(good, key=lambda result: result.wanted, default=None)
