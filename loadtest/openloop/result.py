"""What a run was to do, what its clients have counted together, and whether it says anything about the server."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from .. import histogram
from ..crew import NO_PORTS, lacks_ports
from ..histogram import milliseconds
from ..target import Target
from .client import Load, Tally
from .schedule import Schedule

# requests per second that one process asks with half of a processor
PER_PROCESS = 8000.0

# A request that this client was late to notice says something of the client. One in a hundred may be late by so many
# ms, which a busy machine does to any process, or by this part of the server's median.
LATE_MS, LATE_PART = 20.0, 0.25
# the part of the time that a client may use a processor or wait for one: above it the next request waits for the client
BUSY = 0.95


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
        wanted = self.processes or min(len(os.sched_getaffinity(0)), math.ceil(self.rate / PER_PROCESS))
        return max(1, min(wanted, self.connections))

    def share(self, part: int) -> Load:
        """Return what the process of this number does."""
        schedule = Schedule(self.rate, self.duration, self.ramp, part, self.clients)
        connections = self.connections // self.clients + (part < self.connections % self.clients)
        return Load(self.target, schedule, connections, self.patience)


@dataclass(frozen=True)
class Result:
    """A run: what was planned, and what the clients have counted together. Latencies are milliseconds."""

    plan: Plan
    tally: Tally

    @property
    def rate(self) -> float:
        """The responses that were proper, per second of the schedule."""
        seconds = self.tally.seconds if self.tally.interrupted else self.plan.duration
        return round(self.tally.ok / max(seconds, 1e-9), 3)

    @property
    def latency_ms(self) -> dict[str, float | None]:
        """Percentiles of the latency, and the largest; None of nothing."""
        return milliseconds(self.tally.latency, (50, 90, 99, 99.9, 99.99))

    @property
    def invalid(self) -> str:
        """Say why the figures are the client's; "" if they are the server's."""
        return bottleneck(self.tally)

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
            **{name: getattr(plan, name) for name in ("duration", "connections")},
            "processes": plan.clients,
            **{name: getattr(tally, name) for name in ("due", "sent", "ok", "interrupted")},
            "errors": tally.errors.total(),
            "error_kinds": dict(tally.errors.most_common()),
            "rate": self.rate,
            "latency_ms": self.latency_ms,
            "client_late_ms_p99": tally.late_ms,
            "client_busy": round(tally.busy, 3),
            "invalid": self.invalid,
            "valid": not self.invalid,
        }


def bottleneck(tally: histogram.Tally) -> str:
    """Return why the figures are the client's and not the server's; "" if they are not. Pure."""
    if lacks_ports(tally.errors):
        return NO_PORTS
    if tally.busy > BUSY:
        busy = f"a client process had work for {tally.busy:.0%} of the time"
        return f"{busy}: ask for less, or give more --processes or processors"
    if tally.late_ms > max(LATE_MS, LATE_PART * (milliseconds(tally.latency)["p50"] or 0.0)):
        late = f"the client itself was late, by {tally.late_ms:.1f} ms"
        return f"{late} for one request in a hundred: it had no processor"
    return ""
