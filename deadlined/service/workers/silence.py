"""How long a worker process has not answered: a decision about times, which asks and kills nobody.

Facts      A process can be stopped and go on later: by SIGSTOP, a debugger, a quota of processor time, a machine that
           is suspended. What it finds then is late, and answers that have come meanwhile may not have been received.
Hazard     A supervisor that was stopped for longer than the limit kills processes that have answered, or that were
           stopped as well. One that counts unanswered questions alone kills after a few that were asked in a hurry.
Answer     Time counts while the supervisor asks as often as it means to: a gap of more than LATEST periods between two
           rounds of questions counts as nothing. A process hangs if it has answered none of QUESTIONS questions at
           least, and time that counts has reached the limit since the first of them.
Cost       A supervisor on a machine that is too busy for it kills later, or not at all.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# unanswered questions before a process counts as one that hangs
QUESTIONS: Final = 4

# seconds between two rounds of questions, at least and at most
SHORTEST: Final = 0.05
LONGEST: Final = 1.0

# periods between two rounds beyond which the supervisor was stopped, or is short of processor time
LATEST: Final = 2.0


class Verdict(Enum):
    """What a supervisor knows of a worker process."""

    ANSWERS = "it has answered, or was not asked in time that counts"
    SILENT = "it has not answered for a period: others should accept in its place"
    HANGS = "it has not answered for the limit: it should be killed"


def period_of(limit: float) -> float:
    """Return the seconds between two rounds of questions for a limit in seconds."""
    return min(max(limit / QUESTIONS, SHORTEST), LONGEST)


class Awake:
    """The time that counts: in seconds, of rounds that should be `period` seconds apart."""

    def __init__(self, period: float) -> None:
        self._most = LATEST * period
        self._last: float | None = None
        self.seconds: float = 0.0

    def advance(self, now: float) -> None:
        """Note that a round begins at `now`, absolute seconds of any clock."""
        if self._last is not None and now - self._last <= self._most:
            self.seconds += now - self._last
        self._last = now


class Silence:
    """The questions that one worker process has not answered. `awake` is always the time that counts until now."""

    def __init__(self) -> None:
        self._unanswered = 0
        # when the first of them was asked, in time that counts
        self._since = 0.0

    def asked(self, awake: float) -> None:
        """Note a question."""
        if not self._unanswered:
            self._since = awake
        self._unanswered += 1

    def answered(self) -> None:
        """Note an answer, to whichever question: the process is alive."""
        self._unanswered = 0

    def seconds(self, awake: float) -> float:
        """Return for how long it has not answered."""
        return awake - self._since if self._unanswered else 0.0

    def judge(self, awake: float, limit: float) -> Verdict:
        """Decide before the next question. `limit`: seconds, `inf` for none."""
        silent = self.seconds(awake)
        if self._unanswered >= QUESTIONS and silent >= limit:
            return Verdict.HANGS
        return Verdict.SILENT if silent > 0.0 else Verdict.ANSWERS
