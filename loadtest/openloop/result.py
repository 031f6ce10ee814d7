"""What the clients of a run have counted together, and whether it says anything about the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..histogram import milliseconds, together
from .client import Tally

# A request that this client was late to notice says something of the client. One in a hundred may be late by so many
# ms, which a busy machine does to any process, or by this part of the server's median.
LATE_MS, LATE_PART = 20.0, 0.25
# the part of a processor that a client may use: above it the next request waits for the client
BUSY = 0.95


@dataclass(frozen=True)
class Result:
    """A run. `rate`: responses that were proper, per second of the schedule; latencies and lateness in milliseconds.

    `due`: requests of the schedule; `errors`: those without a proper response; `client_late_ms_p99`: the 99th
    percentile of how late the client was to notice one; `client_busy`: the part of a processor that the busiest process
    used. `invalid`: why the figures are the client's; "" if they are the server's.
    """

    target: str
    wanted_rate: float
    duration: float
    processes: int
    connections: int
    due: int
    sent: int
    ok: int
    errors: int
    error_kinds: dict[str, int]
    rate: float
    latency_ms: dict[str, float | None]
    client_late_ms_p99: float
    client_busy: float
    invalid: str
    interrupted: bool

    def figures(self) -> dict[str, float]:
        """Return what conditions compare. Without any response every latency is infinite."""
        latencies = {name: float("inf") if value is None else value for name, value in self.latency_ms.items()}
        part = self.errors / self.due if self.due else 0.0
        return {**latencies, "errors": float(self.errors), "error part": part, "rate": self.rate}

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        return {**asdict(self), "valid": not self.invalid}


def summary(url: str, wanted: float, duration: float, connections: int, tallies: Sequence[Tally]) -> Result:
    """Add the counts of the processes of one run."""
    total = together(tallies)
    seconds = total.seconds if total.interrupted else duration
    latencies = milliseconds(total.latency, (50, 90, 99, 99.9, 99.99))
    late = milliseconds(total.lag)["p99"] or 0.0
    return Result(
        target=url,
        wanted_rate=wanted,
        duration=duration,
        processes=len(tallies),
        connections=connections,
        due=total.due,
        sent=total.sent,
        ok=total.ok,
        errors=total.errors.total(),
        error_kinds=dict(total.errors.most_common()),
        rate=round(total.ok / max(seconds, 1e-9), 3),
        latency_ms=latencies,
        client_late_ms_p99=late,
        client_busy=round(total.busy, 3),
        invalid=bottleneck(late, total.busy, latencies["p50"] or 0.0),
        interrupted=total.interrupted,
    )


def bottleneck(late_ms: float, busy: float, median_ms: float) -> str:
    """Return why the figures are the client's and not the server's; "" if they are not. Pure."""
    if busy > BUSY:
        return f"a client process used {busy:.0%} of a processor: ask for less, or give more --processes"
    if late_ms > max(LATE_MS, LATE_PART * median_ms):
        return f"the client itself was late, by {late_ms:.1f} ms for one request in a hundred: it had no processor"
    return ""
