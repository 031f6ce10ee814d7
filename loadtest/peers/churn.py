"""The servers of the benchmark `churn` in Python: `python -m loadtest.peers.churn deadlined|trio|asyncio`.

deadlined: on `deadlined.Conn`, where deadlines are fields of the connection. trio: on `trio.SocketStream`, with a
cancel scope for every operation. asyncio: on its streams, with a timeout for every read and every drain.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any

import trio

import deadlined
from deadlined import Conn, DeadlineExceeded
from deadlined.service import tune_gc

from .churn_protocol import REQUEST, Deadlines, monotonic_offset
from .hosts import announce

Scope = Callable[[float], AbstractContextManager[object]]


async def answer(stream: Any, deadlines: Deadlines, scope: Scope, move: Callable[[float], object]) -> None:
    """Serve a connection until either side closes it, with a scope for every operation, or a deadline that is moved."""
    data = b""
    while True:
        try:
            with scope(deadlines.due):
                received = await stream.receive_some(REQUEST.size - len(data))
            data += received
            if len(data) == REQUEST.size:
                reply, data = deadlines.take(data), b""
                move(deadlines.due)
                if reply is None:
                    return
                with scope(deadlines.due):
                    await stream.send_all(reply)
            elif not received:
                return
        except (trio.TooSlowError, DeadlineExceeded) as error:
            move(math.inf)
            which = error.deadline if isinstance(error, DeadlineExceeded) else None
            await stream.send_all(deadlines.passed(trio.current_time(), which))


async def serve(host: str) -> None:
    """Serve in trio, on a free port, until the process is terminated."""
    offset = monotonic_offset(trio.current_time)

    async def handle(stream: Any) -> None:
        with suppress(trio.BrokenResourceError):
            if isinstance(stream, Conn):
                await answer(stream, Deadlines(offset), nullcontext, stream.set_deadline)
            else:
                await answer(stream, Deadlines(offset), trio.fail_at, lambda due: None)

    open_listeners = deadlined.open_tcp_listeners if host == "deadlined" else trio.open_tcp_listeners
    listeners: Any = await open_listeners(0, host="127.0.0.1")
    announce(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(handle, listeners)


async def answer_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deadlines: Deadlines) -> None:
    """Serve a connection of asyncio until either side closes it."""
    clock = asyncio.get_running_loop().time
    while True:
        try:
            async with _limit(deadlines):
                request = await reader.readexactly(REQUEST.size)
            reply = deadlines.take(request)
            if reply is None:
                return
            async with _limit(deadlines):
                writer.write(reply)
                await writer.drain()
        except TimeoutError:
            writer.write(deadlines.passed(clock()))
            await writer.drain()


def _limit(deadlines: Deadlines) -> asyncio.Timeout:
    return asyncio.timeout_at(None if deadlines.due == math.inf else deadlines.due)


async def serve_streams() -> None:
    """Serve in asyncio, on a free port, until the process is terminated."""
    offset = monotonic_offset(asyncio.get_running_loop().time)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer_streams(reader, writer, Deadlines(offset))

    # the same backlog as the other servers (the kernel limits it)
    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=65535)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    tune_gc()
    if sys.argv[1] == "asyncio":
        asyncio.run(serve_streams())
    else:
        trio.run(serve, sys.argv[1])
