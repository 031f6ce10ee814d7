"""What a check found, and its JSON, whose names are fixed: programs read them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from .attacks import Attack
from .kinds import Deadline

Verdict = Literal["pass", "weak", "fail", "not applicable", "unfinished"]


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

    `gone`: how the server failed an honest request in the end; "" if it did not.
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
    gone: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        facts = {name: value for name, value in vars(self).items() if name != "outcomes"}
        attacks = [outcome.as_json() for outcome in self.outcomes]
        return {**facts, "seconds": round(self.seconds, 1), "calm": asdict(self.calm), "attacks": attacks}

    def advice(self) -> dict[str, list[str]]:
        """Return each piece of advice with the attacks that it is for."""
        found: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.advice:
                found.setdefault(outcome.advice, []).append(outcome.attack.name)
        return found


def _rounded(value: Any) -> Any:
    """Return seconds to a tenth of a millisecond, and both bounds of a rate to a tenth; anything else as it is."""
    if isinstance(value, tuple):
        return [round(rate, 1) for rate in value]
    return round(value, 4) if isinstance(value, float) else value
