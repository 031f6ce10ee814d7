"""The tasks that serve connections: each serves one ready connection after another, and runs their handlers.

Facts      A task and a cancel scope of trio cost more instructions than a small request, and waking a task a seventh of
           one. A handler is foreign code: it may suspend for ever, go on after its response, leave scopes and nurseries
           open, or raise anything.
Hazard     What a handler leaves in its task harms the next request there; what its task fails with harms the server;
           and connections that are ready behind a handler that sleeps wait for it.
Answer     One worker is woken for all connections that are ready and serves them in one turn. When it suspends, the
           others get a worker each, at once; and if the response of its handler is out, the connection goes on in
           another worker and leaves the handler behind, with its deadline.
           Each worker has a nursery of its own, so that whatever ends its task ends nothing else. After a handler
           returns, the task has the scope stack and the nurseries it began with, or it is not used again.
Cost       Two tasks per worker: as many workers as handlers were busy at the same time, up to a limit. A call per
           suspension.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable
from contextvars import copy_context
from typing import Final

import trio

from ..poll import Poller
from ..runtime import (
    AbandonedGenerators,
    Generators,
    RunInContextCopy,
    TaskContext,
    TaskGuard,
    TaskParker,
    call_soon,
    checkpoint_if_cancelled,
    with_suspend_hook,
)
from ..timers import Timer
from .connection import Connection, ConnectionTask
from .exchange import Exchange
from .reporting import report
from .settings import Handler
from .timeouts import INF

# workers that are kept while there is nothing to do, a few kB each
_MOST_IDLE: Final = 64


class WorkerPool:
    """Runs connections in workers, whose tasks are in `nursery`. Cancel it in the end: idle workers are in it, too.

    Each request begins with the context variables of the caller that makes this. `poller` has the timers of the
    handlers.
    """

    __slots__ = ("_closed", "_coming", "_idle", "_nursery", "_ready", "call_soon", "context", "generators", "poller")

    def __init__(self, nursery: trio.Nursery, poller: Poller) -> None:
        self._nursery = nursery
        self.poller = poller
        self.context = copy_context()
        self.generators = AbandonedGenerators()
        self.call_soon = call_soon()
        self._idle: list[Worker] = []
        self._ready: deque[Connection] = deque()
        # workers that were woken or started for connections that are ready, and have not taken one yet
        self._coming = 0
        # the nursery may be closed already
        self._closed = False
        self.generators.install()

    def schedule(self, connection: Connection) -> None:
        """Let a worker run `connection`, soon: one that is on its way, an idle one, or a new one."""
        self._ready.append(connection)
        if not self._coming:
            self._call_worker()

    def call_workers(self) -> None:
        """Call a worker for each connection that is ready: the one that was to take them suspends."""
        while self._coming < len(self._ready) and not self._closed:
            self._call_worker()

    def next(self) -> Connection | None:
        """Take the connection that has been ready for the longest time."""
        return self._ready.popleft() if self._ready else None

    def arrived(self) -> None:
        """A worker that was called runs."""
        self._coming -= 1

    def add_idle(self, worker: Worker) -> bool:
        """Keep `worker` until it is needed. False if enough are kept."""
        if len(self._idle) >= _MOST_IDLE:
            return False
        self._idle.append(worker)
        return True

    def remove_idle(self, worker: Worker) -> None:
        """Forget an idle worker whose task ends."""
        if worker in self._idle:
            self._idle.remove(worker)

    def close(self) -> None:
        """Start nothing any more. Connections that are left are the caller's to close, once the tasks are gone."""
        self._ready.clear()
        self._closed = True
        self.generators.remove()

    def _call_worker(self) -> None:
        if self._closed:
            return
        self._coming += 1
        if self._idle:
            self._idle.pop().wake()
        else:
            self._nursery.start_soon(Worker(self).run)


class Worker(ConnectionTask):
    """A task that serves connections, and a task around it that contains what ends it. `run` is the outer one."""

    __slots__ = (
        "_abandoned",
        "_cancelled",
        "_connection",
        "_context",
        "_exchange",
        "_guard",
        "_nursery",
        "_parker",
        "_pool",
        "_suspended",
        "_timer",
        "_usable",
    )

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._nursery: trio.Nursery | None = None
        self._connection: Connection | None = None
        # the handler that runs now is this exchange's
        self._exchange: Exchange | None = None
        self._timer: Timer | None = None
        # made by the task itself, because only then it knows the task
        self._context: TaskContext | None = None
        self._guard: TaskGuard | None = None
        self._parker: TaskParker | None = None
        # async generators that the handler which runs now has abandoned
        self._abandoned: Generators = []
        # the task has suspended since the current handler began
        self._suspended = False
        self._cancelled = False
        self._usable = True

    async def run(self) -> None:
        """Serve connections. When that ends, for whatever reason, the connection that was being served goes on in
        another worker.

        Only KeyboardInterrupt passes: it is meant for the program, whichever task it hits.
        """
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(with_suspend_hook, self._serve(), self._before_suspend)
        except BaseException as error:
            failure = error
        self._leave_pool()
        if failure is not None and _is_interrupt(failure):
            raise KeyboardInterrupt from failure
        # if it is the server that was cancelled, it closes all connections itself
        await checkpoint_if_cancelled()
        connection = self._connection
        if connection is not None:
            if failure is None and not self._cancelled:
                failure = RuntimeError("the handler has cancelled the nursery of the task that runs it")
            connection.task_lost(None if self._cancelled else failure)
        elif failure is not None and self._usable:
            report(logging.ERROR, "a handler ended its task after its response", error=failure)

    # what a connection and its exchange ask of it

    def run_handler(self, handler: Handler, exchange: Exchange) -> Awaitable[object]:
        self._exchange = exchange
        self._suspended = False
        exchange.task = self
        if exchange.deadline < INF:
            self.arm(exchange.deadline)
        return RunInContextCopy(self._pool.context, handler, exchange)

    def close_generators(self) -> Awaitable[None] | None:
        return self._close_abandoned() if self._abandoned else None

    def handler_left(self) -> bool:
        exchange = self._exchange
        if exchange is not None:
            exchange.task = None
            self._exchange = None
            if self._usable and not self._is_intact():
                self._usable = False
                line = exchange.request.line
                report(logging.WARNING, "%s left a scope, a nursery or a task open; its task is not used again", line)
        return self._usable

    def release(self) -> None:
        self._connection = None

    def cancel(self) -> None:
        self._cancelled = True
        self._usable = False
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def arm(self, when: float) -> None:
        if self._timer is None:
            self._timer = Timer(_expire, self)
        self._pool.poller.set_timer(self._timer, when)

    def response_sent(self) -> None:
        """If a task that the handler has started sent it, the handler is suspended already."""
        if self._suspended and self._context is not None and not self._context.runs_now:
            self._detach_handler()

    def receive_ended(self) -> None:
        # a task that receives in a loop does so again in the same step
        self._pool.call_soon(self.response_sent)

    # its tasks

    def wake(self) -> None:
        """Serve what is ready; only while it is idle."""
        if self._parker is not None:
            self._parker.wake()

    def expire(self, lateness: float) -> None:
        """The timer has fired. It means nothing if no handler runs or its deadline was removed: then it belonged to an
        earlier handler."""
        exchange = self._exchange
        if exchange is None or exchange.deadline == INF:
            return
        if self._connection is not None:
            self._connection.handler_expired(lateness)
        else:
            line = exchange.request.line
            report(logging.WARNING, "%s: cancelled after its response, by the handler deadline", line)
            self.cancel()

    async def _serve(self) -> None:
        """The inner task."""
        pool = self._pool
        pool.arrived()
        self._context = TaskContext(pool.context)
        self._guard = TaskGuard()
        self._abandoned = pool.generators.collect()
        try:
            while self._usable:
                # no name for the connection: it would be kept while it is unattended, or the worker idle
                self._connection = pool.next()
                if self._connection is not None:
                    await self._connection.run(self)
                    self._connection = None
                elif pool.add_idle(self):
                    await self._park()
                else:
                    return
        finally:
            pool.generators.forget(self._abandoned)

    async def _park(self) -> None:
        if self._parker is None:
            self._parker = TaskParker(self._leave_pool)
        if self._context is not None:
            # keep nothing of the last request
            self._context.renew()
        await self._parker
        self._pool.arrived()

    def _leave_pool(self) -> None:
        self._pool.remove_idle(self)
        if self._timer is not None:
            self._pool.poller.set_timer(self._timer, INF)
            self._timer.arg = None
            self._timer = None

    def _before_suspend(self) -> None:
        self._suspended = True
        self._pool.call_workers()
        if self._abandoned:
            # the handler goes on: they are the host's to close, as in any other task
            self._pool.generators.hand_over(self._abandoned)
        self._detach_handler()

    def _detach_handler(self) -> None:
        """Let the connection go on without its handler, if the response is out."""
        if self._exchange is not None and self._connection is not None:
            self._connection.detach_handler()

    def _is_intact(self) -> bool:
        guard = self._guard
        if guard is None or guard.intact:
            return True
        guard.abandon()
        return False

    async def _close_abandoned(self) -> None:
        while self._abandoned:
            generators = self._abandoned[::-1]
            self._abandoned.clear()
            for generator in generators:
                try:
                    await generator.aclose()
                except Exception as error:
                    report(logging.ERROR, "an async generator failed as it was closed", error=error)


def _expire(worker: Worker, seq: int, lateness: float) -> None:
    worker.expire(lateness)


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_interrupt(inner) for inner in error.exceptions)
    return isinstance(error, KeyboardInterrupt)
