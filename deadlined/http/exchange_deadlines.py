"""The deadlines of an exchange: when its handler must have returned, and what bounds its receives and sends."""

from __future__ import annotations

from .policy import handler_deadline
from .timeouts import INF, Timeouts


class ExchangeDeadlines:
    """What the deadlines of an exchange follow from. An abstract base class; `facts.py` derives from it."""

    __slots__ = (
        "_leave_by",
        "_own_deadline",
        "_paused",
        "_paused_at",
        "_read_by",
        "_timeouts",
        "_write_by",
        "head_done",
        "start_time",
    )

    def __init__(self, timeouts: Timeouts, start: float, head_done: float) -> None:
        self.start_time: float = start
        self.head_done: float = head_done
        # those with which the request has begun hold for all of it, also after a reload
        self._timeouts = timeouts
        # those that the application has set for receiving and for sending
        self._read_by: float | None = None
        self._write_by: float | None = None
        # when the handler must have returned: by the options or the application; because the peer has left, inf if not
        self._own_deadline = handler_deadline(head_done, timeouts)
        self._leave_by = INF
        # the body's deadline runs only while the handler receives: seconds of all pauses in between, and when the
        # latest one began, or the receive that has ended it
        self._paused = 0.0
        self._paused_at = head_done

    @property
    def deadline(self) -> float:
        """When the handler must have returned, absolute; `inf` if there is no deadline."""
        return min(self._own_deadline, self._leave_by)

    @property
    def ends_soon(self) -> bool:
        """True if the handler's deadline is sooner than its own, because the peer has left."""
        return self._leave_by < self._own_deadline

    @property
    def read_by(self) -> float:
        """When receiving must end, as the application has set it; `inf` if it has not."""
        return INF if self._read_by is None else self._read_by

    @property
    def write_by(self) -> float | None:
        """When sending must end, as the application has set it; None if it has not."""
        return self._write_by
