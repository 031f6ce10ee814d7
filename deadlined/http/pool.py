"""The tasks that serve connections: each takes one after another of those that have something to read.

Facts      Trio's task and cancel scope take more instructions than a small request does, and waking a task and putting
           it to sleep a seventh of what a request does.
Hazard     What a connection leaves in its task is not the next one's: a cancelled scope, context variables. A handler
           that sleeps must not keep those waiting that are ready behind it.
Answer     One task is called for all that are ready, and serves them in one turn. If it goes to sleep before it has
           taken the last, the others get a task each, at once: called one after the other, the last would wait for as
           many turns. A task that finds none rests until there is one. It goes on in the scope that it is in, unless
           that was cancelled.
Cost       Some tasks that sleep: as many as were busy at the same time, up to a limit.
"""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

import trio

from ..poll import Poller
from ..runtime import TaskParker, with_suspend_hook
from .handling import Handling

if TYPE_CHECKING:
    from .connection import HttpConnection

# tasks that are kept while there is nothing to do, a few kB each
_MOST_RESTING: Final = 64


class TaskPool:
    """Serves connections in tasks of `nursery`, which must be cancelled in the end: tasks that rest are in it, too.

    Each request begins with the context variables of whoever makes this. `poller` has the timers of the handlers.
    """

    __slots__ = ("_closed", "_coming", "_nursery", "_ready", "context", "poller", "resting")

    def __init__(self, nursery: trio.Nursery, poller: Poller) -> None:
        self._nursery = nursery
        self.poller = poller
        self.context = copy_context()
        self.resting: list[_PooledTask] = []
        self._ready: deque[HttpConnection] = deque()
        # tasks that are on their way to those that are ready
        self._coming = 0
        # the nursery may be closed already
        self._closed = False

    def serve(self, connection: HttpConnection) -> None:
        """Let a task serve `connection`, soon: one that is on its way, one that rests, or a new one."""
        self._ready.append(connection)
        if not self._coming:
            self._call()

    def look(self) -> None:
        """A task goes to sleep: what is ready must not wait for it, nor for another one that may do the same."""
        while self._coming < len(self._ready) and not self._closed:
            self._call()

    def next(self) -> HttpConnection | None:
        """The next connection that is ready."""
        return self._ready.popleft() if self._ready else None

    def arrived(self) -> None:
        """One of the tasks that were called is there."""
        self._coming -= 1

    def close(self) -> None:
        """No task takes another connection: whoever calls this closes those that are left, once the tasks are gone."""
        self._ready.clear()
        self._closed = True

    def _call(self) -> None:
        if self._closed:
            return
        self._coming += 1
        if self.resting:
            self.resting.pop().rise()
        else:
            handling = Handling(self)
            self._nursery.start_soon(with_suspend_hook, _PooledTask(self, handling).run(), handling.look)


class _PooledTask:
    """`run` is a task that serves what is ready, one connection after another."""

    __slots__ = ("_bed", "_handling", "_pool", "_surplus")

    def __init__(self, pool: TaskPool, handling: Handling) -> None:
        self._pool = pool
        self._handling = handling
        # where it rests
        self._bed: TaskParker | None = None
        # there are tasks enough without this one
        self._surplus = False

    def rise(self) -> None:
        """Wake, and serve what is ready; only while the task rests."""
        if self._bed is not None:
            self._bed.wake()

    async def run(self) -> None:
        """Serve one connection after another; whatever happens, they are closed."""
        self._pool.arrived()
        try:
            while not self._surplus:
                await self._serve_until_cancelled()
                await self._end()
        finally:
            self._handling.close()
            self._give_up()

    def _give_up(self) -> None:
        """The task ends, with the server or by Ctrl-C, which may have come as it lay down."""
        if self._handling.connection is not None:
            self._handling.connection.close()
        if self in self._pool.resting:
            self._rise()

    async def _serve_until_cancelled(self) -> None:
        """Serve in one scope, until a connection must be ended outside of it."""
        handling = self._handling
        try:
            with trio.CancelScope() as scope:
                handling.scope = scope
                while not self._surplus:
                    connection = handling.connection = self._pool.next()
                    if connection is None:
                        await self._rest()
                        continue
                    await connection.converse(handling)
                    # a name would keep it while it rests, or the task does
                    del connection
                    if scope.cancel_called:
                        return
                    if not handling.is_free:
                        await self._end()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._handling.connection is None:
            raise error
        self._handling.connection.failed()

    async def _end(self) -> None:
        """End the connection, if there still is one."""
        connection = self._handling.connection
        if connection is None:
            return
        try:
            if not connection.can_leave:
                await connection.say_goodbye()
        except Exception:
            connection.failed()
        connection.close()
        self._handling.connection = None

    async def _rest(self) -> None:
        if len(self._pool.resting) >= _MOST_RESTING:
            self._surplus = True
            return
        self._handling.renew()
        self._pool.resting.append(self)
        if self._bed is None:
            self._bed = TaskParker(self._rise)
        await self._bed
        self._pool.arrived()

    def _rise(self) -> None:
        self._pool.resting.remove(self)
