"""The Date header line, formatted once a second."""

from __future__ import annotations

from ..poll import Clock
from .wire import date_line


class DateLine:
    """The Date header line of the current second, shared by all connections of a server."""

    __slots__ = ("_clock", "_line", "_second")

    def __init__(self, clock: Clock) -> None:
        self._clock: Clock = clock
        self._line: bytes = b""
        self._second: int = -1

    def current(self) -> bytes:
        """Return the line. Format it again if a new second of the event loop's clock has begun since the last call."""
        second = int(self._clock.now())
        if second != self._second:
            self._second = second
            self._line = date_line()
        return self._line
