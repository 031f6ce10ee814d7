"""Which upstream gets a request, and the queue of requests that none can take now.

Facts      A server that is slow has more requests at once than others, so the one with the fewest is probably fast.
Hazard     Requests that wait without a bound are answered when nobody waits for them any more. A slot that is given to
           a request which is cancelled meanwhile would be lost. An upstream that is ejected soon has free slots only,
           and would get all waiting requests.
Answer     Least connections. The queue is first in, first out, and each wait in it has a deadline. A slot is handed
           over when another request leaves it; a request that cannot use it passes it on. An ejected upstream gets a
           request only if all that are available are ejected: otherwise the request waits for another one, or for the
           end of the ejection.
Cost       A pass over the upstreams per request; an event per waiting request. Every waiting request is woken whenever
           an ejection begins or ends.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ..poll import Clock
from ..runtime import Event
from .errors import Overloaded
from .options import INF
from .upstream import Upstream


class QueuedRequest:
    """A request that waits in the queue. `upstream` is set when it has its turn."""

    __slots__ = ("_wake", "upstream")

    def __init__(self) -> None:
        self._wake = Event()
        self.upstream: Upstream | None = None

    async def sleep(self, until: float) -> None:
        """Sleep until `wake` is called, or until `until`, absolute seconds."""
        await self._wake.wait_until(until)

    def wake(self) -> None:
        """Wake the request: it checks whether it has its turn, and until when it is to sleep."""
        wake, self._wake = self._wake, Event()
        wake.set()


class Balancer:
    """Gives requests to `upstreams`, at most `limit` at once to each."""

    def __init__(self, upstreams: Sequence[Upstream], clock: Clock, limit: float) -> None:
        self._upstreams: Final = upstreams
        self._clock: Final = clock
        self._limit = limit
        # in the order of their arrival
        self._waiting: dict[QueuedRequest, None] = {}
        # where the search for the fewest begins, so that equals take turns
        self._turn = 0
        for upstream in upstreams:
            upstream.on_ejection = self._ejections_changed

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._waiting)

    def set_limit(self, limit: float) -> None:
        """Give each upstream at most `limit` requests at once from now on."""
        self._limit = limit
        self._grant()

    def set_available(self, upstream: Upstream, available: bool) -> None:
        """Note whether `upstream` accepts connections."""
        upstream.available = available
        if not available:
            upstream.close()
        # also if it has become unavailable: those that are ejected may be all that is left
        self._grant()

    async def acquire(self, tried: Container[Upstream], wait: float) -> Upstream:
        """Return the upstream that gets the next request; the caller must `release` it. If none can take one, wait in
        the queue, and raise Overloaded after `wait` seconds. Without a wait, an upstream in `tried` is returned only if
        there is no other."""
        if not self._waiting:
            upstream = self._choose(tried)
            if upstream is not None:
                upstream.active += 1
                return upstream
        queued = QueuedRequest()
        self._waiting[queued] = None
        taken = False
        try:
            await self._wait(queued, self._clock.now() + wait)
            taken = True
        finally:
            self._waiting.pop(queued, None)
            if not taken and queued.upstream is not None:
                self.release(queued.upstream)
        if queued.upstream is None:
            raise Overloaded(self._why())
        return queued.upstream

    def acquire_idle(self) -> Upstream | None:
        """Return the upstream that `acquire` would return, as `acquire` does, if that needs no wait and the upstream
        has an idle connection; None otherwise."""
        if self._waiting:
            return None
        upstream = self._choose(())
        if upstream is None or not upstream.has_idle:
            # `acquire` is to choose the same
            self._turn -= 1
            return None
        upstream.active += 1
        return upstream

    def release(self, upstream: Upstream) -> None:
        """Note that a request has left `upstream`."""
        upstream.active -= 1
        self._grant()

    async def _wait(self, queued: QueuedRequest, deadline: float) -> None:
        """Sleep until `queued` has its turn, or until `deadline`."""
        while queued.upstream is None and (now := self._clock.now()) < deadline:
            await queued.sleep(min(deadline, self._next_return(now)))
            # an ejection may have ended
            self._grant()

    def _next_return(self, now: float) -> float:
        """Return when the next ejection ends that has not ended at `now`, inf if none does."""
        return min([each.ejected_until for each in self._upstreams if each.ejected_until > now], default=INF)

    def _ejections_changed(self) -> None:
        """Give out slots that are free now, and wake all waiting requests: an ejection has begun, or has ended before
        its time."""
        self._grant()
        for queued in self._waiting:
            queued.wake()

    def _grant(self) -> None:
        """Give free slots to waiting requests, in the order of their arrival."""
        while self._waiting:
            upstream = self._choose(())
            if upstream is None:
                return
            queued = next(iter(self._waiting))
            del self._waiting[queued]
            upstream.active += 1
            queued.upstream = upstream
            queued.wake()

    def _choose(self, tried: Container[Upstream]) -> Upstream | None:
        """Return the upstream with the fewest requests of those that may get one, None if there is none. An upstream in
        `tried` is returned only if there is no other; an ejected one only if all available ones are ejected."""
        self._turn += 1
        best: Upstream | None = None
        best_rank = (0, 0)
        all_ejected = True
        count = len(self._upstreams)
        for place in range(count):
            upstream = self._upstreams[(self._turn + place) % count]
            if not upstream.available:
                continue
            ejected = upstream.ejected
            all_ejected = all_ejected and ejected
            if upstream.active >= self._limit:
                continue
            rank = (2 * ejected + (upstream in tried), upstream.active)
            if best is None or rank < best_rank:
                best, best_rank = upstream, rank
        return best if best_rank < (2, 0) or all_ejected else None

    def _why(self) -> str:
        if not any(upstream.available for upstream in self._upstreams):
            return "no upstream is available"
        if any(upstream.ejected for upstream in self._upstreams):
            return "each upstream has as many requests as it may have, or is left out because it has failed"
        return "each upstream has as many requests as it may have"
