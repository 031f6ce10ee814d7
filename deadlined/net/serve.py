"""A TCP server in one call: listen, and run a handler for each connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Any

from ..runtime import open_group
from .conn import Conn
from .listen import open_tcp_listeners
from .listener import Listener

# connections accepted in one turn of the event loop. One per turn would starve newcomers: beside 200 busy clients the
# last of 200 new ones waited 4 to 7 seconds for an HTTP server, and 0.63 with 32 per turn
_ACCEPTED_PER_TURN = 32

Handler = Callable[[Conn], Awaitable[object]]
StartSoon = Callable[..., object]


async def serve_tcp(
    handler: Handler,
    port: int,
    *,
    host: str | bytes | None = None,
    backlog: int | None = None,
    handler_nursery: Any = None,
    task_status: Any = None,
) -> None:
    """Serve TCP connections until cancelled: run `handler(conn)` in its own task and close `conn` after it.

    It is `trio.serve_tcp` with a `Conn` in place of a stream, for both event loops. An exception of a handler ends the
    server. `handler_nursery`, a nursery of trio, a task group of anyio or an `asyncio.TaskGroup`, is where the tasks of
    the handlers belong; None means the server's own. `task_status.started` receives the listeners, once they
    listen: trio and anyio pass it when the server is started with `start`; any object with this method will do.
    TypeError if `handler` is no async function; what a plain one returns is seen only when it was called.
    """
    if not callable(handler):
        raise TypeError(f"serve_tcp needs an async function, not {handler!r}")
    listeners = await open_tcp_listeners(port, host=host, backlog=backlog)
    accepted: set[Conn] = set()
    try:
        async with open_group() as group:
            start_soon = group.start_soon if handler_nursery is None else _starter(handler_nursery)
            for listener in listeners:
                group.start_soon(_accept_all, listener, start_soon, handler, accepted)
            if task_status is not None:
                task_status.started(listeners)
    finally:
        for listener in listeners:
            listener.close()
        if handler_nursery is None:
            # asyncio runs no step of a task that is cancelled before its first
            for conn in accepted:
                conn.close()


def _starter(nursery: Any) -> StartSoon:
    """Return the function that starts a task in `nursery`, which may be trio's, anyio's or asyncio's."""
    if hasattr(nursery, "start_soon"):
        start_soon: StartSoon = nursery.start_soon
        return start_soon
    return partial(_create_task, nursery)


def _create_task(group: Any, handle: Callable[..., Any], handler: Handler, conn: Conn, accepted: set[Conn]) -> None:
    """Start the task of a handler in an `asyncio.TaskGroup`. Its connection is closed also if it is cancelled before
    its first step."""
    handling = handle(handler, conn, accepted)
    try:
        task = group.create_task(handling)
    except BaseException:
        handling.close()
        raise
    task.add_done_callback(lambda _: conn.close())


async def _accept_all(listener: Listener, start_soon: StartSoon, handler: Handler, accepted: set[Conn]) -> None:
    while True:
        conn: Conn | None = await listener.accept()
        number = 0
        while conn is not None:
            _start(start_soon, handler, conn, accepted)
            number += 1
            conn = listener.try_accept() if number < _ACCEPTED_PER_TURN else None


def _start(start_soon: StartSoon, handler: Handler, conn: Conn, accepted: set[Conn]) -> None:
    """Start the task of a handler. The connection is closed if the nursery, which may have ended, takes no task."""
    accepted.add(conn)
    try:
        start_soon(_handle, handler, conn, accepted)
    except BaseException:
        accepted.discard(conn)
        conn.close()
        raise


async def _handle(handler: Handler, conn: Conn, accepted: set[Conn]) -> None:
    """Run a handler. `accepted` are the connections whose handlers have not begun."""
    accepted.discard(conn)
    try:
        running = handler(conn)
        if not isawaitable(running):
            raise TypeError(f"serve_tcp needs an async function, and {handler!r} has returned {running!r}")
        await running
    finally:
        conn.close()
