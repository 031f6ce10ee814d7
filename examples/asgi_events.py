"""An ASGI application that streams server-sent events until its client leaves or the server drains.

    python examples/asgi_events.py --port 8002
    curl -N http://127.0.0.1:8002/            # an event per second; Ctrl-C of the server ends the stream properly

Or with the command, from this directory: deadlined serve asgi_events:app --loop uvloop

A shutdown waits for such a stream until the time for the drain is over, and then cuts it. This server tells the
application that it drains (`scope["extensions"]["deadlined"]["draining"]`), so the stream sends a last event and ends
by itself; the client connects again, to the next process. The application need not look for clients that leave: the
server cancels it while it waits. Other servers have no such extension, and the application also runs without it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from deadlined.asgi import AsgiServer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# seconds between two events
PERIOD = 1.0


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Stream events on every path."""
    if scope["type"] != "http":
        return
    extension = scope.get("extensions", {}).get("deadlined")
    if extension is not None:
        # a stream may take longer than --handler allows; a client that does not read it is still cut
        extension.set_handler_deadline(math.inf)
    await stream(send, never() if extension is None else extension.draining)


async def stream(send: Send, ends: Awaitable[object]) -> None:
    """Send an event every PERIOD seconds until `ends` returns, then a last one."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    end = asyncio.ensure_future(ends)
    try:
        number = 0
        while not end.done():
            number += 1
            await send({"type": "http.response.body", "body": event("count", number), "more_body": True})
            # the pause between two events, which the drain ends at once
            await asyncio.wait([end], timeout=PERIOD)
        await send({"type": "http.response.body", "body": event("end", number)})
    finally:
        end.cancel()


def event(kind: str, data: object) -> bytes:
    """Return one event as it is sent."""
    return f"event: {kind}\ndata: {data}\n\n".encode()


async def never() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()


async def serve(port: int) -> None:
    """Serve on the loopback interface, and print the port. SIGTERM and Ctrl-C begin the drain."""
    async with AsgiServer(app, port=port) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.shutdown)
        print(f"listening on http://127.0.0.1:{server.port}", flush=True)
        await server.wait_closed()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="ASGI application that streams events until the server drains.")
    parser.add_argument("--port", type=int, default=8002, help="0 lets the system choose")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port))


if __name__ == "__main__":
    main()
