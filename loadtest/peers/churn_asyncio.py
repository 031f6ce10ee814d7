"""The server of the benchmark `churn` on asyncio's streams: a timeout for every read and every drain."""

from __future__ import annotations

import asyncio
import math
from contextlib import closing, suppress

from deadlined.service import tune_gc

from .churn_protocol import CLOSE, EXPIRED, INSTANT, REPLY, REQUEST, SET, UNKNOWN, announce, monotonic_offset


class Handler:
    """The server. `offset` is added to the loop's clock to get the machine's."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until either side closes it."""
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock, offset = asyncio.get_running_loop().time, self._offset
        number = previous_number = UNKNOWN
        due = previous_due = math.inf
        while True:
            try:
                async with asyncio.timeout_at(None if due == math.inf else due):
                    data = await reader.readexactly(REQUEST.size)
                previous_number, previous_due = number, due
                number, kind, seconds = REQUEST.unpack(data)
                due = seconds - offset if kind == INSTANT else clock() + seconds
                if kind == CLOSE:
                    return
                async with asyncio.timeout_at(None if due == math.inf else due):
                    writer.write(REPLY.pack(number, SET, due + offset, 0.0))
                    await writer.drain()
            except TimeoutError:
                now = clock()
                # the error does not say which deadline it was
                expired, passed = (number, due) if now >= due else (previous_number, previous_due)
                due = math.inf
                writer.write(REPLY.pack(expired, EXPIRED, passed + offset, now - passed))
                await writer.drain()


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    handler = Handler(monotonic_offset(asyncio.get_running_loop().time))
    # the same backlog as the other servers (the kernel limits it)
    server = await asyncio.start_server(handler.serve, "127.0.0.1", 0, backlog=65535)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    tune_gc()
    asyncio.run(main())
