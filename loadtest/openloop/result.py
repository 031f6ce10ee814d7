"""What the clients of a run have counted together, and whether it says anything about the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..histogram import milliseconds
from .client import Tally

# A request that this client was late to notice says something of the client. One in a hundred may be late by so many
# ms, which a busy machine does to any process, or by this part of the server's median.
LATE_MS, LATE_PART = 20.0, 0.25
# the part of a processor that a client may use: above it the next request waits for the client
BUSY = 0.95


@dataclass(frozen=True)
class Result:
    """A run. `rate`: responses that were proper, per second of the schedule; latencies and `late_ms` in milliseconds.

    `due`: requests of the schedule; `late_ms`: the 99th percentile of how late the client was to notice one; `busy`:
    the part of a processor that the busiest process used. `invalid`: why the figures are the client's; "" if they are
    the server's.
    """

    url: str
    wanted: float
    duration: float
    processes: int
    connections: int
    due: int
    sent: int
    ok: int
    errors: dict[str, int]
    rate: float
    latency_ms: dict[str, float | None]
    late_ms: float
    busy: float
    invalid: str
    interrupted: bool

    @property
    def failed(self) -> int:
        """Requests without a proper response."""
        return sum(self.errors.values())

    def figures(self) -> dict[str, float]:
        """Return what conditions compare. Without any response every latency is infinite."""
        latencies = {name: float("inf") if value is None else value for name, value in self.latency_ms.items()}
        part = self.failed / self.due if self.due else 0.0
        return {**latencies, "errors": float(self.failed), "error part": part, "rate": self.rate}

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        return {
            "target": self.url,
            "sent": self.sent,
            "ok": self.ok,
            "errors": self.failed,
            "rate": round(self.rate, 3),
            "latency_ms": self.latency_ms,
            "wanted_rate": self.wanted,
            "duration": self.duration,
            "due": self.due,
            "error_kinds": self.errors,
            "connections": self.connections,
            "processes": self.processes,
            "client_late_ms_p99": self.late_ms,
            "client_busy": round(self.busy, 3),
            "valid": not self.invalid,
            "invalid": self.invalid,
            "interrupted": self.interrupted,
        }


def together(url: str, wanted: float, duration: float, connections: int, tallies: Sequence[Tally]) -> Result:
    """Add the counts of the processes of one run."""
    first, *others = tallies
    latency, lag = first.latency, first.lag
    errors: Counter[str] = Counter(first.errors)
    for tally in others:
        latency.add(tally.latency)
        lag.add(tally.lag)
        errors.update(tally.errors)
    interrupted = any(tally.interrupted for tally in tallies)
    seconds = max(tally.seconds for tally in tallies) if interrupted else duration
    ok = sum(tally.ok for tally in tallies)
    latencies = milliseconds(latency, (50, 90, 99, 99.9, 99.99))
    late = milliseconds(lag)["p99"] or 0.0
    busy = max(tally.cpu / tally.seconds for tally in tallies)
    return Result(
        url=url,
        wanted=wanted,
        duration=duration,
        processes=len(tallies),
        connections=connections,
        due=sum(tally.due for tally in tallies),
        sent=sum(tally.sent for tally in tallies),
        ok=ok,
        errors=dict(errors.most_common()),
        rate=ok / max(seconds, 1e-9),
        latency_ms=latencies,
        late_ms=late,
        busy=busy,
        invalid=bottleneck(late, busy, latencies["p50"] or 0.0),
        interrupted=interrupted,
    )


def bottleneck(late_ms: float, busy: float, median_ms: float) -> str:
    """Return why the figures are the client's and not the server's; "" if they are not. Pure."""
    if busy > BUSY:
        return f"a client process used {busy:.0%} of a processor: ask for less, or give more --processes"
    if late_ms > max(LATE_MS, LATE_PART * median_ms):
        return f"the client itself was late, by {late_ms:.1f} ms for one request in a hundred: it had no processor"
    return ""
