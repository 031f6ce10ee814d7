"""The tasks that serve ready connections and run their handlers.

Facts      Waking a task costs a seventh of what serving a small request costs. A handler is foreign code: it may
           suspend for ever, go on after its response, leave its task in any state, or raise anything.
Hazard     Connections that are ready would wait for a handler that sleeps. What a handler leaves in its task would harm
           the next request there.
Answer     A worker's task is contained (`runtime/tasks.py`): whatever a handler does to it ends at most its own
           request. One worker is called for all ready connections and serves them in one turn; when it suspends,
           each of the other ready connections gets a worker at once. When its task must end, one worker takes the
           others on trio; on asyncio, where most tasks serve one handler, each gets one.
           If a handler's response is sent and the handler suspends, the connection goes on in another worker; the
           handler stays behind in this one and keeps its deadline.
Cost       A task per busy handler. Where tasks can be parked, idle ones stay: up to _MOST_IDLE, or as many as are busy.
           On asyncio a callback sees whether a new worker has suspended in its first step, if others are ready.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable
from typing import Final

from ..poll import Poller
from ..runtime import ContainedTask, ContainedTasks
from ..timers import Timer
from .base import ConnectionBase, ConnectionTask
from .connection import Connection
from .exchange import Exchange
from .reporting import report
from .settings import Handler
from .state import DEAD
from .timeouts import INF

# seconds for which responses may wait for the end of the turn while others join them
_LONGEST_TURN: Final = 0.0005

# idle workers that are kept however few are busy; each holds a few kB
_MOST_IDLE: Final = 64

# with more busy workers than this, one callback sends the output of all of them at the end of the turn
_MANY: Final = 4


class WorkerPool:
    """The workers of a server, and the queue of the connections that are ready for one.

    The workers run in `tasks`, whose block the caller leaves at the end. The handlers' timers are in `poller`.
    """

    __slots__ = (
        "_closed",
        "_coming",
        "_flush_called",
        "_idle",
        "_ready",
        "_unflushed",
        "_unflushed_since",
        "_workers",
        "poller",
        "tasks",
    )

    def __init__(self, tasks: ContainedTasks, poller: Poller) -> None:
        self.tasks: Final = tasks
        self.poller: Final = poller
        self._idle: list[Worker] = []
        self._ready: deque[Connection] = deque()
        # connections with output to be sent at the end of the turn, and when the first of them was added
        self._unflushed: list[ConnectionBase] = []
        self._unflushed_since = INF
        # `flush` will be called in the next step of the event loop
        self._flush_called = False
        # workers that run or are idle
        self._workers = 0
        # workers that were woken or started for ready connections and do not run yet
        self._coming = 0
        # once True `tasks` may be closed: start nothing in it
        self._closed = False

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

    def begun(self, worker: Worker) -> None:
        """Note that `worker`, which is new, runs."""
        self._coming -= 1
        self._workers += 1
        if not (self._coming or self.tasks.parks) and len(self._ready) > 1:
            # no hook reports that this worker suspends, and no other worker is coming: check after its first step
            self.tasks.call_soon(worker.call_others)

    def arrived(self) -> None:
        """Note that an idle worker that was called runs now, or that a new one will never run."""
        self._coming -= 1

    def ended(self) -> None:
        """Note that a worker that has run ends."""
        self._workers -= 1
        if self._ready and not self._coming:
            # connections are ready, and its task must not run another handler
            if self.tasks.parks:
                self._call_worker()
            else:
                # each of the others is likely to serve one connection only, too
                self.call_workers()

    def add_idle(self, worker: Worker) -> bool:
        """Keep `worker` until it is needed. Return False if it must end, because enough are kept or no task can be
        parked."""
        idle = len(self._idle)
        if not self.tasks.parks or (idle >= _MOST_IDLE and 2 * idle >= self._workers):
            return False
        self._idle.append(worker)
        return True

    def remove_idle(self, worker: Worker) -> None:
        """Forget `worker`, whose task ends, if it is idle."""
        if worker in self._idle:
            self._idle.remove(worker)

    def flush_later(self, connection: ConnectionBase, task: ContainedTask) -> bool:
        """Have `connection.flush` called when the turn ends, or when more is to be sent and the first has waited for
        _LONGEST_TURN. `task` runs the connection. Return False if nothing would notice the end of the caller's turn: on
        trio, if the caller is not `task`."""
        tasks = self.tasks
        if tasks.parks and not task.runs_now:
            # no hook is called when the caller suspends
            return False
        now = self.poller.clock.now()
        if not self._unflushed:
            self._unflushed_since = now
            # one call for the output of all tasks that run in this turn
            if not self._flush_called and (not tasks.parks or self._workers - len(self._idle) > _MANY):
                self._flush_called = True
                tasks.call_soon(self._flush_as_called)
        elif now - self._unflushed_since > _LONGEST_TURN:
            self.flush()
            return self.flush_later(connection, task)
        self._unflushed.append(connection)
        return True

    def flush(self) -> None:
        """Let all connections send what they have kept for the end of the turn."""
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, []
            for connection in unflushed:
                try:
                    connection.flush()
                except Exception as error:
                    # the others must be sent nevertheless
                    report(
                        logging.ERROR, "the connection with %s failed inside the server", connection.peer, error=error
                    )

    def flush_unless_called(self) -> None:
        """Flush now, because a worker's turn ends, unless it will be done for all workers at once."""
        if not self._flush_called:
            self.flush()

    def _flush_as_called(self) -> None:
        self._flush_called = False
        self.flush()

    def close(self) -> None:
        """Start no worker any more. Once the workers' tasks have ended, the caller closes the remaining connections."""
        self._ready.clear()
        self._closed = True

    def _call_worker(self) -> None:
        """Wake an idle worker or start a new one. It runs in a later step of the event loop."""
        if self._closed:
            return
        self._coming += 1
        if self._idle:
            self._idle.pop().wake()
        else:
            Worker(self).start()


class Worker(ConnectionTask):
    """Serves connections and runs their handlers, in one contained task."""

    __slots__ = (
        "_arrived",
        "_cancelled",
        "_connection",
        "_exchange",
        "_has_ended",
        "_pool",
        "_task",
        "_timer",
        "_usable",
    )

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._task: Final[ContainedTask] = pool.tasks.new(self._serve, self._before_suspend, self._ended)
        # False until the task runs its first step
        self._arrived = False
        self._connection: Connection | None = None
        # the exchange whose handler runs now, None between two handlers
        self._exchange: Exchange | None = None
        self._timer: Timer | None = None
        # `cancel` was called: the end of the task is not the handler's failure
        self._cancelled = False
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
            if (exchange.link == DEAD or exchange.upgraded) and self._timer is not None:
                # it may have been armed to end this handler soon
                self._pool.poller.set_timer(self._timer, INF)
            if self._usable and not self._task.check():
                self._usable = False
                line = exchange.request.line
                report(logging.WARNING, "%s left a scope, a nursery or a task open; its task is not used again", line)
        return self._usable

    @property
    def fresh(self) -> bool:
        return self._task.fresh

    def flush_later(self, connection: ConnectionBase) -> bool:
        return self._pool.flush_later(connection, self._task)

    def release(self) -> None:
        self._connection = None

    def cancel(self) -> None:
        self._cancelled = True
        self._usable = False
        self._task.cancel()

    def arm(self, when: float) -> None:
        if self._timer is None:
            self._timer = Timer(_expire, self)
        self._pool.poller.set_timer(self._timer, when)

    def response_sent(self) -> None:
        """Detach the handler if it is suspended, because another task has sent the response. Otherwise it is detached
        when it suspends."""
        if self._task.runs_now:
            self._task.watch()
        else:
            self._detach_handler()

    def receive_ended(self) -> None:
        # in the next step: a handler that receives in a loop begins its next receive in this one
        self._pool.tasks.call_soon(self.response_sent)

    # called by the pool, the timer and the task

    def start(self) -> None:
        """Let the task run soon."""
        self._task.start()

    def wake(self) -> None:
        """Wake the task, which is parked as idle, to serve what is ready."""
        self._task.wake()

    def call_others(self) -> None:
        """Call workers for the other ready connections, because this worker has suspended. If it has ended instead,
        `ended` has called them, and for connections that have become ready since a worker is coming."""
        if not self._has_ended:
            self._pool.call_workers()

    def expire(self, lateness: float) -> None:
        """Cut the handler, because its deadline has passed: through the connection, which answers or resets, if this
        worker still has it.

        Do nothing if no handler runs or its deadline is `inf`: the timer was an earlier handler's. Do nothing if the
        handler was cancelled already: on asyncio a second cancellation would interrupt its clean-up.
        """
        exchange = self._exchange
        if exchange is None or exchange.deadline == INF or self._cancelled:
            return
        if self._connection is not None:
            self._connection.handler_expired(lateness)
        else:
            report(logging.WARNING, "%s: cancelled %s", exchange.request.line, _why_cancelled(exchange))
            self.cancel()

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
                    self._connection = None
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
            if failure is None and not self._cancelled:
                failure = RuntimeError("the handler has cancelled the task that runs it")
            connection.task_lost(None if self._cancelled else failure)
        elif failure is not None and self._usable:
            report(logging.ERROR, "a handler ended its task after its response", error=failure)

    def _before_suspend(self) -> None:
        """Called when the task suspends: send its output, call workers for the other connections, and let its own go on
        if it can."""
        exchange = self._exchange
        if exchange is not None and exchange.writer.complete and not exchange.upgraded:
            # the connection goes on without this handler once the response has left
            self._pool.flush()
        else:
            self._pool.flush_unless_called()
        self._pool.call_workers()
        self._detach_handler()

    def _detach_handler(self) -> None:
        """Let the connection go on without its handler if it does not need it any more."""
        if self._exchange is not None and self._connection is not None:
            self._connection.detach_handler()


def _why_cancelled(exchange: Exchange) -> str:
    """Say why a detached handler is cancelled."""
    if exchange.upgraded:
        return "10 s after its end"
    # the handler has caught Disconnected, or is still cleaning up
    return "1 s after its client had left" if exchange.link == DEAD else "after its response, by the handler deadline"


def _expire(worker: Worker, seq: int, lateness: float) -> None:
    worker.expire(lateness)
