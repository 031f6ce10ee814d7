"""What the client of the benchmark `churn` knows of one connection, and how it judges the server's replies.

Facts      Replies of one connection arrive in order. Both processes read the same monotonic clock. The server reads it
           between the client's send and the client's receive.
Hazard     A server cannot be trusted to report its own mistakes.
Answer     The client records which request was answered last and when its deadline is. A report of another deadline is
           stale, one before the deadline is early, and one that does not arrive is lost. The lateness that the server
           reports must agree with these records.
Cost       A firing that is early by less than the way to the client shows only in the server's own figure.

Time is an argument; there are no sockets here.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

from ..peers.churn_protocol import EXPIRED, SET

# seconds after its deadline at which a firing counts as lost, by default
PATIENCE: Final = 2.0

# seconds; the servers convert times from clocks of their own
TOLERANCE: Final = 1e-6


class Verdict(Enum):
    """The judgement of a reply."""

    ANSWERED = "answered"
    FIRED = "fired"
    # of a deadline that is not set: moved, cleared, already fired, or never set
    STALE = "stale"
    EARLY = "early"
    # later than PATIENCE
    LOST = "lost"
    # of a deadline that was already counted as lost
    GIVEN_UP = "given up"
    # another number than that of the request, or a deadline at another time
    WRONG = "wrong"


class Account:
    """The record of one connection, which has at most one unanswered request."""

    __slots__ = ("_answered", "_asked", "_given_up", "_number", "_patience", "due")

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        # the deadline that the server has set; `inf` if there is none
        self.due = math.inf
        self._number = 0
        self._answered = 0
        # the deadline of the last request
        self._asked = math.inf
        self._given_up = math.inf

    @property
    def waiting(self) -> bool:
        """True if a request has not been answered."""
        return self._number != self._answered

    def ask(self, due: float) -> int:
        """Record a request that is about to be sent, and return its number."""
        self._number += 1
        self._asked = due
        return self._number

    def hear(self, number: int, kind: int, due: float, lateness: float, now: float) -> Verdict:
        """Judge a reply that was received at `now`."""
        if kind == SET:
            return self._accept(number, due)
        if kind == EXPIRED:
            return self._judge(number, due, lateness, now)
        return Verdict.WRONG

    def overdue(self, now: float) -> bool:
        """Return True, once, if the deadline is lost; it is not expected any more."""
        if now <= self.due + self._patience:
            return False
        self._given_up, self.due = self.due, math.inf
        return True

    def _accept(self, number: int, due: float) -> Verdict:
        if number != self._number or not self.waiting:
            return Verdict.WRONG
        self._answered, self.due = number, due
        return Verdict.ANSWERED if _same(due, self._asked) else Verdict.WRONG

    def _judge(self, number: int, due: float, lateness: float, now: float) -> Verdict:
        if self.waiting and number == self._number and self._accept(number, due) is Verdict.WRONG:
            # it passed before the answer was sent, so this is the answer as well
            return Verdict.WRONG
        if number == self._answered and due == self._given_up < now:
            self._given_up = math.inf
            return Verdict.GIVEN_UP
        if number != self._answered or not _same(due, self.due):
            return Verdict.STALE
        self.due = math.inf
        if lateness < 0.0 or now < due - TOLERANCE:
            return Verdict.EARLY
        return Verdict.LOST if lateness > self._patience else Verdict.FIRED


def _same(due: float, other: float) -> bool:
    return math.isclose(due, other, rel_tol=0.0, abs_tol=TOLERANCE)
