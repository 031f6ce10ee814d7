"""What an exchange asks of its connection and of the task that runs its handler: two abstract base classes.

The exchange is given an object of each. So it imports neither `connection` nor `worker`, and a handler cannot reach the
server through its exchange.
"""

from __future__ import annotations

from .dates import DateLine
from .draining import Draining
from .errors import BadRequest
from .output import Output, OutputOwner
from .policy import Rule
from .state import Phase, Reason
from .timeouts import Limits
from .wire import RequestParser


class HandlerTask:
    """What an exchange asks of the task that runs its handler. An abstract base class."""

    def arm(self, when: float) -> None:
        """Set the time at which the handler's deadline passes, absolute. `inf` disarms."""
        raise NotImplementedError

    def response_sent(self) -> None:
        """Note that the response is sent. If the handler is suspended, its connection can go on in another task."""
        raise NotImplementedError

    def receive_ended(self) -> None:
        """Note that a receive of the handler has ended after the response was sent. It was what kept the connection
        from going on without the handler."""
        raise NotImplementedError


class ExchangeHost(OutputOwner):
    """What an exchange asks of its connection. An abstract base class.

    It derives from OutputOwner for the connection's sake: a compiled class has one base only.
    """

    limits: Limits
    reader: RequestParser
    output: Output
    dates: DateLine
    keep_alive_line: bytes
    cancel_on_disconnect: bool
    drain_began: Draining
    phase: Phase
    draining: bool
    client: tuple[str, int] | None
    server_address: tuple[str, int] | None
    scheme: str

    def enter(self, phase: Phase, deadline: float) -> None:
        """Record that the connection is in `phase` and that its deadline is `deadline`. Arms nothing."""
        raise NotImplementedError

    def move(self, phase: Phase, when: float) -> None:
        """Apply a deadline that the application has set for `phase`, if the connection is in that phase now."""
        raise NotImplementedError

    def expired(self, rule: Rule, lateness: float) -> None:
        """End the connection as `rule` says, because its deadline has passed, `lateness` seconds ago."""
        raise NotImplementedError

    def refused(self, bad: BadRequest) -> None:
        """End the connection because the body is invalid or too large. The peer is told if no response was started."""
        raise NotImplementedError

    def lost(self, reason: Reason) -> None:
        """Record that the peer is gone, for `reason`."""
        raise NotImplementedError

    def watch_peer(self) -> None:
        """Cancel the handler if the peer leaves, until `unwatch_peer`. No effect if the server does not want that, or
        if no handler runs. Nothing else may wait for bytes meanwhile."""
        raise NotImplementedError

    def unwatch_peer(self) -> None:
        """End `watch_peer`. Idempotent."""
        raise NotImplementedError

    def flush_soon(self, more: bool) -> bool:
        """Let what was appended to the output be sent in this turn of the event loop. Return False if the sender must
        wait: too much is pending, or other tasks must run. `more`: the response is not complete."""
        raise NotImplementedError
