"""A TCP server in one call: listen, and run a handler for each connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from .conn import Conn
from .listener import Listener, open_tcp_listeners

# connections accepted in one turn of the event loop. One per turn would starve newcomers: beside 200 busy clients the
# last of 200 new ones waited 4 to 7 seconds for an HTTP server, and 0.63 with 32 per turn
_ACCEPTED_PER_TURN = 32

Handler = Callable[[Conn], Awaitable[object]]


async def serve_tcp(
    handler: Handler,
    port: int,
    *,
    host: str | bytes | None = None,
    backlog: int | None = None,
    handler_nursery: trio.Nursery | None = None,
    task_status: trio.TaskStatus[list[Listener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve TCP connections until cancelled: run `handler(conn)` in its own task and close `conn` after it.

    It is `trio.serve_tcp` with a `Conn` in place of a stream. An exception of a handler ends the server.
    `task_status.started` receives the listeners: start it with `nursery.start`.
    """
    listeners = await open_tcp_listeners(port, host=host, backlog=backlog)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(_accept_all, listener, handler_nursery or nursery, handler)
        task_status.started(listeners)


async def _accept_all(listener: Listener, nursery: trio.Nursery, handler: Handler) -> None:
    async with listener:
        while True:
            conn: Conn | None = await listener.accept()
            accepted = 0
            while conn is not None:
                nursery.start_soon(_handle, handler, conn)
                accepted += 1
                conn = listener.try_accept() if accepted < _ACCEPTED_PER_TURN else None


async def _handle(handler: Handler, conn: Conn) -> None:
    try:
        await handler(conn)
    finally:
        conn.close()
