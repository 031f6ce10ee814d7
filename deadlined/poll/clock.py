"""The clock of a poller's owner, read from compiled code.

Facts      Reading a clock through Python costs two to four times as much as the clock itself, and is most of the cost
           of moving a deadline.
Hazard     A second clock lets deadlines fire early by its difference to the owner's, and does not follow a virtual one.
Answer     The owner's clock is called, unless it is known to be `time.perf_counter()` plus a constant. Then
           `perf_counter` is called here; compiled, by the C function behind it (`clock.h`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter


class Clock:
    """A clock in seconds: `read()` returns the owner's time. `offset`, if not None, is the difference between `read()`
    and `time.perf_counter()`."""

    __slots__ = ("offset", "read", "steady")

    def __init__(self, read: Callable[[], float], offset: float | None = None) -> None:
        self.read: Callable[[], float] = read
        self.offset: float = 0.0 if offset is None else offset
        # the time is real: it passes by itself
        self.steady: bool = offset is not None

    def now(self) -> float:
        """Return the time, in seconds."""
        return perf_counter() + self.offset if self.steady else self.read()
