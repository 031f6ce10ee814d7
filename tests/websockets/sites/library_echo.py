"""The echo server of the `websockets` library, which proves the table of cases: `python -m` this, SIGTERM ends it."""

from __future__ import annotations

import asyncio
import signal

from websockets.asyncio.server import ServerConnection, serve


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serve(echo, "127.0.0.1", 0, max_size=4 << 20) as server:
        (listener,) = server.sockets
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
