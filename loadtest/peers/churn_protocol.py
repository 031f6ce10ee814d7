"""The protocol between the client of the benchmark `churn` and its servers.

A request moves both deadlines of its connection and is answered. An expired deadline is reported with the number of the
request that set it. Absolute times are on the machine's monotonic clock (CLOCK_MONOTONIC, Python's `time.monotonic`),
which both processes share.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final

# number, kind, seconds
REQUEST: Final = struct.Struct("<IId")
# number, kind, due, lateness
REPLY: Final = struct.Struct("<IIdd")

# Kinds of requests. Numbers count from 1 on each connection.
MOVE: Final = 0  # both deadlines to `seconds` from now; `inf`: none
INSTANT: Final = 1  # both deadlines to the absolute time `seconds`
CLOSE: Final = 2  # as MOVE; then the server closes, before the deadline, and answers nothing

# Kinds of replies.
SET: Final = 0  # the answer: the deadlines are at `due` now
EXPIRED: Final = 1  # the deadline of request `number`, at `due`, passed `lateness` seconds before this reply

# the number in a report of a deadline that no known request of this connection has set
UNKNOWN: Final = 0


def monotonic_offset(clock: Callable[[], float]) -> float:
    """Return what is added to a time on `clock` to get the machine's monotonic clock; the best of 20 readings."""
    readings = []
    for _ in range(20):
        before, now, after = time.monotonic(), clock(), time.monotonic()
        readings.append((after - before, (before + after) / 2 - now))
    return min(readings)[1]


def announce(port: int) -> None:
    """Print where the server listens, as its first line of output."""
    print(f"listening on tcp://127.0.0.1:{port}", flush=True)
