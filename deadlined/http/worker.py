"""The tasks that serve ready connections and run their handlers.

Facts      A handler is foreign code: it may suspend for ever, go on after its response, leave its task in any state, or
           raise anything.
Hazard     What a handler leaves in its task would harm the next request there. On asyncio a cancellation reaches the
           tasks that the handler has started only if the handler passes it on. Quart and Django, which wait for a task
           that receives and a task that answers, leave both running.
Answer     A worker's task is contained (`runtime/tasks.py`): whatever a handler does to it ends at most its own
           request. If a handler's response is sent and the handler suspends, the connection goes on in another worker;
           the handler stays behind in this one and keeps its deadline. If another task of a handler waits for the
           peer on asyncio, or is about to, that task receives a disconnect first, and the handler is cancelled only if
           it still runs after DISCONNECT_GRACE: the exchange notes who was told.
Cost       A task per busy handler.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ..runtime import ContainedTask
from ..timers import Timer
from .base import ConnectionBase
from .connection import Connection
from .exchange import Exchange
from .policy import UPGRADE_GRACE
from .pool import PoolWorker, WorkerPool
from .reporting import report
from .settings import Handler
from .state import DEAD
from .timeouts import INF

# States of the cancellation of a worker's handler, in the order in which they follow one another. The last two are only
# for a handler that must be told of its end first. If the server itself is cancelled, CANCELLED is left out
UNCUT: Final = 0
CANCELLED: Final = 1  # the task is cancelled, or will be in a later step
TOLD: Final = 2  # `_put_off` has put the cancellation off until the timer fires, so that the handler can be told
CANCELLED_AGAIN: Final = 3  # the timer has fired: as CANCELLED


class Worker(PoolWorker):
    """Serves connections and runs their handlers, in one contained task."""

    __slots__ = (
        "_arrived",
        "_connection",
        "_cut",
        "_exchange",
        "_has_ended",
        "_left",
        "_pool",
        "_task",
        "_timer",
        "_usable",
    )

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._task: Final[ContainedTask] = pool.tasks.new(self._serve, self._before_suspend, self._ended, self._put_off)
        # False until the task runs its first step
        self._arrived = False
        self._connection: Connection | None = None
        # the exchange whose handler runs now, None between two handlers
        self._exchange: Exchange | None = None
        # that of a handler which has just left, if the connection had gone on without it
        self._left: Exchange | None = None
        self._timer: Timer | None = None
        # UNCUT, CANCELLED, TOLD or CANCELLED_AGAIN
        self._cut: int = UNCUT
        # once False the task ends after its current connection
        self._usable = True
        # the task serves nothing any more
        self._has_ended = False

    # implements ConnectionTask and HandlerTask: called by the connection and its exchange

    def run_handler(self, handler: Handler, exchange: Exchange) -> Awaitable[object]:
        self._exchange = exchange
        exchange.task = self
        if exchange.deadline < INF:
            self.arm(exchange.deadline)
        return self._task.run(handler, exchange)

    def close_generators(self) -> Awaitable[None] | None:
        return self._task.close_generators()

    def handler_left(self) -> bool:
        exchange = self._exchange
        if exchange is not None:
            exchange.task = None
            self._exchange = None
            if self._connection is None:
                self._left = exchange
            if (exchange.link == DEAD or exchange.upgraded) and self._timer is not None:
                # it may have been armed to end this handler soon
                self._pool.poller.set_timer(self._timer, INF)
            if self._usable and not self._task.check():
                self._usable = False
                line = exchange.request.line
                text = "%s left a scope, nursery, task, deadline or shield behind; its task is not used again"
                report(logging.WARNING, text, line)
        return self._usable

    @property
    def fresh(self) -> bool:
        return self._task.fresh

    def flush_later(self, connection: ConnectionBase) -> bool:
        return self._pool.flush_later(connection, self._task)

    def turn_is_long(self) -> bool:
        return self._pool.turn_is_long()

    def release(self) -> None:
        self._connection = None

    def cancel(self) -> None:
        self._usable = False
        if self._cut != UNCUT:
            return
        if self._exchange is not None:
            self._exchange.tell_others()
        self._cancel_task(CANCELLED)

    def _cancel_task(self, cut: int) -> None:
        """Cancel the task, which asks `_put_off` first. `cut`: CANCELLED or CANCELLED_AGAIN."""
        self._cut = cut
        # in a later step: a send that the end of the connection has woken returns first, on asyncio, too
        self._pool.tasks.call_soon(self._task.cancel)

    def arm(self, when: float) -> None:
        if self._cut >= TOLD:
            return
        if self._timer is None:
            self._timer = Timer(_expire, self)
        self._pool.poller.set_timer(self._timer, when)

    @property
    def cancels_caller(self) -> bool:
        return self._task.cancels_caller

    def response_started(self) -> None:
        if self._task.runs_now:
            self._task.watch()
        elif self._exchange is not None:
            # another task of the handler sends, and this one is suspended
            self._pool.heads.add(self._exchange)

    def call_in_context(self, function: Callable[[], object]) -> None:
        self._task.call_in_context(function)

    def not_needed(self) -> None:
        if self._task.runs_now:
            self._task.watch()
        else:
            # the last piece may wait for the end of the turn, when nothing asks whether it has left
            self._pool.flush()
            self._detach_handler()

    def call_soon(self, function: Callable[[], object]) -> None:
        self._pool.tasks.call_soon(function)

    # implements PoolWorker

    def start(self) -> None:
        self._task.start()

    def wake(self) -> None:
        self._task.wake()

    def call_others(self) -> None:
        if not self._has_ended:
            self._pool.call_workers()

    # called by the timer and the task

    def expire(self, lateness: float) -> None:
        """Cut the handler, because its deadline has passed: through the connection, which answers or resets, if this
        worker still has it. One that was told is cancelled, because its grace has passed.

        Do nothing if no handler runs or its deadline is `inf`: the timer was an earlier handler's. Do nothing if the
        handler was cancelled already: on asyncio a second cancellation would interrupt its clean-up.
        """
        exchange = self._exchange
        if exchange is None or self._is_cancelled:
            return
        if self._cut == TOLD:
            self._cancel_task(CANCELLED_AGAIN)
            return
        if exchange.deadline == INF:
            return
        if self._connection is not None and not self._connection.detach_answered():
            self._connection.handler_expired(lateness)
        else:
            if exchange.link != DEAD or exchange.upgraded:
                report(logging.WARNING, "%s: cancelled %s", exchange.request.line, _why_cancelled(exchange))
            self.cancel()

    @property
    def _is_cancelled(self) -> bool:
        """True if the task is cancelled: its end is not the handler's failure."""
        return self._cut in (CANCELLED, CANCELLED_AGAIN)

    async def _serve(self) -> None:
        """Serve ready connections until none is left and the pool does not keep this worker, or its task must not be
        used again."""
        pool = self._pool
        pool.begun(self)
        self._arrived = True
        self._task.entered()
        try:
            while self._usable and self._task.fresh:
                # no local name: it would keep the connection alive while this worker is idle
                self._connection = pool.next()
                if self._connection is not None:
                    await self._connection.run(self)
                    self._connection = self._left = None
                elif pool.add_idle(self):
                    await self._task.park(self._leave_pool)
                    pool.arrived()
                else:
                    return
        finally:
            # the hook is not called at the end of a task
            pool.flush_unless_called()
            self._task.left()
            self._leave_pool()
            self._has_ended = True
            pool.ended()

    def _leave_pool(self) -> None:
        """Leave the idle workers, and disarm and drop the timer."""
        self._pool.remove_idle(self)
        if self._timer is not None:
            self._pool.poller.set_timer(self._timer, INF)
            self._timer.arg = None
            self._timer = None

    def _ended(self, failure: BaseException | None) -> None:
        """Let the connection go on in another worker if a handler has ended the task. Log the failure if this worker
        has no connection any more."""
        if not self._arrived:
            # foreign code has cancelled the task before its first step
            self._pool.arrived()
            self._pool.call_workers()
            return
        connection = self._connection
        if connection is not None:
            if failure is None and not self._is_cancelled:
                failure = RuntimeError("the handler has cancelled the task that runs it")
            # loggers and observers find there what the application says of its request
            self._task.call_in_context(partial(connection.task_lost, None if self._is_cancelled else failure))
        elif failure is not None and self._usable and not isinstance(failure, KeyboardInterrupt):
            text = _how_ended(self._left)
            self._task.call_in_context(partial(report, logging.ERROR, "%s", text, error=failure))

    def _put_off(self) -> bool:
        """Tell the handler that it ends, if it must be told before a cancellation. Return True if its grace is not
        over: then the timer cancels it."""
        exchange = self._exchange
        if exchange is None:
            return False
        if self._cut < TOLD and self._connection is not None:
            self._connection.tell_others()
        if exchange.spared_until <= self._pool.poller.clock.now():
            return False
        self.arm(exchange.spared_until)
        # from now on `arm` does not move that time
        self._cut = TOLD
        return True

    def _before_suspend(self) -> None:
        """Called when the task suspends: send its output, call workers for the other connections, and let its own go on
        if it can."""
        exchange = self._exchange
        if exchange is not None and exchange.writer.complete and not exchange.upgraded:
            # the connection goes on without this handler once the response has left
            self._pool.flush()
        else:
            self._pool.flush_unless_called()
            if exchange is not None and exchange.holds_head:
                self._pool.heads.add(exchange)
        self._pool.leave_others()
        self._detach_handler()

    def _detach_handler(self) -> None:
        """Let the connection go on without its handler if it does not need it any more."""
        if self._exchange is not None and self._connection is not None:
            self._connection.detach_handler()


def _why_cancelled(exchange: Exchange) -> str:
    """Say why a detached handler is cancelled."""
    if not exchange.upgraded:
        return "after its response, by the handler deadline"
    return f"{UPGRADE_GRACE:g} s after its end" if exchange.ends_soon else "after its end, by the handler deadline"


def _how_ended(left: Exchange | None) -> str:
    """Say how a task has failed that has no connection any more: by the handler of `left`, None if none has left."""
    if left is None:
        return "a task of the server failed"
    answered = left.writer.complete and not left.upgraded
    return f"{left.request.line} ended its task after {'its response' if answered else 'the end of its connection'}"


def _expire(worker: Worker, seq: int, lateness: float) -> None:
    worker.expire(lateness)
