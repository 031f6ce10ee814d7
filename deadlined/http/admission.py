"""How many requests a server handles at once, and the queue of those that wait for their turn.

Facts      A handler takes longer the more others wait for the same database. A client that waits for too long leaves,
           or asks again.
Hazard     Handlers pile up without a bound, and answer when nobody waits for them any more. A place that is given to a
           request which is cancelled meanwhile would be lost.
Answer     A request has a place while its handler runs, and there are `max_running` places. The queue is first in,
           first out; its length and each wait in it are bounded. A place is handed over when another request leaves it.
           A request that cannot use it any more passes it on, and one whose client has left gets none.
Cost       Nothing without a limit: handlers are called directly then (`admitting.py`). With one, an entry in a set per
           request, and an event per request that waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..poll import Clock
from ..runtime import Event
from ..value import Value
from .exchange import Exchange
from .state import Refusal
from .timeouts import INF, Limits


@dataclass(frozen=True, slots=True)
class AdmissionStatistics(Value):
    """A snapshot. `running`: requests that have a place now; `waiting`: those in the queue; `refused`: requests that
    got no place, since the start."""

    running: int
    waiting: int
    refused: Mapping[Refusal, int]


class QueuedExchange:
    """A request that waits in the queue, until `deadline`. `refusal`: why it got no place, None if it got one.

    `event` wakes the task of the request. It is set once the request has left the queue. When the deadline is moved,
    the event is set as well, and another one takes its place.
    """

    __slots__ = ("deadline", "event", "exchange", "refusal")

    def __init__(self, exchange: Exchange, deadline: float) -> None:
        self.exchange: Final = exchange
        self.deadline: float = deadline
        self.event: Event = Event()
        # so if nothing else happens until the deadline
        self.refusal: Refusal | None = Refusal.QUEUE_TIMEOUT


class Admission:
    """Gives places to requests, at most `limits.max_running` at once."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock: Final = clock
        self._limits = limits
        # the requests that have a place
        self._running: set[Exchange] = set()
        # in the order of their arrival
        self._waiting: dict[QueuedExchange, None] = {}
        self._refused: dict[Refusal, int] = {}
        # when the last wait ends, absolute
        self._ends_at = INF

    def statistics(self) -> AdmissionStatistics | None:
        """Return a snapshot of the counts; None if there is no limit, and nothing is left from when there was one."""
        if self._limits.max_running == INF and not (self._running or self._refused):
            return None
        refused = {refusal: self._refused.get(refusal, 0) for refusal in Refusal}
        return AdmissionStatistics(len(self._running), len(self._waiting), refused)

    def configure(self, limits: Limits) -> None:
        """Use other limits from now on. Requests that have a place keep it."""
        self._limits = limits
        self._grant()

    def end_waits(self, when: float) -> None:
        """Let each wait end at `when`, absolute, if it does not end sooner. For a drain, which must have time left to
        answer, and for what runs."""
        self._ends_at = min(self._ends_at, when)
        for queued in self._waiting:
            if when < queued.deadline:
                queued.deadline = when
                moved, queued.event = queued.event, Event()
                moved.set()

    def enter(self, exchange: Exchange) -> bool:
        """Give the request a place, and return True, if it need not wait. `leave` must be called then."""
        # while others wait, no place is free
        if len(self._running) >= self._limits.max_running:
            return False
        self._running.add(exchange)
        return True

    def leave(self, exchange: Exchange) -> None:
        """Take the place of the request back. No effect if it has none."""
        if exchange in self._running:
            self._running.remove(exchange)
            self._grant()

    async def wait(self, exchange: Exchange, seconds: float) -> Refusal | None:
        """Wait for a place for at most `seconds`. Return None if the request has one, and `leave` must be called; else
        why it has none."""
        if len(self._waiting) >= self._limits.max_waiting:
            return self._count(Refusal.QUEUE_FULL)
        queued = QueuedExchange(exchange, min(self._clock.now() + seconds, self._ends_at))
        self._waiting[queued] = None
        try:
            while queued in self._waiting and self._clock.now() < queued.deadline:
                await queued.event.wait_until(queued.deadline)
        except BaseException:
            # cancelled, perhaps in the moment in which it got a place
            self.leave(exchange)
            raise
        finally:
            self._waiting.pop(queued, None)
        return None if queued.refusal is None else self._count(queued.refusal)

    def _grant(self) -> None:
        """Hand free places over to the requests that wait, the first ones first."""
        while self._waiting and len(self._running) < self._limits.max_running:
            queued = next(iter(self._waiting))
            del self._waiting[queued]
            if queued.exchange.client_has_left:
                queued.refusal = Refusal.CLIENT_LEFT
            else:
                queued.refusal = None
                self._running.add(queued.exchange)
            queued.event.set()

    def _count(self, refusal: Refusal) -> Refusal:
        self._refused[refusal] = self._refused.get(refusal, 0) + 1
        return refusal
