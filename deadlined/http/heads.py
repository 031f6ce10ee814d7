"""Heads of responses that wait for the first piece of their bodies.

Facts      An application gives the head of a response before the first piece of its body, mostly in the same step. Then
           both leave together; and if the application fails between the two, the client gets a 500 and not a 200 that
           is cut short.
Hazard     There may be minutes between the two: a stream of events waits for its first event. The client does not know
           meanwhile that it was accepted, and may wait for that before it does what would cause the event.
Answer     A head that waits when its handler suspends is sent after HOLD.
Cost       Nothing for a response that is sent in one step; else an entry in a queue, and one timer for all.
"""

from __future__ import annotations

from typing import Final

from ..poll import Poller
from ..timers import Timer
from .exchange import Exchange
from .timeouts import INF

# seconds: no person notices them, and what an application still reads before its first piece (a file, a thread, a
# database) mostly takes less
HOLD: Final = 0.05


class HeldHeads:
    """The exchanges of a server whose heads wait while their handlers are suspended, the oldest first."""

    __slots__ = ("_due", "_poller", "_timer")

    def __init__(self, poller: Poller) -> None:
        self._poller: Final = poller
        # in the order of their times, because HOLD is the same for all
        self._due: dict[Exchange, float] = {}
        self._timer: Timer = Timer(_send, self)

    def add(self, exchange: Exchange) -> None:
        """Send the head of `exchange` in HOLD seconds, unless the body has begun by then. Idempotent."""
        if exchange in self._due:
            return
        when = self._poller.clock.now() + HOLD
        if not self._due:
            self._poller.set_timer(self._timer, when)
        self._due[exchange] = when

    def send(self) -> None:
        """Send the heads whose time has come."""
        now = self._poller.clock.now()
        due = self._due
        while due:
            exchange = next(iter(due))
            if due[exchange] > now:
                self._poller.set_timer(self._timer, due[exchange])
                return
            del due[exchange]
            exchange.send_head()

    def close(self) -> None:
        """Forget all."""
        if self._due:
            self._due.clear()
            self._poller.set_timer(self._timer, INF)


def _send(heads: HeldHeads, seq: int, lateness: float) -> None:
    heads.send()
