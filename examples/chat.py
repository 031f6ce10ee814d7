"""A chat for many: one who does not read never holds up the others.

    python examples/chat.py --port 8003
    open http://127.0.0.1:8003/ in two windows

Or with the command, from this directory: deadlined serve chat:app --loop asyncio --write-grace 2s --write-min-rate 100k

A loop that sends a message to one member after the other waits for the slowest of them. Here each member has an inbox
and a task that sends what is in it, so that telling the room waits for nobody. A member that does not read fills the
buffers of its connection, its task waits, and its inbox grows to BACKLOG messages; beyond that the oldest are dropped.
The application need not look for such members: each message must be read within the server's --write-grace, or in the
time that --write-min-rate allows for its length, whichever is later. If it is not, the server resets the connection,
`send` raises OSError, and `receive` returns a disconnect. The server's pings find members that have vanished silently.

On another server the application also runs; there the member that does not read keeps its inbox until it leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from deadlined.asgi import AsgiServer
from deadlined.http import Timeouts

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Inbox = asyncio.Queue[str]

# messages that a member may be behind the others
BACKLOG = 1000
# seconds, and bytes per second: how fast a member must read what it is sent
WRITE_GRACE = 2.0
WRITE_MIN_RATE = 100_000.0

PAGE = b"""<!doctype html><meta charset="utf-8"><title>chat</title>
<form><input autofocus placeholder="say something"></form><pre></pre>
<script>
const socket = new WebSocket(`ws://${location.host}/`), [input, pre] = document.querySelectorAll("input, pre");
const show = line => { pre.textContent = line + "\\n" + pre.textContent };
socket.onmessage = event => show(event.data);
socket.onclose = event => show(`closed: ${event.code} ${event.reason}`);
document.forms[0].onsubmit = event => { event.preventDefault(); socket.send(input.value); input.value = "" };
</script>
"""


class Room:
    """The inboxes of all members."""

    def __init__(self) -> None:
        self._inboxes: set[Inbox] = set()

    def join(self) -> Inbox:
        """Return the inbox of a new member."""
        inbox = Inbox(BACKLOG)
        self._inboxes.add(inbox)
        return inbox

    def leave(self, inbox: Inbox) -> None:
        self._inboxes.discard(inbox)

    def tell(self, text: str) -> None:
        """Put a text into every inbox, and wait for nobody. A full one loses its oldest text."""
        for inbox in self._inboxes:
            if inbox.full():
                inbox.get_nowait()
            inbox.put_nowait(text)


room = Room()


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer a request with the page; let a websocket take part in the room."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": PAGE})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await take_part(receive, send)


async def take_part(receive: Receive, send: Send) -> None:
    """Tell the room what the member says, and the member what the room hears, until it leaves."""
    inbox = room.join()
    sender = asyncio.create_task(deliver(inbox, send))
    try:
        while (message := await receive())["type"] == "websocket.receive":
            room.tell(message.get("text") or "")
    finally:
        room.leave(inbox)
        sender.cancel()


async def deliver(inbox: Inbox, send: Send) -> None:
    """Send what comes into the inbox, until a send fails because the member is gone: `receive` returns that, too."""
    with suppress(OSError):
        while True:
            await send({"type": "websocket.send", "text": await inbox.get()})


async def serve(port: int) -> None:
    """Serve on the loopback interface, and print the port. SIGTERM and Ctrl-C begin the drain."""
    timeouts = Timeouts(write_grace=WRITE_GRACE, write_min_rate=WRITE_MIN_RATE)
    async with AsgiServer(app, port=port, timeouts=timeouts) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.shutdown)
        print(f"listening on http://127.0.0.1:{server.port}", flush=True)
        await server.wait_closed()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="Chat in which nobody waits for one who does not read.")
    parser.add_argument("--port", type=int, default=8003, help="0 lets the system choose")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port))


if __name__ == "__main__":
    main()
