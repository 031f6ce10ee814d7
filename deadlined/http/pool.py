"""The pool of a server's workers, which serve the connections that are ready.

Facts      Waking a task costs a seventh of what serving a small request costs. A task whose handler ends can serve
           another connection in the same step.
Hazard     Connections that are ready would wait for a handler that sleeps. A worker that is woken for a connection
           which another one takes meanwhile is woken for nothing. A thousand handlers that send a hundred pieces each,
           none of which must wait, hold up all others for a second.
Answer     Workers: one is called for all ready connections, and serves them one after another in one turn of the event
           loop. If a handler makes it suspend, each of the other ready connections gets a worker of its own: at once on
           asyncio, at the end of the turn on trio, where handlers that end in the turn may have freed workers. If its
           task must end, the others get one worker on trio, and one each on asyncio, where most tasks serve one
           handler.
           Turns: the pool knows when one ends, because its workers suspend then, and has what is unsent sent
           (`unsent.py`). Once a turn has lasted for _FAIR_TURN, a handler that sends a piece, and will send more, lets
           other tasks run.
Cost       On trio, where tasks can be parked, idle workers stay: up to _MOST_IDLE, or as many as are busy. On asyncio,
           if a new worker is started while several connections are ready, a callback after its first step checks
           whether it has suspended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..poll import Poller
from ..runtime import ContainedTask, ContainedTasks
from .base import ConnectionBase
from .connection import Connection
from .heads import HeldHeads
from .owner import ConnectionTask
from .timeouts import INF
from .unsent import AT_ONCE, FIRST, Unsent

# handlers that send one piece after another let other tasks run once a turn has lasted for so long
_FAIR_TURN: Final = 0.005

# idle workers that are kept however few are busy; each holds a few kB
_MOST_IDLE: Final = 64

# with more busy workers than this, one callback sends the output of all of them at the end of the turn
_MANY: Final = 4


class PoolWorker(ConnectionTask):
    """A worker as its pool sees it. An abstract base class."""

    __slots__ = ()

    def start(self) -> None:
        """Let the task run soon."""
        raise NotImplementedError

    def wake(self) -> None:
        """Wake the task, which is parked as idle, to serve what is ready."""
        raise NotImplementedError

    def call_others(self) -> None:
        """Call workers for the other ready connections, because this worker has suspended in its first step. Do nothing
        if it has ended there: then `WorkerPool.ended` has called them."""
        raise NotImplementedError


class WorkerPool:
    """The workers of a server, and the queue of the connections that are ready for one.

    `new_worker` makes the workers. They run in `tasks`, whose block the caller leaves at the end. The handlers' timers
    are in `poller`.
    """

    __slots__ = (
        "_closed",
        "_coming",
        "_end_called",
        "_idle",
        "_new_worker",
        "_others_wait",
        "_ready",
        "_turn_began",
        "_turns",
        "_unsent",
        "_workers",
        "heads",
        "poller",
        "tasks",
    )

    def __init__(self, tasks: ContainedTasks, poller: Poller, new_worker: Callable[[WorkerPool], PoolWorker]) -> None:
        self.tasks: Final = tasks
        self.poller: Final = poller
        self.heads: Final = HeldHeads(poller)
        self._new_worker: Final = new_worker
        self._idle: list[PoolWorker] = []
        self._ready: deque[Connection] = deque()
        self._unsent: Final = Unsent(poller.clock)
        # when `turn_is_long` was first called in this turn, inf if it was not
        self._turn_began = INF
        # the number of the turn in which that was; 0 where nobody counts turns
        self._turns = 0
        # `_end_turn` will be called
        self._end_called = False
        # `_end_turn` must call workers for the ready connections
        self._others_wait = False
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

    def leave_others(self) -> None:
        """Have workers called for the other ready connections, because the worker that was to serve them suspends.

        Where tasks are parked, this is done when the turn ends: workers whose handlers end in it may take some.
        """
        if not self.tasks.parks:
            self.call_workers()
        elif self._coming < len(self._ready):
            self._others_wait = True
            self._call_end()

    def next(self) -> Connection | None:
        """Take the connection that has been ready for the longest time; None if none is ready."""
        return self._ready.popleft() if self._ready else None

    def begun(self, worker: PoolWorker) -> None:
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

    def add_idle(self, worker: PoolWorker) -> bool:
        """Keep `worker` until it is needed. Return False if it must end, because enough are kept or no task can be
        parked."""
        idle = len(self._idle)
        if not self.tasks.parks or (idle >= _MOST_IDLE and 2 * idle >= self._workers):
            return False
        self._idle.append(worker)
        return True

    def remove_idle(self, worker: PoolWorker) -> None:
        """Forget `worker`, whose task ends, if it is idle."""
        if worker in self._idle:
            self._idle.remove(worker)

    def flush_later(self, connection: ConnectionBase, task: ContainedTask | None) -> bool:
        """Have `connection.flush` called when the turn ends, or earlier, as `Unsent` says. `task` runs the connection;
        None if it has no task.

        Return False if the connection must flush at once: because handlers block the event loop, or because nothing
        would notice the end of this turn. On trio nothing does if the caller is another task than `task`.
        """
        tasks = self.tasks
        if tasks.parks and task is not None and not task.runs_now:
            # no hook is called when the caller suspends
            return False
        added = self._unsent.add(connection)
        # one call for the output of all tasks that run in this turn
        if added == FIRST and (task is None or not tasks.parks or self._workers - len(self._idle) > _MANY):
            self._call_end()
        return added != AT_ONCE

    def turn_is_long(self) -> bool:
        """Return True if handlers that send one piece after another must let other tasks run: _FAIR_TURN has passed
        since the first call in this turn."""
        now = self.poller.clock.now()
        turns = self.tasks.turns
        if self._turn_began == INF or self._turns != turns:
            self._turns = turns
            self._turn_began = now
            if not turns:
                self._call_end()
        return now - self._turn_began > _FAIR_TURN

    def flush(self) -> None:
        """Let all connections send what they have kept for the end of the turn."""
        self._unsent.flush()

    def flush_unless_called(self) -> None:
        """Flush now, because a worker suspends or ends, unless it will be done for all workers at once."""
        if not self._end_called:
            self.flush()

    def _call_end(self) -> None:
        if not self._end_called:
            self._end_called = True
            self.tasks.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._end_called = False
        self._turn_began = INF
        self.flush()
        if self._others_wait:
            self._others_wait = False
            self.call_workers()

    def close(self) -> None:
        """Start no worker any more. Once the workers' tasks have ended, the caller closes the remaining connections."""
        self._ready.clear()
        self.heads.close()
        self._closed = True

    def _call_worker(self) -> None:
        """Wake an idle worker or start a new one. It runs in a later step of the event loop."""
        if self._closed:
            return
        self._coming += 1
        if self._idle:
            self._idle.pop().wake()
        else:
            self._new_worker(self).start()
