"""A TCP server in one call: listen, and run a handler for each connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from .conn import Conn
from .listener import Listener, open_tcp_listeners


async def serve_tcp(
    handler: Callable[[Conn], Awaitable[object]],
    port: int,
    *,
    host: str | bytes | None = None,
    backlog: int | None = None,
    handler_nursery: trio.Nursery | None = None,
    task_status: trio.TaskStatus[list[Listener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve TCP connections until cancelled: `handler(conn)` runs in a task of its own, and `conn` is closed after it.

    As `trio.serve_tcp`, with a `Conn` in place of a stream; an exception of a handler ends the server. The listeners
    are given to `task_status.started` (start it with `nursery.start`).
    """
    listeners = await open_tcp_listeners(port, host=host, backlog=backlog)
    await trio.serve_listeners(handler, listeners, handler_nursery=handler_nursery, task_status=task_status)
