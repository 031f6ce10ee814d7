"""The Date header line, formatted once a second."""

from __future__ import annotations

from ..poll import Clock
from .wire import date_line


class DateLine:
    """`current()` is the header line as of now, shared by all connections of a server."""

    __slots__ = ("_clock", "_line", "_second")

    def __init__(self, clock: Clock) -> None:
        self._clock: Clock = clock
        self._line: bytes = b""
        self._second: int = -1

    def current(self) -> bytes:
        """Return the line, formatted anew if a second of the run's clock has begun since."""
        second = int(self._clock.now())
        if second != self._second:
            self._second = second
            self._line = date_line()
        return self._line
