"""Where the handlers of one task run, one after another: its scope, its context, its timer.

Facts      A handler may go on after its response: frameworks call that background tasks.
Hazard     A connection that waits for it keeps its client's next request waiting, or its client's wait for the end.
Answer     A handler runs in its connection's task. If it goes to sleep when its response is out, the connection goes on
           in another task and leaves it behind, with its deadline. So it does when that deadline passes: how long a
           handler takes to end is not the peer's concern.
Cost       A look at each of a handler's sleeps; a task only where one is left behind.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ..runtime import TaskContext
from ..timers import Timer
from .phases import RULES
from .timeouts import INF

if TYPE_CHECKING:
    from .connection import HttpConnection
    from .exchange import Exchange
    from .pool import TaskPool

_log: Final = logging.getLogger("deadlined.http")


class Handling:
    """What a task of `pool` does: it serves `connection`, and so runs handlers. `scope` is its innermost cancel scope.

    `connection` is None when there is nothing to do, or a handler was left behind by its connection.
    """

    __slots__ = ("_context", "_exchange", "_slept", "_timer", "connection", "pool", "scope")

    def __init__(self, pool: TaskPool) -> None:
        self.connection: HttpConnection | None = None
        self.scope: trio.CancelScope | None = None
        self.pool: TaskPool = pool
        self._context: TaskContext | None = None
        self._timer: Timer | None = None
        # what the handler that runs now handles, and whether it has slept
        self._exchange: Exchange | None = None
        self._slept = False

    @property
    def is_free(self) -> bool:
        """True if the task can take the next connection."""
        return self.connection is None

    def renew(self) -> None:
        """From its next step on, the task runs in a fresh copy of the pool's context. To be called in the task."""
        self._own_context().renew()

    def cancel(self) -> None:
        """Cancel whatever runs in the task."""
        if self.scope is not None:
            self.scope.cancel()

    def begin(self, exchange: Exchange) -> None:
        """A handler of `exchange` is about to run in this task, and `end` will follow."""
        self._own_context()
        self._exchange = exchange
        self._slept = False
        exchange.handling = self
        if exchange.deadline < INF:
            self.arm(exchange.deadline)

    def end(self) -> None:
        """The handler has ended."""
        if self._exchange is not None:
            self._exchange.handling = None
            self._exchange = None

    def arm(self, when: float) -> None:
        """Cancel the handler that runs at `when`; `inf` disarms."""
        if self._timer is None:
            self._timer = Timer(_expire, self)
        self.pool.poller.set_timer(self._timer, when)

    def postpone(self, when: float) -> None:
        """Between two handlers: the first's timer stands until the next one moves it on, but need not fire before
        `when`. Stopped, it would have to be started anew."""
        if self._timer is not None and self._timer.when < when:
            self.pool.poller.set_timer(self._timer, when)

    def close(self) -> None:
        """The task ends."""
        if self._timer is not None:
            self.pool.poller.set_timer(self._timer, INF)
            self._timer.arg = None

    def expire(self, lateness: float) -> None:
        """The timer's time has come: it concerns a handler that runs and has a deadline, or else an earlier one's."""
        exchange = self._exchange
        if exchange is None or exchange.deadline == INF:
            return
        if exchange.past:
            _log.warning("%s: cancelled after its response, by the handler deadline", exchange.request.line)
        else:
            exchange.link.cut(RULES["handler"], lateness)
            self._leave(exchange)
        self.cancel()

    def look(self) -> None:
        """The task goes to sleep. If it runs a handler, need its connection wait for it?"""
        self._slept = True
        self.pool.look()
        exchange = self._exchange
        if exchange is not None and exchange.can_be_left:
            self._leave(exchange)

    def answered(self) -> None:
        """The response is out. If it was sent by a task that the handler has started, the handler sleeps already."""
        if self._slept and self._context is not None and not self._context.runs_now:
            self.look()

    def _own_context(self) -> TaskContext:
        """Made by the task itself, because only then it knows the task."""
        if self._context is None:
            self._context = TaskContext(self.pool.context)
        return self._context

    def _leave(self, exchange: Exchange) -> None:
        """Let the connection go on in another task."""
        exchange.end()
        self.connection = None
        exchange.link.detach()
        self.pool.serve(exchange.link)


def _expire(handling: Handling, seq: int, lateness: float) -> None:
    handling.expire(lateness)
