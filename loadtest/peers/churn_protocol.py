"""The protocol between the client of the benchmark `churn` and its servers, and what each side knows of a connection.

A request moves both deadlines of its connection and is answered. An expired deadline is reported with the number of the
request that set it. Times are on the machine's monotonic clock (CLOCK_MONOTONIC, Python's `time.monotonic`), which both
processes share.

Facts      Replies of one connection arrive in order. The server reads the clock between the client's send and the
           client's receive.
Hazard     A server cannot be trusted to report its own mistakes.
Answer     The client records which request was answered last and when its deadline is. A report of another deadline is
           stale, one before the deadline is early, and one that does not arrive is lost. The lateness that the server
           reports must agree with these records.
Cost       A firing that is early by less than the way to the client shows only in the server's own figure.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from enum import Enum

# number, kind, due
REQUEST = struct.Struct("<IId")
# number, kind, due, lateness
REPLY = struct.Struct("<IIdd")

# Kinds of requests. Numbers count from 1 on each connection.
MOVE = 0  # both deadlines to `due`; `inf`: none
CLOSE = 1  # as MOVE; then the server closes, before the deadline, and answers nothing

# Kinds of replies.
SET = 0  # the answer: the deadlines are at `due` now
EXPIRED = 1  # the deadline of request `number`, at `due`, passed `lateness` seconds before this reply

# the number in a report of a deadline that no known request of this connection has set
UNKNOWN = 0

# seconds after its deadline at which a firing counts as lost, by default
PATIENCE = 2.0

# seconds; the servers convert times from clocks of their own
TOLERANCE = 1e-6


class Deadlines:
    """The deadline of one connection, as its server has it. `due` is on the server's clock.

    `offset` is added to that clock to get the machine's.
    """

    def __init__(self, offset: float) -> None:
        self.due = math.inf
        self._offset = offset
        self._number = UNKNOWN
        # the number and the deadline of the request before
        self._previous = UNKNOWN, math.inf

    def take(self, request: bytes) -> bytes | None:
        """Set the deadline of a request, and return its answer; None if the connection is to be closed."""
        self._previous = self._number, self.due
        self._number, kind, due = REQUEST.unpack(request)
        self.due = due - self._offset
        return None if kind == CLOSE else REPLY.pack(self._number, SET, self.due + self._offset, 0.0)

    def passed(self, now: float, due: float | None = None) -> bytes:
        """Clear the deadline, and return the report that it has passed.

        `due`: which one, if the server is told: then the firing of one that was moved away shows.
        """
        number, known = (self._number, self.due) if now >= self.due else self._previous
        if due is not None:
            number = {self._previous[1]: self._previous[0], self.due: self._number}.get(due, UNKNOWN)
            known = due
        self.due = math.inf
        return REPLY.pack(number, EXPIRED, known + self._offset, now - known)


def monotonic_offset(clock: Callable[[], float]) -> float:
    """Return what is added to a time on `clock` to get the machine's monotonic clock; the best of 20 readings."""
    readings = []
    for _ in range(20):
        before, now, after = time.monotonic(), clock(), time.monotonic()
        readings.append((after - before, (before + after) / 2 - now))
    return min(readings)[1]


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
