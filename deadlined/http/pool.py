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

from ..poll import Poller
from ..runtime import Bed, looking
from .handling import Handling

if TYPE_CHECKING:
    from .connection import HttpConnection

# tasks that are kept while there is nothing to do, a few kB each
_MOST_RESTING: Final = 64


class TaskPool:
    """Serves connections in tasks of `nursery`, which must be cancelled in the end: tasks that rest are in it, too.

    Each request begins with the context variables of whoever makes this. `poller` has the timers of the handlers.
    """

    __slots__ = ("_nursery", "context", "poller", "resting")

    def __init__(self, nursery: trio.Nursery, poller: Poller) -> None:
        self._nursery = nursery
        self.poller = poller
        self.context = copy_context()
        self.resting: list[_PooledTask] = []

    def serve(self, connection: HttpConnection) -> None:
        """Let a task that rests, or a new one, serve `connection`, soon."""
        if self.resting:
            self.resting.pop().take(connection)
        else:
            handling = Handling(self, connection)
            self._nursery.start_soon(looking, _PooledTask(self, handling).run(), handling.look)


class _PooledTask:
    """`run` is a task that serves one connection, and then those that it takes."""

    __slots__ = ("_bed", "_handling", "_pool", "_surplus")

    def __init__(self, pool: TaskPool, handling: Handling) -> None:
        self._pool = pool
        self._handling = handling
        # where it rests
        self._bed: Bed | None = None
        # there are tasks enough without this one
        self._surplus = False

    def take(self, connection: HttpConnection) -> None:
        """Wake, and serve `connection`; only while the task rests."""
        self._handling.connection = connection
        if self._bed is not None:
            self._bed.wake()

    async def run(self) -> None:
        """Serve one connection after another; whatever happens, they are closed."""
        try:
            while not self._surplus:
                await self._serve_until_cancelled()
                if not self._surplus:
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
        """Serve in one scope, until there is no connection, or one that must be ended outside of the scope."""
        handling = self._handling
        try:
            with trio.CancelScope() as scope:
                handling.scope = scope
                while handling.connection is not None:
                    await handling.connection.converse(handling)
                    if scope.cancel_called:
                        return
                    await self._end()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._handling.connection is None:
            raise error
        self._handling.connection.failed()

    async def _end(self) -> None:
        """End the connection, if there still is one, and rest until there is another."""
        connection = self._handling.connection
        if connection is not None:
            await self._part(connection)
            # a name would keep it while the task rests
            del connection
            self._handling.connection = None
        await self._rest()

    async def _part(self, connection: HttpConnection) -> None:
        try:
            if not connection.can_leave:
                await connection.say_goodbye()
        except Exception:
            connection.failed()
        connection.close()

    async def _rest(self) -> None:
        if len(self._pool.resting) >= _MOST_RESTING:
            self._surplus = True
            return
        self._handling.renew()
        self._pool.resting.append(self)
        if self._bed is None:
            self._bed = Bed(self._rise)
        await self._bed

    def _rise(self) -> None:
        self._pool.resting.remove(self)
