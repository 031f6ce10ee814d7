"""The protocol between the client of the benchmark `churn` and its servers, and what a server knows of a connection.

A request moves both deadlines of its connection and is answered. An expired deadline is reported with the number of the
request that set it. Times are on the machine's monotonic clock (CLOCK_MONOTONIC, Python's `time.monotonic`), which both
processes share.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from typing import Final

# number, kind, due
REQUEST: Final = struct.Struct("<IId")
# number, kind, due, lateness
REPLY: Final = struct.Struct("<IIdd")

# Kinds of requests. Numbers count from 1 on each connection.
MOVE: Final = 0  # both deadlines to `due`; `inf`: none
CLOSE: Final = 1  # as MOVE; then the server closes, before the deadline, and answers nothing

# Kinds of replies.
SET: Final = 0  # the answer: the deadlines are at `due` now
EXPIRED: Final = 1  # the deadline of request `number`, at `due`, passed `lateness` seconds before this reply

# the number in a report of a deadline that no known request of this connection has set
UNKNOWN: Final = 0


class Deadlines:
    """The deadline of one connection, as its server has it. `due` is on the server's clock.

    `offset` is added to that clock to get the machine's.
    """

    def __init__(self, offset: float) -> None:
        self.due = math.inf
        self._offset = offset
        self._number = UNKNOWN
        # the number and the deadline of the request before
        self._previous = UNKNOWN, math.inf

    def take(self, request: bytes) -> bytes | None:
        """Set the deadline of a request, and return its answer; None if the connection is to be closed."""
        self._previous = self._number, self.due
        self._number, kind, due = REQUEST.unpack(request)
        self.due = due - self._offset
        return None if kind == CLOSE else REPLY.pack(self._number, SET, self.due + self._offset, 0.0)

    def passed(self, now: float, due: float | None = None) -> bytes:
        """Clear the deadline, and return the report that it has passed.

        `due`: which one, if the server is told: then the firing of one that was moved away shows.
        """
        number, known = (self._number, self.due) if now >= self.due else self._previous
        if due is not None:
            number = {self._previous[1]: self._previous[0], self.due: self._number}.get(due, UNKNOWN)
            known = due
        self.due = math.inf
        return REPLY.pack(number, EXPIRED, known + self._offset, now - known)


def monotonic_offset(clock: Callable[[], float]) -> float:
    """Return what is added to a time on `clock` to get the machine's monotonic clock; the best of 20 readings."""
    readings = []
    for _ in range(20):
        before, now, after = time.monotonic(), clock(), time.monotonic()
        readings.append((after - before, (before + after) / 2 - now))
    return min(readings)[1]
