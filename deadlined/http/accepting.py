"""How a server accepts connections: by a task for each of its listeners, until its drain begins."""

from __future__ import annotations

import logging
import socket as stdlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from ..net import BrokenResourceError, ClosedResourceError, Conn, Listener
from ..runtime import Group, checkpoint, open_group, uninterrupted, within
from .capacity import Capacity
from .draining import Drain
from .reporting import report

# connections that are accepted in one turn of the event loop. With 1, new ones would wait behind busy ones
_ACCEPTS: int = 32


class Acceptors:
    """The listeners of a server, and the tasks that accept from them while there is room. `begin(conn)` is called with
    each connection."""

    def __init__(self, drain: Drain, begin: Callable[[Conn], object], capacity: Capacity) -> None:
        self._drain: Final = drain
        self._begin: Final = begin
        self._capacity: Final = capacity
        self._listeners: list[Listener] = []
        # where the tasks are started; None before and after
        self._group: Group | None = None

    def set_listeners(self, listeners: Iterable[Listener]) -> None:
        """Use these listeners, from which `run` will accept."""
        self._listeners = list(listeners)

    def sockets(self) -> list[stdlib.socket]:
        """Return the sockets of the listeners."""
        return [listener.socket for listener in self._listeners]

    async def run(self, task_status: Any) -> None:
        """Accept until the drain begins, and then only what is in the listeners' queues. Close the listeners.
        `task_status` is that of `HttpServer.serve`."""
        await within(open_group(), partial(self._run_in, task_status))

    def add(self, listener: Listener) -> None:
        """Accept from one more listener. Close it if nothing is accepted."""
        if self._group is None or self._drain.began.is_set():
            listener.close()
            return
        self._listeners.append(listener)
        self._group.start_soon(uninterrupted, self._accept, listener)

    def remove(self, listener: Listener) -> None:
        """Close a listener, unless it was removed before."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            listener.close()

    def end(self) -> None:
        """Forget the listeners, and accept from no others. Idempotent."""
        self._group, self._listeners = None, []

    async def _run_in(self, task_status: Any, group: Group) -> None:
        for listener in self._listeners:
            group.start_soon(uninterrupted, self._accept, listener)
        self._group = group
        if task_status is not None:
            task_status.started()
        await self._drain.began.wait()
        self._group = None
        group.cancel()

    async def _accept(self, listener: Listener) -> None:
        try:
            while True:
                if not await listener.accept_if(self._capacity.has_room, self._begin):
                    await self._capacity.wait(listener.socket)
                most = _ACCEPTS - 1
                while self._accept_waiting(listener, most):
                    self._capacity.pass_on()
                    await checkpoint()
                    most = _ACCEPTS
                self._capacity.pass_on()
        except ClosedResourceError:
            # `remove` has closed it
            if listener in self._listeners:
                raise
        finally:
            self._capacity.pass_on()
            try:
                if self._drain.began.is_set() and listener in self._listeners:
                    self._accept_last(listener)
            finally:
                listener.close()

    def _accept_last(self, listener: Listener) -> None:
        """Accept the clients that have connected before the drain, and may have sent requests, also beyond the limit of
        connections: nothing else will answer them."""
        self._capacity.lift()
        try:
            while self._accept_waiting(listener, _ACCEPTS):
                continue
        except (BrokenResourceError, ClosedResourceError) as error:
            report(logging.ERROR, "cannot accept the last connections", error=error)

    def _accept_waiting(self, listener: Listener, most: int) -> bool:
        """Accept up to `most` connections that are in the queue already, while there is room. Return True if there may
        be more, and room."""
        for _ in range(most):
            if not self._capacity.has_room():
                return False
            conn = listener.try_accept()
            if conn is None:
                return False
            self._begin(conn)
        return True
