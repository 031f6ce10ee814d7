"""Response heads that wait for the first piece of the body.

Facts      An application gives the head of a response before the first piece of its body, mostly in the same step. If
           so, both leave together; and if the application fails between the two, the client gets a 500 and not a 200
           that is cut short.
Hazard     There may be minutes between the two: a stream of events waits for its first event. Without a head the client
           cannot tell that it was accepted, and may hold back the very act that causes the event.
Answer     If a handler suspends with its head unsent, the head leaves alone HOLD later. A failure after that cannot be
           answered with a 500 any more.
Cost       None for a response that is sent in one step; else an entry in a queue, and one timer for the server.
"""

from __future__ import annotations

import logging
from typing import Final

from ..poll import Poller
from ..timers import Timer
from .exchange import Exchange
from .reporting import report
from .timeouts import INF

# seconds: too short to notice, and mostly longer than an application takes to get its first piece (from a file, a
# thread, a database)
HOLD: Final = 0.05


class HeldHeads:
    """One server's exchanges whose handlers have suspended with the head unsent, the oldest first."""

    __slots__ = ("_closed", "_due", "_poller", "_timer")

    def __init__(self, poller: Poller) -> None:
        self._poller: Final = poller
        # when each is due: in order, because HOLD is the same for all
        self._due: dict[Exchange, float] = {}
        self._timer: Timer = Timer(_send, self)
        # `close` was called
        self._closed = False

    def add(self, exchange: Exchange) -> None:
        """Send the head of `exchange` HOLD seconds from now, if it is still unsent. A second call does not delay it. Do
        nothing after `close`: a handler may begin a response in the second that the server's end leaves it."""
        if self._closed or exchange in self._due:
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
            try:
                exchange.send_head()
            except Exception as error:
                # the others must be sent nevertheless
                report(logging.ERROR, "%s failed inside the server", exchange.request.line, error=error)

    def close(self) -> None:
        """Forget all heads, unsent, and those that come later."""
        self._closed = True
        if self._due:
            self._due.clear()
            self._poller.set_timer(self._timer, INF)


def _send(heads: HeldHeads, seq: int, lateness: float) -> None:
    heads.send()
