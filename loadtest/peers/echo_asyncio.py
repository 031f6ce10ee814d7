"""An echo server on asyncio's streams: `python -m loadtest.peers.echo_asyncio asyncio|uvloop plain|timeout`.

plain: no timeout. timeout: `asyncio.timeout` around every read; writes have none, because a
small one hardly ever waits.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from .hosts import announce, runner_of

SECONDS = 5.0
# bytes; as in the other servers
SIZE = 65536
# the client opens all connections at once
BACKLOG = 1024


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(SIZE):
        writer.write(data)
        await writer.drain()


async def timeout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo until the peer ends, each read within SECONDS."""
    while True:
        async with asyncio.timeout(SECONDS):
            data = await reader.read(SIZE)
        if not data:
            return
        writer.write(data)
        await writer.drain()


async def main(mode: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # the client ends by closing, or was too slow
        with suppress(ConnectionError, TimeoutError):
            await {"plain": plain, "timeout": timeout}[mode](reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    with runner_of(sys.argv[1]) as runner:
        runner.run(main(sys.argv[2]))
