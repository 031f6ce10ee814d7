"""How many connections a server may have open, and which idle ones it ends while clients wait for room.

Facts      Each connection is a descriptor, of which a process has a limited number. Most connections are idle, and a
           client keeps an idle one for as long as it may.
Hazard     Idle clients that hold every descriptor lock others out, and the application, which needs descriptors for
           its files and its database, with them.
Answer     Beyond the limit nothing is accepted: clients wait in the kernel's queue. While one waits there, the
           connections that have been idle longest end as at their idle deadline, so a request that has come is still
           answered, one at a time for each listener. What has been idle for less than REUSE_GRACE stays, and so does
           everything that is not idle. Several listeners get room in turn.
Cost       A comparison per accept, and one for each connection that ends. While clients wait, a scan of all connections
           every SCAN_PAUSE at most, which finds an eighth of them.
"""

from __future__ import annotations

import heapq
import logging
import socket as stdlib
from collections import deque
from collections.abc import Set as AbstractSet
from typing import Final

from ..net.sockets import is_readable
from ..poll import Clock
from ..runtime import Event
from .base import ConnectionBase
from .policy import REUSE_GRACE
from .reporting import report
from .timeouts import INF, Limits

# seconds between two scans
SCAN_PAUSE: Final = 0.5

# connections that a scan finds at most; an eighth of all, if that is more
_LEAST_FOUND: Final = 32

# seconds in which a connection that was told to end should have; then another one is. With TLS its client may take long
_END_PAUSE: Final = 0.1

# seconds between two lines of the log
_LOG_PAUSE: Final = 60.0

_FULL: Final = (
    "as many connections are open as there may be (%d), and clients wait to be accepted: allow more (max_connections), "
    "or raise the limit of open files (ulimit -n, LimitNOFILE=) if it follows from that"
)


class Capacity:
    """The limit of a server's `connections`, and the accepting tasks that wait for room."""

    def __init__(self, connections: AbstractSet[ConnectionBase], clock: Clock, limits: Limits) -> None:
        self._connections: Final = connections
        self._clock: Final = clock
        self._most: float = limits.max_connections
        # of the tasks that wait, in the order of their arrival
        self._waiting: deque[Event] = deque()
        # since when they are idle, and their numbers: of those to end, the longest idle last
        self._found: list[tuple[float, int, ConnectionBase]] = []
        self._next_scan = -INF
        self._next_line = -INF

    def has_room(self) -> bool:
        """Return True if one more connection may be open."""
        return len(self._connections) < self._most

    def configure(self, limits: Limits) -> None:
        """Use this limit from now on."""
        self._most = limits.max_connections
        self.pass_on()

    def lift(self) -> None:
        """Have no limit from now on: a drain accepts what waits."""
        self._most = INF

    def connection_ended(self) -> None:
        """Note that there may be room."""
        if self._waiting:
            self.pass_on()

    def pass_on(self) -> None:
        """If there is room, wake the task that waits longest. It must call this again, because more may wait."""
        if self.has_room():
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._found.clear()

    async def wait(self, socket: stdlib.socket) -> None:
        """Wait until there is room. Meanwhile end idle connections, and return as well if it is seen, at the next look,
        that no client waits at the listening `socket` any more, or that it was closed."""
        room = Event()
        self._waiting.append(room)
        try:
            while not room.is_set() and socket.fileno() >= 0 and is_readable(socket):
                await room.wait_until(self._make_room())
        finally:
            if not room.is_set():
                self._waiting.remove(room)

    def _make_room(self) -> float:
        """Let one idle connection end, if one may. Return when to do this again."""
        now = self._clock.now()
        if now >= self._next_line:
            self._next_line = now + _LOG_PAUSE
            report(logging.WARNING, _FULL, len(self._connections))
        if not self._found and now >= self._next_scan:
            self._scan(now)
        while self._found:
            since, _, connection = self._found.pop()
            if connection.end_idle(since, now):
                return now + _END_PAUSE
        return max(now + _END_PAUSE, self._next_scan)

    def _scan(self, now: float) -> None:
        """Find the connections that have been idle longest."""
        youngest, next_since = now - REUSE_GRACE, now
        found = []
        for connection in self._connections:
            since = connection.idle_since
            if since <= youngest:
                found.append((since, connection.number, connection))
            elif since < next_since:
                next_since = since
        self._found = heapq.nsmallest(max(_LEAST_FOUND, len(self._connections) // 8), found)
        self._found.reverse()
        self._next_scan = now + SCAN_PAUSE
        if not found:
            self._next_scan = max(self._next_scan, next_since + REUSE_GRACE)
