"""A run of an open loop: what is asked, in how many processes, what they found, what must hold of it (`--fail-if`), and
the highest rate at which that holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from operator import ge, gt, le, lt
from threading import Event
from time import monotonic
from typing import Any

from ..crew import LEAD, crew, need_descriptors
from ..histogram import milliseconds, together
from .client import Client, Plan, Tally

# the search ends when the highest rate that holds and the lowest that does not differ by this part
CLOSE_ENOUGH = 0.05
_TRIALS = 40
# the last response of a server that keeps up may come after the schedule, by this part of it
BY_CHANCE = 1.01
# the least and the highest rate that can be asked, per second
LEAST, MOST = 0.1, 1_000_000

# what can be asked for: percentiles in ms, a number of errors or their part, and a rate per second
PERCENTILES = ("p50", "p90", "p99", "p99.9", "p99.99", "max")
METRICS = (*PERCENTILES, "errors", "rate")

# units and what they are worth, of times and of what has others; None: it is a plain number
_TIMES: Mapping[str | None, float] = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_UNITS: Mapping[str, Mapping[str | None, float]] = {"errors": {None: 1.0, "%": 0.01}, "rate": {None: 1.0}}
_COMPARED: dict[str, Callable[[float, float], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_FORM = re.compile(r"\s*(p\d+(?:\.\d+)?|max|errors|rate)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*(us|ms|s|%)?\s*")


@dataclass(frozen=True)
class Result:
    """A run: what was planned, and what the clients have counted together. Latencies are milliseconds."""

    plan: Plan
    tally: Tally

    @property
    def rate(self) -> float:
        """The responses that were proper, per second of the schedule; of the time until the last came, without what the
        fastest took, if that is longer: a server that is slower than the rate answers the rest later."""
        tally, seconds = self.tally, self.plan.duration
        served = tally.last - tally.latency.get_value_at_percentile(0) / 1e6
        if tally.interrupted or served > seconds * BY_CHANCE:
            seconds = tally.seconds if tally.interrupted else served
        return round(tally.ok / max(seconds, 1e-9), 3)

    @property
    def latency_ms(self) -> dict[str, float | None]:
        """Percentiles of the latency, and the largest; None of nothing."""
        return milliseconds(self.tally.latency, (50, 90, 99, 99.9, 99.99))

    def figures(self) -> dict[str, float]:
        """Return what conditions compare. Without any response every latency is infinite."""
        latencies = {name: float("inf") if value is None else value for name, value in self.latency_ms.items()}
        errors = self.tally.errors.total()
        return {**latencies, "errors": errors, "error part": errors / max(self.tally.due, 1), "rate": self.rate}

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more.

        `due`: requests of the schedule; `errors`: those without a proper response; `client_late_ms_p99`: how late the
        client was to notice that one was due; `client_busy`: the part of the time in which the busiest process used a
        processor, or waited for one.
        """
        plan, tally = self.plan, self.tally
        return {
            "target": plan.target.url,
            "wanted_rate": plan.rate,
            **{name: getattr(plan, name) for name in ("duration", "connections", "ramp")},
            "processes": plan.clients,
            **{name: getattr(tally, name) for name in ("due", "sent", "ok", "interrupted")},
            "errors": tally.errors.total(),
            "error_kinds": dict(tally.errors.most_common()),
            "rate": self.rate,
            "latency_ms": self.latency_ms,
            "client_late_ms_p99": tally.late_ms,
            "client_busy": round(tally.busy, 3),
            "invalid": tally.invalid,
            "valid": not tally.invalid,
        }


@dataclass(frozen=True)
class Condition:
    """A comparison that fails a run if it is true. `limit` is in ms for percentiles, 0 to 1 for a part of errors."""

    text: str
    metric: str
    compare: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition. ValueError says what is wrong with the text."""
        found = _FORM.fullmatch(text)
        if found is None or found[1] not in METRICS:
            raise ValueError(f"{text!r} is no condition like 'p99>50ms', 'errors>0.1%' or 'rate<900'; metrics: "
                             f"{', '.join(METRICS)}")  # fmt: skip
        metric, compare, number, unit = found.groups()
        units = _UNITS.get(metric, _TIMES)
        if unit not in units:
            raise ValueError(f"{text!r}: give {metric} with {' or '.join(one or 'no unit' for one in units)}")
        return cls(text.strip(), "error part" if unit == "%" else metric, compare, float(number) * units[unit])

    def true_of(self, figures: Mapping[str, float]) -> bool:
        """Tell if a run with these figures fails."""
        return _COMPARED[self.compare](figures[self.metric], self.limit)


def main(channel: Connection[Any, Any]) -> None:
    """Be one client process: run the load that the parent sends. Any further message ends it early."""
    channel.send("begun")
    plan, start = channel.recv()
    channel.send(Client(plan).run(start, channel.poll))


def run(plan: Plan, progress: Callable[[float], object], interrupt: Event) -> Result:
    """Run the plan; `progress` is called with the seconds so far. `interrupt` ends it early, and the result says so.

    ForbiddenTargetError if there are too few descriptors.
    """
    need_descriptors(math.ceil(plan.connections / plan.clients))
    with crew(main, plan.clients) as clients:
        start = monotonic() + LEAD
        clients.order((plan.share(part), start) for part in range(plan.clients))
        tally = together(clients.collect(interrupt, lambda: progress(monotonic() - start), lambda *_: None))
    tally.interrupted |= interrupt.is_set()
    return Result(plan, tally)


def holds(result: Result, conditions: Sequence[Condition]) -> bool:
    """Tell if no condition that fails a run is true, and the server and not the client was measured, nor nothing."""
    return bool(result.tally.due) and not result.tally.invalid and not _fails(result, conditions)


def _fails(result: Result, conditions: Sequence[Condition]) -> bool:
    return any(condition.true_of(result.figures()) for condition in conditions)


def search(plan: Plan, conditions: Sequence[Condition], one: Callable[[Plan], Result]) -> list[Result]:
    """Run at rising rates, then between the highest that holds and the lowest that does not. Return all that count.

    `one` runs a plan. A run that was the client's is made again, once: a moment without a processor is no limit. The
    search ends with what it has when a run is interrupted, or no request would be due.
    """
    results: list[Result] = []
    good, bad, rate = 0.0, math.inf, plan.rate
    while len(results) < _TRIALS and (math.isinf(bad) or bad - good > CLOSE_ENOUGH * bad):
        result = one(now := replace(plan, rate=rate))
        if result.tally.invalid and not result.tally.interrupted:
            result = one(now)
        results.append(result)
        if result.tally.interrupted:
            break
        good, bad = (rate, bad) if holds(result, conditions) else (good, rate)
        rate = min(2 * good, MOST) if math.isinf(bad) else max((good + bad) / 2, LEAST)
        if rate in (good, bad) or not replace(plan, rate=rate).share(0).requests:
            break
    return results


def best(results: Sequence[Result], conditions: Sequence[Condition]) -> Result | None:
    """Return the run with the highest rate that holds; None if none does."""
    good = [result for result in results if not result.tally.interrupted and holds(result, conditions)]
    return max(good, key=lambda result: result.plan.rate, default=None)


def bounded_by_client(results: Sequence[Result], conditions: Sequence[Condition]) -> bool:
    """Tell if a search was ended by the client: the lowest rate that does not hold was too much for it, and no
    condition was true of the server."""
    bad = [result for result in results if not result.tally.interrupted and not holds(result, conditions)]
    lowest = min(bad, key=lambda result: result.plan.rate, default=None)
    return lowest is not None and bool(lowest.tally.invalid) and not _fails(lowest, conditions)
