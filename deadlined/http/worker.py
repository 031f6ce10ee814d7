"""The tasks that serve connections: each serves one ready connection after another, and runs their handlers.

Facts      Making a trio task and a cancel scope costs more instructions than a small request; waking a task costs a
           seventh of a small request. A handler is foreign code: it may suspend for ever, go on after its response,
           leave scopes and nurseries open, or raise anything.
Hazard     A scope or nursery that a handler leaves open in its task harms the next request in that task. An exception
           that ends the task could end the server. Connections that are ready would wait for a handler that sleeps.
Answer     One worker is woken for all ready connections and serves them in one turn. When it suspends, each of the
           other ready connections gets a worker at once. If its handler's response is sent, the connection goes on in
           another worker; the handler stays behind in this one and keeps its deadline.
           Each worker has a nursery of its own, so that what ends its task ends nothing else. A task is used again only
           if the handler has left it with the scope stack and the nurseries that it began with.
Cost       Two tasks per worker, and one worker per busy handler. Up to _MOST_IDLE workers are kept when idle. A call
           per suspension.
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
from .base import ConnectionTask
from .connection import Connection
from .exchange import Exchange
from .reporting import report
from .settings import Handler
from .timeouts import INF

# the most workers that are kept while they have nothing to do; each holds a few kB
_MOST_IDLE: Final = 64


class WorkerPool:
    """The workers of a server, and the queue of the connections that are ready for one.

    The workers' tasks run in `nursery`. The caller cancels it at the end, because idle workers never return. Each
    request begins with the context variables of the code that makes the pool. The handlers' timers are in `poller`.
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
        # workers that were woken or started for ready connections and do not run yet
        self._coming = 0
        # once True the nursery may be closed: start nothing in it
        self._closed = False
        self.generators.install()

    def schedule(self, connection: Connection) -> None:
        """Let a worker run `connection` soon: one that was called already, an idle one, or a new one."""
        self._ready.append(connection)
        if not self._coming:
            self._call_worker()

    def call_workers(self) -> None:
        """Call a worker for each ready connection, because the worker that was to serve them suspends."""
        while self._coming < len(self._ready) and not self._closed:
            self._call_worker()

    def next(self) -> Connection | None:
        """Take the connection that has been ready for the longest time; None if none is ready."""
        return self._ready.popleft() if self._ready else None

    def arrived(self) -> None:
        """Note that a worker that was called runs now."""
        self._coming -= 1

    def add_idle(self, worker: Worker) -> bool:
        """Keep `worker` until it is needed. Return False if enough are kept; then it must end."""
        if len(self._idle) >= _MOST_IDLE:
            return False
        self._idle.append(worker)
        return True

    def remove_idle(self, worker: Worker) -> None:
        """Forget `worker`, whose task ends, if it is idle."""
        if worker in self._idle:
            self._idle.remove(worker)

    def close(self) -> None:
        """Start no worker any more. Once the workers' tasks have ended, the caller closes the remaining connections."""
        self._ready.clear()
        self._closed = True
        self.generators.remove()

    def _call_worker(self) -> None:
        """Wake an idle worker or start a new one. It runs in a later step of the event loop."""
        if self._closed:
            return
        self._coming += 1
        if self._idle:
            self._idle.pop().wake()
        else:
            self._nursery.start_soon(Worker(self).run)


class Worker(ConnectionTask):
    """Two tasks: an inner one that serves connections and runs their handlers, and an outer one that waits for it and
    catches what ends it. `run` is the outer task, `_serve` the inner one."""

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
        # the exchange whose handler runs now, None between two handlers
        self._exchange: Exchange | None = None
        self._timer: Timer | None = None
        # made in `_serve`, because they belong to the task that makes them
        self._context: TaskContext | None = None
        self._guard: TaskGuard | None = None
        self._parker: TaskParker | None = None
        # async generators that the current handler has abandoned since it last suspended
        self._abandoned: Generators = []
        # True if the task has suspended since the current handler began
        self._suspended = False
        # `cancel` was called: the end of the task is not the handler's failure
        self._cancelled = False
        # once False the inner task ends after its current connection
        self._usable = True

    async def run(self) -> None:
        """Run the inner task until it ends. If a handler has ended it, let the connection go on in another worker.

        Exceptions of the inner task are reported and not raised, except KeyboardInterrupt, which is meant for the
        program whichever task it hits. Cancellation of the whole server passes.
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
        try:
            # leave here if the server was cancelled: it closes all connections itself
            await checkpoint_if_cancelled()
            self._report_end(failure)
        finally:
            # its traceback refers to this frame
            failure = None

    # implements ConnectionTask and HandlerTask: called by the connection and its exchange

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
            if self._usable and not self._check_intact():
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
        """Detach the handler if it is suspended, which is so if another task has sent the response. Otherwise it is
        detached when it suspends."""
        if self._suspended and self._context is not None and not self._context.runs_now:
            self._detach_handler()

    def receive_ended(self) -> None:
        # in the next step: a task that receives in a loop may receive again in this one
        self._pool.call_soon(self.response_sent)

    # called by the pool and the timer, and the tasks themselves

    def wake(self) -> None:
        """Wake the inner task, which is parked as idle, to serve what is ready."""
        if self._parker is not None:
            self._parker.wake()

    def expire(self, lateness: float) -> None:
        """Cut the handler, because its deadline has passed. Do nothing if no handler runs or its deadline is `inf`: the
        timer was an earlier handler's.

        The connection does it if it still has this task, else the handler is only cancelled.
        """
        exchange = self._exchange
        if exchange is None or exchange.deadline == INF:
            return
        if self._connection is not None:
            self._connection.handler_expired(lateness)
        else:
            line = exchange.request.line
            report(logging.WARNING, "%s: cancelled after its response, by the handler deadline", line)
            self.cancel()

    def _report_end(self, failure: BaseException | None) -> None:
        """Tell the connection that its task has ended, or the log if no connection is left."""
        connection = self._connection
        if connection is not None:
            if failure is None and not self._cancelled:
                failure = RuntimeError("the handler has cancelled the nursery of the task that runs it")
            connection.task_lost(None if self._cancelled else failure)
        elif failure is not None and self._usable:
            report(logging.ERROR, "a handler ended its task after its response", error=failure)

    async def _serve(self) -> None:
        """Serve ready connections until the pool is full of idle workers or the task must not be used again."""
        pool = self._pool
        pool.arrived()
        self._context = TaskContext(pool.context)
        self._guard = TaskGuard()
        self._abandoned = pool.generators.collect()
        try:
            while self._usable:
                # no local name: it would keep the connection alive while this worker is idle
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
        """Sleep until `wake`."""
        if self._parker is None:
            self._parker = TaskParker(self._leave_pool)
        if self._context is not None:
            # the context of the last request would be kept alive
            self._context.renew()
        await self._parker
        self._pool.arrived()

    def _leave_pool(self) -> None:
        """Leave the idle workers, and disarm and drop the timer."""
        self._pool.remove_idle(self)
        if self._timer is not None:
            self._pool.poller.set_timer(self._timer, INF)
            self._timer.arg = None
            self._timer = None

    def _before_suspend(self) -> None:
        """Called before each suspension of the inner task: let nothing wait for this worker that need not."""
        self._suspended = True
        self._pool.call_workers()
        if self._abandoned:
            # they cannot wait for the handler's end: let the host close them, as in any other task
            self._pool.generators.hand_over(self._abandoned)
        self._detach_handler()

    def _detach_handler(self) -> None:
        """Let the connection go on without its handler if it does not need it any more."""
        if self._exchange is not None and self._connection is not None:
            self._connection.detach_handler()

    def _check_intact(self) -> bool:
        """Return True if the handler left nothing open in the task. Otherwise cancel what runs in open nurseries."""
        guard = self._guard
        if guard is None or guard.intact:
            return True
        guard.abandon()
        return False

    async def _close_abandoned(self) -> None:
        """Close the abandoned async generators, the latest first, and those that are abandoned meanwhile."""
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
