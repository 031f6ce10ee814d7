"""A whole check: measure with few connections, attack with many while honest clients ask, judge.

Facts      What a server does to a slow client is exact only while it has little to do. What honest clients feel is
           known only while it has much to do.
Hazard     Both at once would measure neither.
Answer     First every attack of a few connections at the same time, for `limit` seconds. Then one attack after the
           other with a crowd, for a second or two each. The attackers are a process of their own; honest requests are
           made by this one, in an open loop, each on a connection of its own.
Cost       `limit` seconds, as many again if a minimum rate must be looked at more closely, and one to three for each
           attack; more for one after which the server recovers slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from time import monotonic, sleep
from typing import Any

from ..commands import OnProgress, now
from ..crew import Child, need_descriptors, noted
from ..openloop.client import Client
from ..openloop.client import Plan as Asked
from ..servers import attempts
from ..target import ForbiddenTargetError, Target, UnusableTargetError, answered, ask, need_ports, refusal, speaks_ws
from ..wire import Answers
from . import attacker
from .attacks import ATTACKS, Attack, advice, crowded, deadlines, known, trouble, unsure
from .grade import Honest, Outcome, Report, grade, held_verdict, verdict
from .kinds import Deadline
from .scripts import DOWN, Facts, Script, Seen, closer, crowd, crowd_size, filler, fills, longest, scripts

# honest requests per second, the seconds that one may take, and the connections that they may need at once
HONEST_RATE = 50.0
HONEST_PATIENCE = 1.0
_HONEST_CONNECTIONS = 200
# seconds of honest requests beside a crowd: this part of the limit, between the two
CROWD_PART, CROWD_LEAST, CROWD_MOST = 0.05, 0.6, 2.0
# seconds to give a crowd's connections to the server before honest clients ask
_GATHERING = 0.2
# seconds that a server gets after a crowd to serve again
RECOVERY = 15.0


@dataclass(frozen=True)
class Plan:
    """What to check. `names` of attacks; `connections` of a crowd at most, 0 for none."""

    target: Target
    names: frozenset[str]
    limit: float
    connections: int


def check(plan: Plan, progress: OnProgress) -> Report:
    """Check the target. Ctrl-C and a lack of ports end it early: the report says so, and has what was measured.

    UnusableTargetError if the target does not answer honest requests, or too few of them in time;
    ForbiddenTargetError if there are too few descriptors for the plan; RuntimeError if the measuring process ends.
    """
    with Check(plan, progress) as whole:
        try:
            whole.prepare()
            collect([whole])
            whole.attack()
            return whole.report()
        except (KeyboardInterrupt, ForbiddenTargetError) as error:
            whole.interrupt(str(error))
            return whole.report()


def collect(checks: Iterable[Check]) -> None:
    """Follow the few connections of several prepared checks side by side, and then those by which some look closer.

    RuntimeError if a measuring process ends. KeyboardInterrupt comes between two messages only.
    """
    together = list(checks)
    with noted() as interrupt:
        for order in (Check.watch, Check.look_closer):
            waiting = {found: one for one in together if not interrupt.is_set() and (found := order(one)) is not None}
            while waiting and not interrupt.is_set():
                for ready in wait(list(waiting), attacker.REPORT):
                    if isinstance(ready, Connection) and waiting[ready].hear():
                        del waiting[ready]
    if interrupt.is_set():
        raise KeyboardInterrupt


def _gone(target: Target, paralysed: str) -> str:
    """Return why the server serves no more; "" if it does: the end of a server would look like a deadline."""
    if paralysed:
        return f"no honest request was answered for {RECOVERY:g} s after {paralysed}, and no crowd attacked again"
    try:
        ask(target)
    except UnusableTargetError as error:
        return str(error)
    return ""


def _shown(first: Answers, server: str) -> str:
    said = first.fields.get("server", "")
    if server == "haproxy":
        return f"HAProxy, in front of {said or 'an unknown server'}"
    status = f", answers {first.status}" if first.status >= 400 else ""
    return (said or server or "unknown") + status + ", closes each connection" * (not first.keeps_alive)


def learned(target: Target, first: Answers, names: frozenset[str], limit: float) -> Facts:
    """Ask what the attacks of these names must know. `first`: the target's answer to an honest request."""
    websocket = "websocket-silent" in names and speaks_ws(target)
    facts = Facts(target, max(first.size, 1), websocket, limit)
    if "slow-read" not in names:
        return facts
    return replace(facts, most=answered(target, filler(facts), longest(facts)))


def impossible(attack: Attack, facts: Facts) -> str:
    """Return why the attack is not possible; "" if it is."""
    if attack.needs_tls and not facts.target.tls:
        return "the URL is not https"
    if attack.name == "websocket-silent" and not facts.websocket:
        return "the URL does not speak websocket"
    if attack.name == "slow-read" and not fills(facts):
        return "the responses on one connection do not fill a server's buffers: give a URL with a larger one"
    return ""


class Check(ExitStack):
    """A check while it runs; a context manager. In this order: `prepare`, the function `collect`, `attack`, `report`.

    To make one asks the target what it is, with a few connections: UnusableTargetError if it does not answer,
    ForbiddenTargetError if there are too few descriptors. `interrupt` may come at any time.
    """

    def __init__(self, plan: Plan, progress: OnProgress) -> None:
        super().__init__()
        self._begun = monotonic()
        self._first = ask(plan.target)
        self._server = known(self._first.fields, refusal(plan.target))
        need_descriptors(max(plan.connections, _HONEST_CONNECTIONS if plan.connections else 0))
        self._facts = learned(plan.target, self._first, plan.names, plan.limit)
        self._plan = plan
        self._progress = progress
        self._calm = Honest(0, 0, None)
        self._interrupted = False
        self._paralysed = self._stopped = self._failed = ""
        self._seen: list[Seen] = []
        self._felt: dict[str, tuple[Honest, int]] = {}
        self._watching: tuple[float, float] | None = None
        self._child = self.enter_context(Child(attacker.main))

    def prepare(self) -> None:
        """Ask as honest clients do before any attack. UnusableTargetError if the server is too slow for that."""
        if self._plan.connections:
            calm = self._calm = self._honest()
            if calm.failed * 10 > (asked := calm.ok + calm.failed):
                served = f"{calm.ok} of {asked} honest requests within {HONEST_PATIENCE:g} s"
                when = f"before any attack, at {HONEST_RATE:g} a second ({self._failed})"
                raise UnusableTargetError(f"the server answers {served} {when}: it cannot be graded")

    def report(self) -> Report:
        """Judge what was measured so far."""
        outcomes = tuple(self._outcomes(self._server))
        gone = "" if self._interrupted else _gone(self._plan.target, self._paralysed)
        return Report(
            target=self._plan.target.url, server=_shown(self._first, self._server), limit=self._plan.limit, gone=gone,
            grade="-" if self._interrupted else grade(outcomes, gone=bool(gone)), outcomes=outcomes, calm=self._calm,
            seconds=monotonic() - self._begun, at=now(), interrupted=self._interrupted, stopped=self._stopped,
        )  # fmt: skip

    def _why_not(self, attack: Attack) -> str:
        if attack.enough is None and not self._plan.connections:
            return "no crowd was asked for"
        return impossible(attack, self._facts)

    def _possible(self) -> list[Attack]:
        return [attack for attack in ATTACKS if attack.name in self._plan.names and not self._why_not(attack)]

    def _honest(self) -> Honest:
        """Ask as honest clients do, each on a connection of its own, and say what they felt."""
        seconds = min(CROWD_MOST, max(CROWD_LEAST, CROWD_PART * self._plan.limit))
        asked = Asked(self._plan.target, HONEST_RATE, seconds, _HONEST_CONNECTIONS, HONEST_PATIENCE, reuse=False)
        tally = Client(asked).run(monotonic())
        if tally.interrupted:
            raise KeyboardInterrupt
        need_ports(tally.errors)
        self._failed = ", ".join(f"{number} {kind}" for kind, number in tally.errors.most_common())
        # a proper 404 is a service, too, if that is the answer in calm: what was asked for is the user's
        status = self._first.status
        ok = tally.errors[f"status {status}"] if status >= 400 else tally.ok
        p99 = tally.latency.get_value_at_percentile(99) / 1000 if ok else None
        return Honest(ok, tally.due - ok, p99)

    def watch(self) -> Connection[Any, Any]:
        """Order that all scripts of few connections are followed at once; return where its messages arrive."""
        return self._watch(scripts(self._facts, frozenset(attack.name for attack in self._possible())))

    def look_closer(self) -> Connection[Any, Any] | None:
        """Order that rates are tried between those that a minimum rate lies between, as `watch` does; None if there is
        no need."""
        found = [script for name, bounds in unsure(self._seen).items() for script in closer(self._facts, name, bounds)]
        return self._watch(found) if found else None

    def _watch(self, chosen: list[Script]) -> Connection[Any, Any]:
        self._child.connection.send(attacker.Watch(self._plan.target, chosen, self._plan.limit))
        self._watching = monotonic(), self._plan.limit + len(chosen) * attacker.SPACING
        return self._child.connection

    def hear(self) -> bool:
        """Take the next message of the measuring process; True if it was the last."""
        assert self._watching is not None
        begun, length = self._watching
        message = self._child.receive()
        if isinstance(message, int):
            self._progress(f"{message} connections are open", monotonic() - begun, length)
            return False
        self._watching = None
        self._seen += message
        need_ports(seen.trouble for seen in self._seen)
        return True

    def attack(self) -> None:
        """Let a crowd make each attack, and honest clients ask meanwhile; after a restart, when the server is back."""
        serves = self._recovered() if any(one.trouble == DOWN for one in self._seen) else True
        chosen = self._possible() if self._plan.connections and serves else []
        for number, attack in enumerate(chosen):
            self._progress(f"{self._plan.connections} connections: {attack.name}", number, len(chosen))
            self._felt[attack.name] = self._under(attack)
            if not self._recovered():
                self._paralysed = attack.name
                return
        self._progress("done", len(chosen), len(chosen))

    def _under(self, attack: Attack) -> tuple[Honest, int]:
        """Ask while a crowd makes the attack; return what was felt, and how many connections have attacked."""
        size = crowd_size(self._facts, attack.name, self._plan.connections)
        script = crowd(self._facts, attack.name)
        self._child.connection.send(attacker.Crowd(self._plan.target, script, size))
        self._child.receive()
        sleep(_GATHERING)
        felt = self._honest()
        self._child.connection.send("enough")
        opened, failures = self._child.receive()
        need_ports(failures)
        return felt, opened - failures.total()

    def _recovered(self) -> bool:
        """Wait until the server answers again: what this attack has done must not be blamed on the next."""
        for _ in attempts(RECOVERY, 0.1):
            with suppress(UnusableTargetError):
                ask(self._plan.target, HONEST_PATIENCE)
                return True
        return False

    def interrupt(self, why: str = "") -> None:
        """Take what the measuring process has seen; the report will say that it is not all, and why."""
        self._interrupted, self._stopped = True, why
        if self._watching:
            self._child.connection.send("enough")
            with suppress(ForbiddenTargetError):  # what else was seen counts
                while not self.hear():
                    continue

    def _outcomes(self, server: str) -> Iterable[Outcome]:
        found = deadlines(self._seen)
        for attack in (attack for attack in ATTACKS if attack.name in self._plan.names):
            if why := self._why_not(attack):
                yield Outcome(attack, Deadline(), "not applicable", why)
                continue
            honest, crowd = self._felt.get(attack.name, (None, 0))
            deadline = found.get(attack.name, Deadline())
            outcome = Outcome(attack, deadline, *verdict(attack, deadline, honest, self._calm, self._plan.limit))
            if attack.enough is not None and not deadline.connections and (why := trouble(self._seen, attack.name)):
                outcome = replace(outcome, verdict="fail", why=f"not measured: {why}")
            else:
                outcome = replace(outcome, advice=self._advice(server, outcome))
            yield replace(outcome, honest=honest, crowd=crowd)

    def _advice(self, server: str, outcome: Outcome) -> str:
        if outcome.verdict in ("pass", "unfinished"):
            return ""
        held, _ = held_verdict(outcome.attack, outcome.deadline, self._plan.limit)
        return (crowded if held == "pass" else advice)(server, outcome.attack)
