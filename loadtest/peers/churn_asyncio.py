"""The server of the benchmark `churn` on asyncio's streams: a timeout for every read and every drain."""

from __future__ import annotations

import asyncio
import math
from contextlib import closing, suppress

from deadlined.service import tune_gc

from .churn_protocol import REQUEST, Deadlines, monotonic_offset
from .hosts import announce


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deadlines: Deadlines) -> None:
    """Serve a connection until either side closes it."""
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


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    offset = monotonic_offset(asyncio.get_running_loop().time)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer, Deadlines(offset))

    # the same backlog as the other servers (the kernel limits it)
    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=65535)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    tune_gc()
    asyncio.run(main())
