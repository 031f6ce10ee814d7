"""A server beside another task of one trio program: requests hand in texts, the task counts their words.

    python examples/embed_trio.py --port 8004
    curl -d 'three short words' http://127.0.0.1:8004/      # 202: it is handed in
    curl http://127.0.0.1:8004/                             # how many words were counted so far

`serve` is a task like any other, and the nursery has the server once it accepts connections. The order of the end is
the program's: SIGTERM or Ctrl-C drains the server, so that no more texts come; the counter counts those that are left;
then the program ends. `serve` itself handles no signal, and writes and configures no log.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import trio

from deadlined.asgi import AsgiServer, serve

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# texts that may wait for the counter; a request that hands in one more waits, too
BACKLOG = 100


class Counter:
    """The task that counts words."""

    def __init__(self) -> None:
        self.words = 0
        self.texts, self._inbox = trio.open_memory_channel[bytes](BACKLOG)

    async def run(self) -> None:
        """Count until no more texts can come."""
        async with self._inbox:
            async for text in self._inbox:
                self.words += len(text.split())


class App:
    """The ASGI application, with its lifespan."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST":
            text = await whole_body(receive)
            if text is not None:
                await self._counter.texts.send(text)
                await answer(send, 202, "")
        elif scope["type"] == "http":
            await answer(send, 200, f"{self._counter.words} words\n")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        print("the application has started", flush=True)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        # after the last request
        self._counter.texts.close()
        await send({"type": "lifespan.shutdown.complete"})


async def whole_body(receive: Receive) -> bytes | None:
    """Return the body of a request, or None if its client has left before the end."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def answer(send: Send, status: int, text: str) -> None:
    """Send a complete response."""
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


async def run(port: int) -> None:
    """Serve and count until SIGTERM or Ctrl-C, and print the port."""
    counter = Counter()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(counter.run)
            server: AsgiServer = await nursery.start(partial(serve, App(counter), port=port))
            print(f"listening on http://127.0.0.1:{server.port}", flush=True)
            async for _ in signals:
                break
            # serve() returns after the drain, and the counter when it has counted the rest
            server.shutdown()
        # before the end of the block, which lets a second signal end the program
        print(f"{counter.words} words were counted", flush=True)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="A server beside another task of one trio program.")
    parser.add_argument("--port", type=int, default=8004, help="0 lets the system choose")
    arguments = parser.parse_args()
    trio.run(run, arguments.port)


if __name__ == "__main__":
    main()
