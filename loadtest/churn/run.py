"""A whole churn: find the deadline with a few connections, churn with many, ask the server what it says, and judge.

Facts      The deadline is exact only while the server has little to do. What a server counts is complete only when all
           connections have ended.
Answer     The deadline is measured first, as `check` does. The admin listener is asked before the first connection and
           after the last, and a few times between for its list of connections.
Cost       The deadline once more before the run, and about a second after it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from ..check import attacker
from ..check.attacks import deadlines, known
from ..check.kinds import Deadline
from ..check.scripts import Facts, scripts
from ..commands import OnProgress, now
from ..crew import LEAD, Child, crew, need_descriptors, noted
from ..histogram import milliseconds, together
from ..line import PER_ADDRESS
from ..target import ForbiddenTargetError, Target, UnusableTargetError, ask, refusal
from ..wire import Answers
from . import client
from .audit import Admin, Audit, Audited
from .connection import Rules, Silent, Tally

# connections of one client process
PER_PROCESS = 12_000
# the shortest deadline whose connections can be moved, closed and cut apart
_SHORTEST = 0.3
# bytes that are received at most
BYTES = 16 * 2**30
# seconds, beside a fifth of the deadline, by which a cut may be late before it counts as none
LATE = 2.0
# parts of the duration after which the server is asked for its connections
_ASKED = (0.3, 0.6, 0.9)


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
        return min(self.connections, self.processes or -(-self.connections // PER_PROCESS))


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
            "valid": not tally.invalid,
            "invalid": tally.invalid,
        }  # fmt: skip


def churn(plan: Plan, progress: OnProgress) -> Result:
    """Run the plan. Ctrl-C ends it early: the result says so, and has what was measured.

    UnusableTargetError if the target or its admin listener cannot be used, ForbiddenTargetError if the machine cannot
    have so many ports or descriptors.
    """
    need_descriptors(-(-plan.connections // plan.clients), "more --processes or fewer --connections")
    _need_ports(plan)
    first = ask(plan.target, proper=True)
    _need_service(plan, first)
    server = first.fields.get("server") or known(first.fields, refusal(plan.target)) or "unknown"
    deadline = _measured(plan, progress)
    if deadline.seconds is not None and deadline.seconds < _SHORTEST:
        raise UnusableTargetError(f"the server ends a silent connection after {deadline.seconds:.2f} s: too soon")
    rules = _rules(plan, deadline)
    audit = Audit(plan.admin, rules) if plan.admin else None
    if audit:
        audit.begin()
    with noted() as interrupt:
        tally = _churned(plan, rules, audit, progress, interrupt)
    tally.interrupted |= interrupt.is_set()
    try:
        if audit:
            audit.end(tally)
    except KeyboardInterrupt:
        tally.interrupted = True
    return Result(plan, server, deadline, tally, now(), audit.found if audit else None)


def _need_service(plan: Plan, first: Answers) -> None:
    if not first.keeps_alive:
        raise UnusableTargetError(f"{plan.target.url} closes each connection: there is no keep-alive to churn")
    least = plan.connections * first.size
    if least > BYTES:
        text = f"one response to each connection is {least / 2**30:.0f} GiB, and {BYTES / 2**30:g} are the limit"
        raise ForbiddenTargetError(f"{text}: give a URL with a smaller response")


def _spreads(target: Target) -> bool:
    return str(target.address[0]).startswith("127.")


def _need_ports(plan: Plan) -> None:
    with suppress(OSError):
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        low, high = map(int, text.split())
        ports = high - low + 1
        if not _spreads(plan.target) and plan.connections > ports:
            text = f"{plan.connections} connections from one address need as many ports, and this machine has {ports}"
            advice = f"give fewer --connections (against 127.0.0.1 every {PER_ADDRESS} have an address of their own)"
            raise ForbiddenTargetError(f"{text}: {advice}")


def _measured(plan: Plan, progress: OnProgress) -> Deadline:
    """Return the keep-alive deadline: the given one, or how silent connections end."""
    if plan.deadline is not None:
        return Deadline("absolute", plan.deadline)
    facts = Facts(plan.target, 1, websocket=False, limit=plan.limit)
    stalled = [script for script in scripts(facts, frozenset({"idle"})) if script.role == "stalled"]
    begun = monotonic()
    with Child(attacker.main) as child:
        child.connection.send(attacker.Watch(plan.target, stalled, plan.limit))
        while isinstance(message := child.receive(), int):
            progress("finding the deadline", monotonic() - begun, plan.limit)
    if troubles := [seen.trouble for seen in message if seen.trouble]:
        raise UnusableTargetError(f"the keep-alive deadline cannot be measured: {troubles[0]}")
    return deadlines(message).get("idle", Deadline())


def _rules(plan: Plan, deadline: Deadline) -> Rules:
    seconds = deadline.seconds
    tolerance = max(0.02, deadline.spread, 0.01 * (seconds or 0.0))
    overdue = (seconds or plan.duration + plan.limit) * 1.2 + LATE
    return Rules(plan.target, plan.profile, seconds, tolerance, overdue, _spreads(plan.target), plan.limit)


def _churned(plan: Plan, rules: Rules, audit: Audit | None, progress: OnProgress, interrupt: Event) -> Tally:
    """Let the client processes churn, and ask the server for its connections meanwhile."""
    with crew(client.main, plan.clients) as clients:
        start = monotonic() + LEAD
        order = client.Order(rules, plan.connections, start, plan.duration, BYTES // plan.clients, plan.seed)
        clients.order(replace(order, part=part, parts=plan.clients) for part in range(plan.clients))
        due = [start + part * plan.duration for part in _ASKED]
        said: dict[Child, Counter[str]] = {}

        def on_turn() -> None:
            at = sum(said.values(), Counter())
            text = f"{at['open']} open, {at['requests']} requests, {at['cut']} cut"
            progress(text, monotonic() - start, plan.duration)
            if audit and due and monotonic() > due[0]:
                due.pop(0)
                audit.ask(clients)

        def on_message(child: Child, message: Counter[str] | dict[str, Silent]) -> None:
            if isinstance(message, Counter):
                said[child] = message
            elif audit:
                audit.answer(message)

        tallies: list[Tally] = clients.collect(interrupt, on_turn, on_message)
    return together(tallies)
