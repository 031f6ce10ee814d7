"""A whole churn: find the deadline with a few connections, churn with many, ask the server what it says.

Facts      The deadline is exact only while the server has little to do. What a server counts is complete only when all
           connections have ended.
Answer     The deadline is measured first, as `check` does. The admin listener is asked before the first connection and
           after the last, and a few times between for its list of connections.
Cost       The deadline once more before the run, and about a second after it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any

from ..check import attacker
from ..check.advice import known
from ..check.attacks import deadlines
from ..check.kinds import Deadline
from ..check.scripts import Facts, scripts
from ..child import Child
from ..commands import OnProgress
from ..dial import PER_ADDRESS
from ..servers import raise_file_limit
from ..target import Baseline, ForbiddenTargetError, Target, UnusableTargetError, ask
from . import crowd
from .admin import Admin, Metrics, opened
from .connection import Rules, Silent
from .result import Compared, Result, claims, listed
from .tally import Tally, together

# connections of one client process, and descriptors beside them
PER_PROCESS = 12_000
_SPARE = 100
# seconds from the order to the first connection, so that all processes have begun
_LEAD = 0.3
# the shortest deadline whose connections can be moved, closed and cut apart
_SHORTEST = 0.3
# bytes that are received at most
BYTES = 16 * 2**30
# seconds, beside a fifth of the deadline, by which a cut may be late before it counts as none
LATE = 2.0
# parts of the duration after which the server is asked for its connections
_ASKED = (0.3, 0.6, 0.9)
# seconds by which a client's clock and the server's list may differ: the client is busy, too
_LISTED = 0.1
# seconds that a server gets to count the last connections
_COUNTING = 10.0


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


def churn(plan: Plan, progress: OnProgress) -> Result:
    """Run the plan. Ctrl-C ends it early: the result says so, and has what was measured.

    UnusableTargetError if the target or its admin listener cannot be used, ForbiddenTargetError if the machine has too
    few ports or descriptors.
    """
    _need_descriptors(plan)
    _need_ports(plan)
    baseline = ask(plan.target)
    _need_service(plan, baseline)
    run = _Run(plan, progress)
    deadline = run.measure()
    if deadline.seconds is not None and deadline.seconds < _SHORTEST:
        raise UnusableTargetError(f"the server ends a silent connection after {deadline.seconds:.2f} s: too soon")
    return run.result(baseline, deadline)


def _need_service(plan: Plan, baseline: Baseline) -> None:
    if baseline.status >= 400:
        raise UnusableTargetError(f"{plan.target.url} answers {baseline.status}: every request would be an error")
    if not baseline.keeps_alive:
        raise UnusableTargetError(f"{plan.target.url} closes each connection: there is no keep-alive to churn")
    least = plan.connections * baseline.size
    if least > BYTES:
        raise ForbiddenTargetError(
            f"one response to each connection is {least / 2**30:.0f} GiB, and {BYTES / 2**30:g} are the limit: "
            "give a URL with a smaller response"
        )


def _need_descriptors(plan: Plan) -> None:
    wanted = -(-plan.connections // plan.clients) + _SPARE
    limit = raise_file_limit(max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    if limit < wanted:
        raise ForbiddenTargetError(
            f"{plan.connections} connections of {plan.clients} processes need {wanted} descriptors in each, and the "
            f"limit is {limit}: raise it (ulimit -n), or give more --processes or fewer --connections"
        )


def _spreads(target: Target) -> bool:
    return str(target.address[0]).startswith("127.")


def _need_ports(plan: Plan) -> None:
    with suppress(OSError):
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        low, high = map(int, text.split())
        ports = high - low + 1
        if not _spreads(plan.target) and plan.connections > ports:
            raise ForbiddenTargetError(
                f"{plan.connections} connections from one address need as many ports, and this machine has {ports}: "
                f"give fewer --connections (against 127.0.0.1 every {PER_ADDRESS} have an address of their own)"
            )


class _Run:
    """A churn while it runs."""

    def __init__(self, plan: Plan, progress: OnProgress) -> None:
        self._plan = plan
        self._progress = progress
        self._listed = Compared()
        self._trouble = ""

    def measure(self) -> Deadline:
        """Return the keep-alive deadline: the given one, or how silent connections end."""
        plan = self._plan
        if plan.deadline is not None:
            return Deadline("absolute", plan.deadline)
        facts = Facts(plan.target, 1, websocket=False, limit=plan.limit)
        stalled = [script for script in scripts(facts, frozenset({"idle"})) if script.role == "stalled"]
        begun = monotonic()
        with Child(attacker.main) as child:
            child.connection.send(attacker.Watch(plan.target, stalled, plan.limit))
            while isinstance(message := child.receive(), int):
                self._progress("finding the deadline", monotonic() - begun, plan.limit)
        if troubles := [seen.trouble for seen in message if seen.trouble]:
            raise UnusableTargetError(f"the keep-alive deadline cannot be measured: {troubles[0]}")
        return deadlines(message).get("idle", Deadline())

    def result(self, baseline: Baseline, deadline: Deadline) -> Result:
        """Churn, and return what was found."""
        plan, before = self._plan, self._before()
        tally = self._churn(self._rules(deadline))
        if tally.errors[os.strerror(errno.EADDRNOTAVAIL)] and not tally.opened:
            raise ForbiddenTargetError("no free port is left on this machine: wait a minute, or connect less")
        after = self._after(before, tally)
        return Result(
            url=plan.target.url,
            server=baseline.server or known("", baseline.fields) or "unknown",
            profile=plan.profile,
            connections=plan.connections,
            duration=plan.duration,
            processes=plan.clients,
            deadline=deadline,
            tally=tally,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            claims=tuple(claims(before, after, tally)) if before is not None and after is not None else (),
            listed=self._listed if plan.admin else None,
            trouble=self._trouble,
        )

    def _rules(self, deadline: Deadline) -> Rules:
        seconds = deadline.seconds
        tolerance = max(0.02, deadline.spread, 0.01 * (seconds or 0.0))
        overdue = (seconds or self._plan.duration + self._plan.limit) * 1.2 + LATE
        return Rules(self._plan.target, self._plan.profile, seconds, tolerance, overdue, _spreads(self._plan.target))

    def _churn(self, rules: Rules) -> Tally:
        plan = self._plan
        with ExitStack() as stack:
            children = [stack.enter_context(Child(crowd.main)) for _ in range(plan.clients)]
            start = monotonic() + _LEAD
            order = crowd.Order(rules, plan.connections, start, plan.duration, BYTES // plan.clients, plan.seed)
            for part, child in enumerate(children):
                child.connection.send(replace(order, part=part, parts=plan.clients))
            with _noted() as interrupt:
                return together(self._watch(children, rules, start, interrupt))

    def _watch(self, children: Sequence[Child], rules: Rules, start: float, interrupt: Event) -> list[Tally]:
        """Wait for all, show their progress, and compare. Upon an interrupt tell those that still run to stop."""
        tallies: dict[int, Tally] = {}
        at: dict[int, crowd.Progress] = {}
        told = False
        question = _Question(children, rules)
        due = [start + part * self._plan.duration for part in _ASKED] if self._plan.admin else []
        while len(tallies) < len(children):
            for number, child in enumerate(children):
                while number not in tallies and child.connection.poll(0.05):
                    message = child.receive()
                    if isinstance(message, Tally):
                        tallies[number] = message
                    elif isinstance(message, crowd.Progress):
                        at[number] = message
                    else:
                        self._add(question.answer(message))
            self._progress(_text(list(at.values())), monotonic() - start, self._plan.duration)
            if interrupt.is_set() and not told:
                told = True
                for number, child in enumerate(children):
                    if number not in tallies:
                        child.connection.send("enough")
            if due and monotonic() > due[0] and not tallies and not told:
                due.pop(0)
                self._ask(question)
        return list(tallies.values())

    def _ask(self, question: _Question) -> None:
        assert self._plan.admin is not None
        try:
            question.ask(self._plan.admin)
        except UnusableTargetError as error:
            self._trouble = str(error)

    def _add(self, found: Compared | None) -> None:
        if found is not None:
            before = self._listed
            self._listed = Compared(before.connections + found.connections, before.differ + found.differ)

    def _before(self) -> Metrics | None:
        """Return what the server has counted before the run, once the connections before have ended there, too."""
        if self._plan.admin is None:
            return None
        until = monotonic() + _COUNTING
        while opened(metrics := self._plan.admin.metrics()) and monotonic() < until:
            sleep(0.1)
        return metrics

    def _after(self, before: Metrics | None, tally: Tally) -> Metrics | None:
        """Return what the server has counted when it agrees, or when it has had time to."""
        if self._plan.admin is None or before is None:
            return None
        until = monotonic() + _COUNTING
        try:
            while True:
                metrics = self._plan.admin.metrics()
                if all(claim.agree for claim in claims(before, metrics, tally)) or monotonic() > until:
                    return metrics
                sleep(0.2)
        except UnusableTargetError as error:
            self._trouble = str(error)
            return None


class _Question:
    """Asks the server for its idle connections, and the clients for theirs, and compares when all have answered."""

    def __init__(self, children: Sequence[Child], rules: Rules) -> None:
        self._children = children
        self._rules = rules
        self._rows: list[dict[str, Any]] = []
        self._asked = self._answered = 0.0
        self._silent: dict[str, Silent] = {}
        self._missing = 0

    def ask(self, admin: Admin) -> None:
        """Ask the server, and then the clients, unless they owe an answer."""
        if self._missing:
            return
        self._asked = monotonic()
        self._rows, _ = admin.idle()
        self._answered = monotonic()
        self._silent = {}
        self._missing = len(self._children)
        for child in self._children:
            child.connection.send("snapshot")

    def answer(self, snapshot: crowd.Snapshot) -> Compared | None:
        """Take a client's answer; compare when it is the last one."""
        self._silent |= snapshot.silent
        self._missing -= 1
        if self._missing:
            return None
        tolerance = max(self._rules.tolerance, _LISTED)
        return listed(self._rows, self._silent, self._asked, self._answered, self._rules.deadline, tolerance)


def _text(at: Sequence[crowd.Progress]) -> str:
    opened, requests, cut = (sum(getattr(one, name) for one in at) for name in ("open", "requests", "cut"))
    return f"{opened} open, {requests} requests, {cut} cut"


@contextmanager
def _noted() -> Iterator[Event]:
    """Let Ctrl-C set an event while the block runs, so that no message is torn; a second one raises as usual."""
    noted = Event()

    def note(*_: object) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
