"""What a check found: outcomes, verdicts, grades. Pure: the same figures always get the same grade.

The rules judge two things of each attack: for how long it can hold a connection, and what honest clients feel
meanwhile. The worse of both is the verdict. The rules are text that is printed. The names of the JSON are fixed:
programs read them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .attacks import ATTACKS, Attack
from .kinds import Deadline

# the part of honest requests that must be answered within a second
PASS_OK, WEAK_OK = 0.99, 0.9
# how late the 99th percentile of honest requests may be: ms, and the multiple of what it was before the attacks
PASS_P99, PASS_TIMES = 250.0, 5.0
# an attack that is ended later than it should, but within so many times that, is weak and no failure
WEAK_TIMES = 5.0
# a deadline that is set to that time is seen a little later: seconds, and the part of it
EDGE, EDGE_PART = 0.05, 0.01

GRADES = "ABCDEF"

Verdict = Literal["pass", "weak", "fail", "not applicable", "unfinished"]
# a verdict, and why, in one sentence
Judged = tuple[Verdict, str]

TIMES = ", ".join(f"{attack.name} {attack.within:g} s" for attack in ATTACKS if attack.enough is not None)
# the rules as text, with these numbers
RULES = Path(__file__).with_name("rules.txt").read_text(encoding="utf-8").rstrip().format_map(globals())


@dataclass(frozen=True)
class Honest:
    """What honest clients felt: requests answered and failed, and the 99th percentile in ms; None of none."""

    ok: int
    failed: int
    p99_ms: float | None


@dataclass(frozen=True)
class Outcome:
    """One attack's result. `crowd`: connections that attacked while the honest clients asked; `why`: one sentence."""

    attack: Attack
    deadline: Deadline
    verdict: Verdict
    why: str
    honest: Honest | None = None
    crowd: int = 0
    advice: str = ""

    @property
    def judged(self) -> bool:
        """True if the attack applies and was measured."""
        return self.verdict in ("pass", "weak", "fail")

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        return {
            "name": self.attack.name,
            **{name: _rounded(value) for name, value in asdict(self.deadline).items()},
            "honest": asdict(self.honest or Honest(0, 0, None)),
            "verdict": self.verdict,
            "why": self.why,
            "advice": self.advice,
            "crowd": self.crowd,
        }


@dataclass(frozen=True)
class Report:
    """A whole check. `calm`: what honest clients felt before any attack; `interrupted`: it was stopped early.

    `stopped`: why the client had to stop it; "" if it was the user. `gone`: how the server failed an honest request in
    the end; "" if it did not.
    """

    target: str
    server: str
    grade: str
    limit: float
    outcomes: tuple[Outcome, ...]
    calm: Honest
    seconds: float
    at: str
    interrupted: bool = False
    stopped: str = ""
    gone: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        facts = {name: value for name, value in vars(self).items() if name != "outcomes"}
        attacks = [outcome.as_json() for outcome in self.outcomes]
        facts |= {"seconds": round(self.seconds, 1), "calm": asdict(self.calm), "undecided": self.undecided()}
        return {**facts, "attacks": attacks}

    def undecided(self) -> str:
        """Say which failures a higher limit may turn into passes, and what the grade would be then; "" if none."""
        fails = [one for one in self.outcomes if one.verdict == "fail"]
        short = [one for one in fails if undecided(one.attack, one.deadline, self.limit)]
        better = {one: felt for one in short if (felt := _felt(one.honest, self.calm)[0]) != "fail"}
        if not better or self.interrupted or self.gone:
            return ""
        needed, names = max(_needed(one.attack) for one in better), ", ".join(one.attack.name for one in better)
        best = grade(replace(one, verdict=better.get(one, one.verdict)) for one in self.outcomes)
        text = f"A --limit of {self.limit:g} s is too short for {names}: what it does not show counts as a failure"
        return f"{text}. With --limit {needed} the grade may be up to {best}."

    def advice(self) -> dict[str, list[str]]:
        """Return each piece of advice with the attacks that it is for."""
        found: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.advice:
                found.setdefault(outcome.advice, []).append(outcome.attack.name)
        return found


def verdict(attack: Attack, deadline: Deadline, honest: Honest | None, calm: Honest, limit: float) -> Judged:
    """Return the verdict on an attack, and why, in one sentence."""
    if attack.enough is None and honest is None:
        return "unfinished", "no honest client has asked yet"
    held = held_verdict(attack, deadline, limit)
    felt = _felt(honest, calm)
    order: list[Verdict] = ["unfinished", "fail", "weak", "pass"]
    return min((held, felt), key=lambda one: order.index(one[0]))


def held_verdict(attack: Attack, deadline: Deadline, limit: float) -> Judged:
    """Judge for how long the attack holds a connection, whatever honest clients feel."""
    if attack.enough is None:
        return "pass", "honest clients are served"
    seconds = deadline.seconds
    if seconds is None:
        if deadline.watched < limit * 0.99:
            return "unfinished", f"watched for {deadline.watched:.1f} s only"
        if undecided(attack, deadline, limit):
            allowed = f"{attack.within:g} s are allowed: --limit {_needed(attack)} would tell"
            return "fail", f"open after {limit:g} s, and {allowed}"
        return "fail", f"the connection was held for {limit:g} s, and would be longer"
    if deadline.kind not in attack.enough:
        never = f"not in {limit:g} s" if undecided(attack, deadline, limit) else "never"
        return "fail", f"the server ends it if it stalls, and {never} if it drips"
    if seconds <= attack.within * (1 + EDGE_PART) + EDGE:
        return "pass", f"ended after {_text(seconds)}"
    late = f"ended after {_text(seconds)}; {attack.within:g} s would do"
    return ("weak" if seconds <= WEAK_TIMES * attack.within else "fail"), late


def undecided(attack: Attack, deadline: Deadline, limit: float) -> bool:
    """Tell if a watch of `limit` seconds was too short to see an end that would have been in time."""
    held = deadline.seconds is None or deadline.kind not in (attack.enough or ())
    return limit < _needed(attack) and held and bool(deadline.connections)


def _needed(attack: Attack) -> int:
    """Return the least limit that shows if an attack passes."""
    return math.ceil(attack.within * (1 + EDGE_PART) + EDGE)


def _text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def _felt(honest: Honest | None, calm: Honest) -> Judged:
    """Judge what honest clients felt."""
    if honest is None or not honest.ok + honest.failed:
        return "pass", ""
    served = honest.ok / (honest.ok + honest.failed)
    text = f"{served:.1%} of the honest requests were answered in time"
    if served < PASS_OK:
        return ("weak" if served >= WEAK_OK else "fail"), text
    if (honest.p99_ms or 0.0) > max(PASS_P99, PASS_TIMES * (calm.p99_ms or 0.0)):
        return "weak", f"the 99th percentile of honest requests rose to {honest.p99_ms:.0f} ms"
    return "pass", text


def grade(outcomes: Iterable[Outcome], *, gone: bool = False) -> str:
    """Return the grade; "-" if an attack is unfinished, or none applies. `gone`: the server answers no more."""
    counted = [outcome for outcome in outcomes if outcome.verdict != "not applicable"]
    if gone or any(one.honest is not None and one.honest.failed > one.honest.ok for one in counted):
        return "F"
    if not counted or any(outcome.verdict == "unfinished" for outcome in counted):
        return "-"
    fails = sum(outcome.verdict == "fail" for outcome in counted)
    weak = sum(outcome.verdict == "weak" for outcome in counted)
    if fails * 2 > len(counted):
        return "F"
    if fails == 0:
        return "A" if weak == 0 else "B" if weak <= 2 else "C"
    if fails == 1 and weak <= 2:
        return "C"
    return "D" if fails * 4 <= len(counted) else "E"


def below(grade: str, least: str) -> bool:
    """Tell if a grade is worse than the least that is wanted. No grade is worse than any."""
    return grade not in GRADES or GRADES.index(grade) > GRADES.index(least)


def _rounded(value: Any) -> Any:
    """Return seconds to a tenth of a millisecond, and both bounds of a rate to a tenth; anything else as it is."""
    if isinstance(value, tuple):
        return [round(rate, 1) for rate in value]
    return round(value, 4) if isinstance(value, float) else value
