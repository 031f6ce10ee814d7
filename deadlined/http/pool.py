"""The tasks that serve connections, each one connection after another.

Facts      Trio's task and cancel scope take more instructions than a small request does.
Hazard     What a connection leaves in its task is not the next one's: a cancelled scope, context variables.
Answer     A task whose connection has ended rests until there is another. It goes on in the scope that it is in, unless
           that was cancelled; its context is made anew.
Cost       Some tasks that sleep: as many as were busy at the same time, up to a limit.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Final

import trio

from ..runtime import Bed, TaskContext

if TYPE_CHECKING:
    from .connection import HttpConnection

# tasks that are kept while there is nothing to do, a few kB each
_MOST_RESTING: Final = 64


class TaskPool:
    """Serves connections in tasks of `nursery`, which must be cancelled in the end: tasks that rest are in it, too.

    Each request begins with the context variables of whoever makes this.
    """

    __slots__ = ("_nursery", "context", "resting")

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.context = copy_context()
        self.resting: list[_PooledTask] = []

    def serve(self, connection: HttpConnection) -> None:
        """Let a task that rests, or a new one, serve `connection`, soon."""
        if self.resting:
            self.resting.pop().take(connection)
        else:
            self._nursery.start_soon(_PooledTask(self, connection).run)


class _PooledTask:
    """`run` is a task that serves one connection, and then those that it takes."""

    __slots__ = ("_bed", "_connection", "_pool")

    def __init__(self, pool: TaskPool, connection: HttpConnection) -> None:
        self._pool = pool
        self._bed = Bed(self._leave)
        self._connection: HttpConnection | None = connection

    def take(self, connection: HttpConnection) -> None:
        """Wake, and serve `connection`; only while the task rests."""
        self._connection = connection
        self._bed.wake()

    async def run(self) -> None:
        """Serve one connection after another; whatever happens, they are closed."""
        context = TaskContext(self._pool.context)
        try:
            while self._connection is not None:
                await self._serve_until_cancelled(context)
                await self._end(context)
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """The task ends, with the server or by Ctrl-C, which may have come as it lay down."""
        if self._connection is not None:
            self._connection.close()
        if self in self._pool.resting:
            self._leave()

    async def _serve_until_cancelled(self, context: TaskContext) -> None:
        """Serve in one scope, until there is no connection, or one that must be ended outside of the scope."""
        try:
            with trio.CancelScope() as scope:
                while self._connection is not None:
                    await self._connection.converse(scope, context)
                    if scope.cancel_called:
                        return
                    await self._end(context)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._connection is None:
            raise error
        self._connection.failed()

    async def _end(self, context: TaskContext) -> None:
        """End the connection, if there is one, and rest until there is another."""
        if self._connection is not None:
            await self._part(self._connection)
            self._connection = None
            await self._rest(context)

    async def _part(self, connection: HttpConnection) -> None:
        try:
            if not connection.can_leave:
                await connection.say_goodbye()
        except Exception:
            connection.failed()
        connection.close()

    async def _rest(self, context: TaskContext) -> None:
        if len(self._pool.resting) < _MOST_RESTING:
            context.renew()
            self._pool.resting.append(self)
            await self._bed

    def _leave(self) -> None:
        self._pool.resting.remove(self)
