"""What a churn found: the figures, whether the server's own agree with them, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..check.kinds import Deadline
from ..histogram import milliseconds
from ..openloop.result import bottleneck
from ..target import Target
from .admin import Admin, Metrics, change
from .connection import Rules, Silent
from .tally import Tally

# connections of one client process
PER_PROCESS = 12_000
# seconds by which a client's clock and the server's list may differ: the client is busy, too
LISTED = 0.1

# a connection in the server's list
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One thing that client and server both count."""

    what: str
    client: float
    server: float
    agree: bool


@dataclass(frozen=True)
class Plan:
    """What to do. `deadline`: None to measure it, for `limit` seconds at most; `processes`: 0 for as many as needed."""

    target: Target
    connections: int
    duration: float
    profile: str = "steady"
    deadline: float | None = None
    limit: float = 90.0
    processes: int = 0
    admin: Admin | None = None
    seed: int = 1

    @property
    def clients(self) -> int:
        """The number of processes."""
        return min(self.connections, self.processes or -(-self.connections // PER_PROCESS))


@dataclass
class Audited:
    """What a server says of itself, beside what its clients know.

    `claims`: what both have counted. `compared`: idle connections that both know; `differ`: of these, a line for each
    of which they know different things. `trouble`: why the server's side is not known, "" if it is.
    """

    claims: list[Claim] = field(default_factory=list)
    compared: int = 0
    differ: list[str] = field(default_factory=list)
    trouble: str = ""


@dataclass(frozen=True)
class Result:
    """A run. `deadline` is what `check` has found, or was told; `admin` is there if the server's listener was asked."""

    plan: Plan
    server: str
    deadline: Deadline
    tally: Tally
    at: str
    admin: Audited | None = None

    @property
    def invalid(self) -> str:
        """Say why the figures are the client's; "" if they are the server's."""
        return bottleneck(self.tally)

    @property
    def problems(self) -> list[str]:
        """Say what is wrong with the server, a line for each."""
        tally = self.tally
        found = {
            f"connections were cut before their deadline, by up to {tally.early_by * 1000:.0f} ms": tally.early,
            "requests were sent before the deadline, and the connection was cut without an answer": tally.lost,
            "connections were not cut, long after their deadline": tally.overdue,
            **{f"responses of {status}": number for status, number in tally.answered.items() if status >= 400},
            **dict(tally.errors.most_common()),
        }
        lines = [f"{number} {text}" for text, number in found.items() if number]
        if admin := self.admin:
            lines += [f"{one.what}: the client says {one.client:g}, the server {one.server:g}"
                      for one in admin.claims if not one.agree]  # fmt: skip
            lines += [f"/connections: {line}" for line in admin.differ[:10]]
            lines += [f"the admin listener: {admin.trouble}"] if admin.trouble else []
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return all figures; seconds are seconds, and `_ms` are milliseconds."""
        plan, tally = self.plan, self.tally
        counts = ("interrupted", "stopped", "opened", "requests", "overdue", "announced", "closed", "reset")
        return {
            "target": plan.target.url,
            "server": self.server,
            "at": self.at,
            **{name: getattr(plan, name) for name in ("profile", "connections", "duration")},
            **{name: getattr(tally, name) for name in counts},
            "seconds": round(tally.seconds, 3),
            "deadline": {"kind": self.deadline.kind, "seconds": self.deadline.seconds, "spread": self.deadline.spread},
            "open_most": tally.most,
            "answered": {str(status): number for status, number in sorted(tally.answered.items())},
            "latency_ms": milliseconds(tally.latency),
            "cut": {"number": tally.cut.total(), "close": dict(tally.cut), "early": tally.early,
                    "early_by_ms": round(tally.early_by * 1000, 3), "lateness_ms": milliseconds(tally.lateness),
                    "clock_error_ms": milliseconds(tally.wrong)},
            "lost_requests": tally.lost,
            "raced_requests": tally.raced,
            "errors": dict(tally.errors),
            "received_bytes": tally.received,
            "client": {"processes": plan.clients, "busy": round(tally.busy, 3), "late_ms": milliseconds(tally.late)},
            "admin": self.admin and asdict(self.admin),
            "problems": self.problems,
            "valid": not self.invalid,
            "invalid": self.invalid,
        }  # fmt: skip


def claims(before: Metrics, after: Metrics, tally: Tally) -> Iterable[Claim]:
    """Compare the counts. What a deadline ended while a request was on its way was idle to the server."""
    closed = change(before, after, "deadlined_connections_closed_total")
    requests = change(before, after, "deadlined_requests_total")
    pairs = {
        "connections opened": (tally.opened, change(before, after, "deadlined_connections_accepted_total").get("")),
        "ended by the idle deadline": (tally.cut.total() + tally.lost + tally.raced, closed.get("idle_timeout")),
        "closed by the client": (tally.closed, closed.get("client_closed")),
        "reset by the client": (tally.reset + tally.overdue, closed.get("client_reset")),
        **{f"responses of {code}": (number, requests.get(str(code))) for code, number in tally.answered.items()},
    }
    for what, (client, server) in pairs.items():
        yield Claim(what, client, server or 0, client == (server or 0))
    late = milliseconds(tally.lateness)["p99"]
    if late is not None:
        low, high = _bounds(change(before, after, "deadlined_deadline_lateness_seconds_bucket"), 0.99)
        # what the server calls late has passed when the client sees it
        wrong = milliseconds(tally.wrong)["max"] or 0.0
        yield Claim("cut late by (p99, ms; the server: at most)", late, high * 1000, low * 1000 <= late + wrong)


def _bounds(buckets: Mapping[str, float], part: float) -> tuple[float, float]:
    """Return the bounds of the bucket, of a cumulative histogram, in which this part of the observations ends."""
    below, total = 0.0, max(buckets.values(), default=0.0)
    for bound, number in sorted((float(bound), number) for bound, number in buckets.items()):
        if number >= part * total:
            return below, bound
        below = bound
    return below, below


def listed(
    rows: Iterable[Row], silent: Mapping[str, Silent], asked: float, answered: float, rules: Rules
) -> tuple[int, list[str]]:
    """Compare the server's list with connections that were silent from before it was asked for until after it came.

    `asked` and `answered`: when. `silent`: what is known of each, by its address. Return how many are known to both,
    and a line for each of which the two know different things.
    """
    found, differ, deadline = 0, list[str](), rules.deadline
    tolerance = max(rules.tolerance, LISTED)
    for row in rows:
        mine = silent.get(row["peer"])
        if mine is None or mine.since >= asked:
            continue
        found += 1
        requests, since, wrong = mine
        if row["requests"] != requests:
            differ.append(f"{row['peer']} has made {requests} requests, and the server says {row['requests']}")
        elif deadline is not None and row["left"] is not None:
            least, most = since - wrong + deadline - answered - tolerance, since + deadline - asked + tolerance
            if not least <= row["left"] <= most:
                told = f"{row['left']:.3f}"
                differ.append(f"{row['peer']} has {least:.3f} to {most:.3f} s left, and the server says {told}")
    return found, differ
