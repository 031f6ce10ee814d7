"""The clock of a poller's owner, read from compiled code.

Facts      Reading a clock through Python's calls costs two to four times what the clock itself costs, and is most of
           what moving a deadline costs.
Hazard     A second clock, however close to the owner's, would let a deadline fire early by the difference, and be deaf
           to a virtual one.
Answer     The owner's clock is asked, unless it is known to be `time.perf_counter()` plus a constant: then that is
           read here, in compiled code by the call of C that it is (`clock.h`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter


class Clock:
    """`read()` gives the owner's time; `offset`, if not None, is what `read` adds to `time.perf_counter()`."""

    __slots__ = ("offset", "read", "steady")

    def __init__(self, read: Callable[[], float], offset: float | None = None) -> None:
        self.read: Callable[[], float] = read
        self.offset: float = 0.0 if offset is None else offset
        # True if the time passes by itself, at the machine's pace
        self.steady: bool = offset is not None

    def now(self) -> float:
        """The time."""
        return perf_counter() + self.offset if self.steady else self.read()
