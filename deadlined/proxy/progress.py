"""How far one try of a request has come, and so until when its upstream must send more.

Facts      The body of a request may still be sent while the response comes; the two end in any order.
Hazard     Two tasks that set one deadline forget each other's.
Answer     The deadline follows from the progress alone, in one function. Who waits asks it before each wait; who makes
           progress meanwhile applies it anew.
Cost       A few comparisons per wait.
"""

from __future__ import annotations

from typing import Final

from ..net import Conn
from ..poll import Clock
from .options import INF, ProxyTimeouts

# seconds in which the response must come after the request could not be sent: an upstream that refuses a body may have
# answered before it has closed
REFUSAL: Final = 1.0


class Progress:
    """The progress of one try on `conn`, which must have its response's head by `deadline`."""

    __slots__ = ("_clock", "_conn", "_timeouts", "deadline", "head_came", "refused", "sent_at")

    def __init__(self, conn: Conn, clock: Clock, timeouts: ProxyTimeouts, deadline: float) -> None:
        self._conn = conn
        self._clock = clock
        self._timeouts = timeouts
        self.deadline: float = deadline
        # when the whole request was sent, or the rest of it could not be sent (`refused`); inf before
        self.sent_at: float = INF
        self.refused: bool = False
        # the head of the response has come
        self.head_came: bool = False

    def note_sent(self, refused: bool = False) -> None:
        """Note that nothing more is sent, and apply the deadline that follows from that."""
        self.sent_at = self._clock.now()
        self.refused = refused
        self.apply()

    def apply(self) -> None:
        """Set the time by which the upstream must send something."""
        self._conn.set_read_deadline(self.read_deadline(self._clock.now()))

    def read_deadline(self, now: float) -> float:
        """Return when the upstream must have sent something, if it is waited for from `now` on. While it may wait for
        more of the request, only `deadline` counts."""
        if self.head_came:
            return INF if self.sent_at == INF else now + self._timeouts.upstream_idle
        answered_by = self.sent_at + (REFUSAL if self.refused else self._timeouts.upstream_first_byte)
        return min(answered_by, self.deadline)
