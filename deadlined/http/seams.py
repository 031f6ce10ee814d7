"""What an exchange and a connection ask of others: abstract base classes.

`ExchangeHost`   what an exchange asks of its connection
`HandlerTask`    what an exchange asks of the task that runs its handler
`Responder`      what a connection asks of an object that answers a request without a task
`Upgraded`       what a connection asks of the protocol that has its bytes after an upgrade

The exchange is given objects of the first two. So it imports neither `connection` nor `worker`, and a handler cannot
reach the server through its exchange.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..runtime import Host
from .dates import DateLine
from .draining import Draining
from .errors import BadRequest
from .output import Output, OutputOwner
from .policy import Rule
from .state import Phase, Reason, Refusal
from .timeouts import Limits, Timeouts
from .wire import RequestParser


class HandlerTask:
    """What an exchange asks of the task that runs its handler. An abstract base class."""

    def arm(self, when: float) -> None:
        """Set the time at which the handler's deadline passes, absolute. `inf` disarms."""
        raise NotImplementedError

    @property
    def cancels_caller(self) -> bool:
        """True if a cancellation of the handler reaches the calling task; see `ContainedTask.cancels_caller`."""
        raise NotImplementedError

    def response_started(self) -> None:
        """Note that the head of the response waits for the first piece of the body."""
        raise NotImplementedError

    def call_in_context(self, function: Callable[[], object]) -> None:
        """Call `function()` in the context in which the handler runs, or has run."""
        raise NotImplementedError

    def not_needed(self) -> None:
        """Note that the connection does not need the handler any more: its response is sent, or nobody will get it. If
        the handler is suspended, the connection goes on in another task now, else when it suspends."""
        raise NotImplementedError

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function()`, which must not raise, in a later step of the event loop."""
        raise NotImplementedError


class Responder:
    """Answers one exchange by callbacks, in no task, as far as that needs no wait. An abstract base class.

    It calls only those methods of the exchange that do not wait. It calls `Exchange.go_on` once the response is
    complete, or once it cannot go on without a task, at the latest when `Exchange.deadline` passes: it is a task that
    ends a request by its deadline. Nothing here may raise.
    """

    def begin(self) -> None:
        """Begin: the exchange has no task now. Called once."""
        raise NotImplementedError

    def run(self) -> Awaitable[object]:
        """Return an awaitable that goes on in a task as a handler does. It is called at most once, after `go_on`, or
        because the client has sent something or has left: callbacks may still be due, and must do nothing then."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give up what the answer has needed: the connection has ended. Neither method is called after this."""
        raise NotImplementedError


class Upgraded:
    """A protocol that has a connection's bytes after a request for an upgrade was answered with 101, or from the first
    byte of a raw connection on. An abstract base class.

    The connection calls it, from the poller or any task; nothing here waits. It ends the connection by
    `ExchangeHost.end_upgraded`.
    """

    def began(self, host: ExchangeHost) -> None:
        """Begin on the connection `host`: what is sent from now on comes after the 101."""
        raise NotImplementedError

    @property
    def phase(self) -> Phase:
        """The phase of a connection whose bytes the protocol has, while no send is blocked."""
        return Phase.WEBSOCKET

    @property
    def full(self) -> bool:
        """True if the connection must not read on until `ExchangeHost.read_on` is called."""
        raise NotImplementedError

    @property
    def deadline(self) -> float:
        """When the protocol will act by itself, absolute; `inf` for never."""
        raise NotImplementedError

    def received(self, data: bytes) -> bool:
        """Take bytes of the peer. b"" means that the peer has ended its side. Return True if little was done with them
        and more are needed: what has come already is then read before other connections have their turn."""
        raise NotImplementedError

    def read_deadline_moved(self, when: float) -> None:
        """Note that the application has set the time by which the peer must have sent more."""
        raise NotImplementedError

    def timeouts_changed(self, before: Timeouts) -> None:
        """Note that the connection's timeouts are not `before` any more. Do nothing unless overridden."""

    def handler_left(self, failed: bool) -> None:
        """Note that the handler has returned, or `failed`: nobody sends or receives any more."""
        raise NotImplementedError

    def handler_expired(self, lateness: float) -> None:
        """End, because the deadline that the application has set for itself has passed. Its handler is cancelled. Not
        called while `ending`."""
        raise NotImplementedError

    def output_sent(self) -> None:
        """Note that nothing is pending any more, after the output was blocked."""
        raise NotImplementedError

    def drain(self) -> None:
        """End soon, because the server drains."""
        raise NotImplementedError

    @property
    def ending(self) -> bool:
        """True if the end has begun, which has a deadline of its own and needs no handler."""
        raise NotImplementedError

    @property
    def closed_by_handler(self) -> bool:
        """True if the handler has ended the protocol itself: nothing that it does afterwards is for the peer."""
        raise NotImplementedError

    def ended(self, reason: Reason) -> None:
        """Note that the connection is over, and tell those who wait. Called once."""
        raise NotImplementedError


class ExchangeHost(OutputOwner):
    """What an exchange asks of its connection. An abstract base class.

    It derives from OutputOwner for the connection's sake: a compiled class has one base only.
    """

    limits: Limits
    reader: RequestParser
    output: Output
    dates: DateLine
    # those under which the first piece of the output began to wait; a reload leaves them
    send_timeouts: Timeouts
    keep_alive_lines: bytes
    cancel_on_disconnect: bool
    drain_began: Draining
    phase: Phase
    draining: bool
    client: tuple[str, int] | None
    server_address: tuple[str, int | None] | None
    scheme: str
    # the host of the event loop
    loop: Host
    # whether a websocket may compress
    ws_compression: bool
    # when the connection becomes too old for anything new
    close_after: float
    # why the current request was refused, for its record; None unless it was
    refusal: Refusal | None

    def enter(self, phase: Phase, deadline: float) -> None:
        """Record that the connection is in `phase` and that its deadline is `deadline`. Arms nothing."""
        raise NotImplementedError

    def move(self, phase: Phase, when: float) -> None:
        """Apply a deadline that the application has set for the waits of `phase`. For BODY only while the exchange
        receives, or after an upgrade."""
        raise NotImplementedError

    def expired(self, rule: Rule, lateness: float) -> None:
        """End the connection as `rule` says, because its deadline has passed, `lateness` seconds ago."""
        raise NotImplementedError

    def count_expiry(self, lateness: float) -> float:
        """Count a deadline of the current phase that ends the connection, `lateness` seconds after it had passed.
        Return these, or 0.0 if they are negative."""
        raise NotImplementedError

    def refused(self, bad: BadRequest) -> None:
        """End the connection because the body is invalid or too large. The peer is told if no response was started."""
        raise NotImplementedError

    def lost(self, reason: Reason) -> None:
        """End because the peer is gone, for `reason`. Reset a response that is incomplete, if only the end of the
        connection ends its body."""
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

    def turn_is_long(self) -> bool:
        """Return True if a handler that sends one piece after another must let other tasks run."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Do what `Exchange.go_on` does."""
        raise NotImplementedError

    def hold_head(self) -> None:
        """Have the head of the response sent after `heads.HOLD`, if it is still unsent then."""
        raise NotImplementedError

    def upgrade(self, protocol: Upgraded, head: bytes) -> None:
        """Send `head`, which may be b"", and give all that the peer sends from now on to `protocol`. No task may wait
        for bytes."""
        raise NotImplementedError

    def read_on(self) -> None:
        """Read on after `Upgraded.full` was True. Idempotent."""
        raise NotImplementedError

    def end_upgraded(self, reason: Reason, lateness: float, unread: bool) -> None:
        """End the connection, which was upgraded, for `reason`, after what is pending was sent: a peer that does not
        take that within a few seconds is reset. `lateness`: seconds by which the deadline that ends it was late.
        `unread`: the peer may be sending bytes that nobody will read."""
        raise NotImplementedError

    def reset_upgraded(self, reason: Reason, lateness: float) -> None:
        """Reset the connection, which was upgraded, for `reason`, and discard what is pending. `lateness` as above."""
        raise NotImplementedError

    @property
    def was_left(self) -> bool:
        """True if the kernel has reported that the peer has left, even if that was not read yet."""
        raise NotImplementedError
