"""The rule by which a thread tells whether an event loop is busy, idle or blocked: `stalls.py` says why."""

from __future__ import annotations

import math
from enum import Enum


class Step(Enum):
    """What the thread does next."""

    ASK = "ask the loop to answer, and check again later"
    WAIT = "check again later"
    REPORT = "the loop is blocked: report it, and check again later"
    SLEEP = "the loop is idle: sleep until it polls"


class Pulse:
    """Decides what the thread does next. A loop is blocked if it does not answer for `threshold` seconds. It is idle if
    it answers twice and has not polled since it was first asked."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._polls = -1
        # the loop has answered once, without a poll since it was asked
        self._quiet = False
        # when the loop was asked to answer, absolute; inf if it was not
        self._asked_at = math.inf
        self._reported = False

    def check(self, now: float, polls: int, answered: bool) -> Step:
        """Decide at `now`, in seconds, after `polls` polls in all. `answered`: the loop has answered since the last
        ASK."""
        if answered or self._asked_at == math.inf:
            # after a sleep equal polls do not mean idle: the loop may be blocked while events wait
            quiet = polls == self._polls and self._asked_at < math.inf
            idle = quiet and self._quiet
            self._quiet = quiet and not idle
            self._polls = polls
            self._reported = False
            self._asked_at = math.inf if idle else now
            return Step.SLEEP if idle else Step.ASK
        if now - self._asked_at >= self._threshold and not self._reported:
            self._reported = True
            return Step.REPORT
        return Step.WAIT

    def reported(self) -> None:
        """Note that the caller has reported a block itself: `check` asks for no other report until the loop answers."""
        self._reported = True

    def next_check(self, now: float, interval: float) -> float:
        """Return when to check again: `interval` seconds from `now`, or when a loop that does not answer is blocked."""
        blocked_at = self._asked_at + self._threshold
        return min(now + interval, blocked_at) if blocked_at > now else now + interval
