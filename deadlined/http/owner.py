"""What a connection asks of the task that runs it and of its server: abstract base classes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .base import ConnectionBase
from .exchange import Exchange
from .seams import HandlerTask
from .settings import Handler
from .state import Reason


class ConnectionTask(HandlerTask):
    """What a connection asks of the task that runs it. An abstract base class."""

    def run_handler(self, handler: Handler, exchange: Exchange) -> Awaitable[object]:
        """Return an awaitable that calls the handler in a context of its own. The caller awaits it and then calls
        `handler_left`, also after an exception."""
        raise NotImplementedError

    def close_generators(self) -> Awaitable[None] | None:
        """Return an awaitable that closes the async generators which the handler has abandoned, None if there are
        none."""
        raise NotImplementedError

    @property
    def fresh(self) -> bool:
        """True if the task may run a handler."""
        raise NotImplementedError

    def handler_left(self) -> bool:
        """Note that the handler has returned or failed. Return False if the task must not be used again."""
        raise NotImplementedError

    def flush_later(self, connection: ConnectionBase) -> bool:
        """Have `connection.flush` called at the end of this turn of the event loop. Return False if the caller must
        flush at once."""
        raise NotImplementedError

    def turn_is_long(self) -> bool:
        """Return True if a handler that sends one piece after another must let other tasks run."""
        raise NotImplementedError

    def release(self) -> None:
        """Forget the connection, which goes on without this task."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the handler. The task ends with it. If another task of the handler waits for the peer, which the
        cancellation may not reach, the handler is told by that instead, and cancelled DISCONNECT_GRACE seconds later.
        """
        raise NotImplementedError


class ConnectionOwner:
    """What a connection tells the server. An abstract base class."""

    def schedule(self, connection: ConnectionBase) -> None:
        """Let a task call `connection.run` soon."""
        raise NotImplementedError

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function()` in a later step of the event loop."""
        raise NotImplementedError

    def flush_later(self, connection: ConnectionBase) -> bool:
        """Have `connection.flush`, of a connection without a task, called at the end of this turn of the event loop.
        Return False if the caller must flush at once."""
        raise NotImplementedError

    def hold_head(self, exchange: Exchange) -> None:
        """Have `exchange.send_head` called after `heads.HOLD`."""
        raise NotImplementedError

    def request_done(self) -> None:
        """Note that an exchange is over."""
        raise NotImplementedError

    def handler_detached(self, exchange: Exchange) -> None:
        """Note that a connection goes on without the handler of `exchange`, which still runs."""
        raise NotImplementedError

    def handler_finished(self, exchange: Exchange) -> None:
        """Note that the detached handler of `exchange` has returned or failed."""
        raise NotImplementedError

    def handler_cut(self) -> None:
        """Note that a handler has ended that had served an upgrade, or whose exchange had been cut off."""
        raise NotImplementedError

    def closed(self, connection: ConnectionBase, reason: Reason, lateness: float) -> None:
        """Note that a connection is over. `lateness`: seconds by which the deadline that cut it was late, or 0.0."""
        raise NotImplementedError
