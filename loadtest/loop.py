"""The loop of the measuring process: epoll, timers, and how wrong each of its times may be.

Facts      A connection's end is seen when the process next polls and runs. Linux counts for each thread how long it
           was ready to run and did not (`schedstat`).
Hazard     On a busy machine the client's own lateness would be taken for the server's.
Answer     Every event comes with the largest error of its time. If the poll did not find it at once, the process
           slept, and the error is what the kernel counted as waiting for a processor. If it did, the event came while
           the process worked, and the error is the time since it polled before: each poll takes all that there is.
Cost       Three polls and two reads of a file in /proc per turn. What a hypervisor takes away is not counted.
"""

from __future__ import annotations

import heapq
import os
import select
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import monotonic, thread_time

# called with epoll's mask, the time, and the largest error of that time; times in seconds
OnEvents = Callable[[int, float, float], None]
OnTime = Callable[[float], object]


class Loop:
    """Epoll and timers. The clock is `time.monotonic`."""

    def __init__(self) -> None:
        # processes of gevent have no epoll, and a poll that lets their other users run meanwhile
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = self._epoll or select.poll()
        self._watched: dict[int, OnEvents] = {}
        self._timers: list[tuple[float, int, OnTime]] = []
        self._numbers = count()
        self._polled = monotonic()
        self._schedstat = -1
        with suppress(OSError):
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Free the descriptors. What was watched is not closed."""
        if self._epoll is not None:
            self._epoll.close()
        if self._schedstat >= 0:
            os.close(self._schedstat)

    def watch(self, descriptor: int, mask: int, on_events: OnEvents) -> None:
        """Call `on_events` for these events of the descriptor, in place of any before."""
        if descriptor in self._watched:
            self._poll.modify(descriptor, mask)
        else:
            self._poll.register(descriptor, mask)
        self._watched[descriptor] = on_events

    def forget(self, descriptor: int) -> None:
        """Watch it no longer. Call it before the descriptor is closed."""
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def at(self, when: float, on_time: OnTime) -> None:
        """Call `on_time` with the time, once, at `when` or soon after."""
        heapq.heappush(self._timers, (when, next(self._numbers), on_time))

    def turn(self, limit: float) -> None:
        """Wait until `limit` at most, call what is due, and handle the events of one poll."""
        if events := self._events(0.0):
            now = monotonic()
            error = now - self._polled
        else:
            due = min(limit, self._timers[0][0]) if self._timers else limit
            delayed = self._delayed()
            events = self._events(max(0.0, due - monotonic()))
            now = monotonic()
            error = self._delayed() - delayed  # after the clock: what delays this process between the two counts, too
        self._polled = now
        for descriptor, mask in events:
            if on_events := self._watched.get(descriptor):
                on_events(mask, now, error)
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2](now)

    def _events(self, seconds: float) -> list[tuple[int, int]]:
        """Return all events, as soon as there are any within so many seconds."""
        if self._epoll is None:
            return self._poll.poll(seconds * 1000)
        # epoll's own timeout counts in milliseconds and is rounded up, which latency would show; that of select is not
        if seconds:
            select.select([self._epoll], [], [], seconds)
        return self._epoll.poll(0, max(1, len(self._watched)))

    def worked(self) -> float:
        """Return the seconds so far in which this thread has used a processor, or waited for one."""
        return thread_time() + self._delayed()

    def _delayed(self) -> float:
        """Return the seconds so far that this thread has waited for a processor; 0 if the kernel does not count."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 80, 0).split()[1]) / 1e9
