"""An ASGI application that moves the deadlines of its own requests.

    python examples/asgi_extend.py --port 8001
    curl -i http://127.0.0.1:8001/quick           # 504: it needs 2 seconds, and the server allows 1
    curl -i http://127.0.0.1:8001/report          # 200: the application asked for more time
    curl -i http://127.0.0.1:8001/deadline        # how many seconds a request has

Or with the command, from this directory: deadlined serve asgi_extend:app --handler 1s --loop asyncio

The server puts an extension into the scope, with absolute times on the event loop's clock, `deadlined.current_time()`.
Other servers have no such extension, so the application also runs without it. It is the same application on trio and on
asyncio, because it sleeps and reads the clock by this library.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

import deadlined
from deadlined.asgi import AsgiServer
from deadlined.http import Timeouts

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# seconds of work that each of these paths needs
WORK = 2.0
# seconds that the server allows a request, unless the application asks for more
HANDLER = 1.0


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer three paths: `/report` extends its deadline, `/quick` does not, `/deadline` tells the seconds left."""
    if scope["type"] != "http":
        return
    deadlines = scope.get("extensions", {}).get("deadlined")
    if scope["path"] == "/deadline":
        left = "unknown" if deadlines is None else f"{deadlines.deadline - deadlined.current_time():.1f}"
        await answer(send, f"{left} seconds left\n")
        return
    if scope["path"] == "/report" and deadlines is not None:
        deadlines.set_handler_deadline(deadlined.current_time() + 10 * WORK)
    await deadlined.sleep(WORK)
    await answer(send, "the work is done\n")


async def answer(send: Send, text: str) -> None:
    """Send a complete response."""
    body = text.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(port: int, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve on the loopback interface until cancelled. The port goes to `task_status` and to stdout."""
    async with AsgiServer(app, port=port, timeouts=Timeouts(handler=HANDLER)) as server:
        print(f"listening on http://127.0.0.1:{server.port}", flush=True)
        task_status.started(server.port)
        await server.wait_closed()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="ASGI application that extends its own deadlines.")
    parser.add_argument("--port", type=int, default=8001, help="0 lets the system choose")
    arguments = parser.parse_args()
    trio.run(serve, arguments.port)


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
