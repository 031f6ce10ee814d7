"""What a check found, and its JSON, whose names are fixed: programs read them."""

from __future__ import annotations

from dataclasses import dataclass
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

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names."""
        return {"ok": self.ok, "failed": self.failed, "p99_ms": self.p99_ms}


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

    def as_json(self) -> dict[str, Any]:
        """Return the fixed names, and more."""
        found = self.deadline
        return {
            "name": self.attack.name,
            "kind": found.kind,
            "seconds": _rounded(found.seconds),
            "close": found.close,
            "status": found.status,
            "honest": (self.honest or Honest(0, 0, None)).as_json(),
            "verdict": self.verdict,
            "why": self.why,
            "advice": self.advice,
            "spread": _rounded(found.spread),
            "clock_error": _rounded(found.error),
            "connections": found.connections,
            "watched": _rounded(found.watched),
            "min_rate": [round(rate, 1) for rate in found.rate] if found.rate else None,
            "idle_seconds": _rounded(found.idle),
            "bytes": found.bytes,
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
        return {
            "target": self.target,
            "server": self.server,
            "grade": self.grade,
            "limit": self.limit,
            "interrupted": self.interrupted,
            "gone": self.gone,
            "at": self.at,
            "seconds": round(self.seconds, 1),
            "calm": self.calm.as_json(),
            "attacks": [outcome.as_json() for outcome in self.outcomes],
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
