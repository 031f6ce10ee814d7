"""Whether the peer of a websocket is alive: its silence, and the ping that it must answer. Pure: time and bytes are
arguments.

Facts      A ping reaches the peer only after all that was sent before it, of which megabytes may wait in the kernel.
Hazard     A peer that reads steadily, but slowly, gets the ping when the time for its answer is over.
Answer     As long as the peer takes what was sent before the ping, at `write_min_rate` at least, its answer has the
           same time again. What its own system has taken, and it has not read, nobody here can see.
Cost       The kernel is asked twice for each ping, and when an answer is late.
"""

from __future__ import annotations

from .policy import RULES, Rule
from .timeouts import INF, Timeouts


class Liveness:
    """When a peer was heard last, and what it must answer."""

    __slots__ = ("_ahead", "_pinged", "_place", "heard")

    def __init__(self) -> None:
        # since when the peer's silence counts
        self.heard: float = -INF
        # since when the answer to a ping is awaited, or its time was extended; INF if it is not
        self._pinged: float = INF
        # bytes before the ping; and how many of them the peer had not taken at the last look
        self._place: int = 0
        self._ahead: int = 0

    def hear(self, now: float) -> None:
        """Count the peer's silence from now: bytes have come, any of which answer a ping, or it cannot be asked now."""
        self.heard = now
        self._pinged = INF

    def ping(self, now: float, taken: int, untaken: int) -> None:
        """Note that a ping is sent now, behind what the peer has taken and what it has not."""
        self._pinged = now
        self._place = taken + untaken
        self._ahead = untaken

    def next(self, timeouts: Timeouts) -> tuple[float, Rule | None]:
        """Return when the answer must have come and its rule; if none is awaited, when to ping and None."""
        if self._pinged < INF:
            return self._pinged + timeouts.ws_pong, RULES["ws_pong"]
        return self.heard + timeouts.ws_ping, None

    def extend(self, now: float, taken: int, timeouts: Timeouts) -> bool:
        """Give the answer the same time again, if the peer has taken enough meanwhile of what was before the ping:
        by `write_min_rate`, or all of it. Return True if so."""
        ahead = max(self._place - taken, 0)
        enough = min(self._ahead, timeouts.ws_pong * timeouts.write_min_rate)
        extended = self._ahead > 0 and self._ahead - ahead >= enough
        self._ahead = ahead
        if extended:
            self._pinged = now
        return extended
