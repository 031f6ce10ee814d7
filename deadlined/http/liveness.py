"""Whether the peer of a websocket is alive: its silence, and the ping or the close that it must answer. Pure: time and
bytes are arguments.

Facts      A ping or a close reaches the peer only after all that was sent before it, of which megabytes may wait in the
           kernel.
Hazard     A peer that reads steadily, but slowly, gets it when the time for its answer is over. One that does not read,
           or makes the server send ever more, could hold the connection for ever.
Answer     As long as the peer takes what was sent before, at `write_min_rate` at least, its answer has the same time
           again. What was sent later does not count. What its own system has taken, and it has not read, nobody here
           can see.
Cost       The kernel is asked twice for each ping or close, and when an answer is late.
"""

from __future__ import annotations

from typing import Final

from .policy import RULES, Rule
from .timeouts import INF, Timeouts

PING: Final = RULES["ws_pong"]
CLOSE: Final = RULES["ws_close"]


class Liveness:
    """When a peer was heard last, and what it must answer."""

    __slots__ = ("_ahead", "_asked", "_place", "_rule", "heard")

    def __init__(self) -> None:
        # since when the peer's silence counts
        self.heard: float = -INF
        # what must be answered
        self._rule: Rule = PING
        # when that was asked, or the time for its answer was extended; INF if no answer is awaited
        self._asked: float = INF
        # how many bytes the peer has taken, counted as `Transport.taken`, once it has all that was sent before that
        self._place: int = 0
        # how many of these the peer had not taken at the last look
        self._ahead: int = 0

    def hear(self, now: float) -> bool:
        """Count the peer's silence from now: bytes have come, any of which answer a ping, or it cannot be asked now.
        Return True if a ping was to be answered: the next may be due before its answer was."""
        self.heard = now
        answers = self._rule is PING and self._asked < INF
        if answers:
            self._asked = INF
        return answers

    def begin_again(self, now: float) -> None:
        """Count all from now: the peer's silence, and the time for its answer to a CLOSE. A ping need not be answered
        any more."""
        self.hear(now)
        if self._asked < INF:
            self._asked = now

    def ask(self, rule: Rule, now: float, taken: int, untaken: int) -> None:
        """Note that a PING or a CLOSE is sent now, behind what the peer has taken and what it has not. After a CLOSE
        only its answer counts or, if nothing is read any more, that the peer takes all: the caller notices both."""
        self._rule = rule
        self._asked = now
        self._place = taken + untaken
        self._ahead = untaken

    def next(self, timeouts: Timeouts) -> tuple[float, Rule | None]:
        """Return when the answer must have come and its rule; if none is awaited, when to ping and None."""
        if self._asked < INF:
            return self._asked + self._time(timeouts), self._rule
        return self.heard + timeouts.ws_ping, None

    def extend(self, now: float, taken: int, timeouts: Timeouts) -> bool:
        """Give the answer the same time again, and return True, if the peer has meanwhile taken enough of what was sent
        before the question: `write_min_rate` times that time, or the rest if it is less. For a CLOSE the rest is not
        enough, because there is nearly always a little before it."""
        ahead = max(self._place - taken, 0)
        progress = self._ahead - ahead
        enough = self._time(timeouts) * timeouts.write_min_rate
        if self._rule is PING:
            enough = min(self._ahead, enough)
        extended = progress > 0 and progress >= enough
        self._ahead = ahead
        if extended:
            self._asked = now
        return extended

    def _time(self, timeouts: Timeouts) -> float:
        return timeouts.ws_close if self._rule is CLOSE else timeouts.ws_pong
