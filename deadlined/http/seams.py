"""What an exchange asks of those above it: the connection that it is part of, and the task that runs its handler.

They are handed in, so that an exchange imports neither, and a handler has no way to the server.
"""

from __future__ import annotations

from ..poll import Clock
from ..runtime import ReadyCallback
from .dates import DateLine
from .errors import BadRequest
from .policy import Rule
from .state import Phase, Reason
from .timeouts import Limits, Timeouts
from .transport import Transport
from .wire import RequestParser


class HandlerTask:
    """What an exchange asks of the task that runs its handler. An abstract base class."""

    def arm(self, when: float) -> None:
        """Cancel the handler at `when`, absolute; `inf` disarms."""
        raise NotImplementedError

    def response_sent(self) -> None:
        """The response is out: the connection does not need this task any more if the handler is suspended."""
        raise NotImplementedError

    def receive_ended(self) -> None:
        """A receive for which the connection has waited after its response is over."""
        raise NotImplementedError


class ExchangeHost(ReadyCallback):
    """What an exchange asks of its connection. An abstract base class, and a callback because a compiled class has one
    base only."""

    clock: Clock
    timeouts: Timeouts
    limits: Limits
    reader: RequestParser
    transport: Transport
    dates: DateLine
    keep_alive_line: bytes
    phase: Phase
    draining: bool
    client: tuple[str, int] | None
    server_address: tuple[str, int] | None
    scheme: str

    def enter(self, phase: Phase, deadline: float) -> None:
        """From now on the connection is in `phase`, until `deadline`."""
        raise NotImplementedError

    def move(self, phase: Phase, when: float) -> None:
        """The application has moved the deadline of `phase`, in which the connection may be now."""
        raise NotImplementedError

    def expired(self, rule: Rule, lateness: float) -> None:
        """The deadline of `rule` has passed: end the connection as the rule says."""
        raise NotImplementedError

    def refused(self, bad: BadRequest) -> None:
        """The body cannot be served: answer that, and end the connection."""
        raise NotImplementedError

    def lost(self, reason: Reason) -> None:
        """The peer is gone."""
        raise NotImplementedError

    def send_abandoned(self) -> None:
        """A send was cancelled halfway: nothing can follow on this connection."""
        raise NotImplementedError
