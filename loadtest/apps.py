"""The ASGI applications that are put under load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# bytes; more than the kernel's buffers take from a sender whose peer does not read
LARGE = 1024 * 1024

_TEXT = (b"content-type", b"text/plain")


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    """The smallest useful answer."""
    if scope["type"] == "http":
        await _answer(send, b"Hello, world!")


async def target(scope: Message, receive: Receive, send: Send) -> None:
    """What is attacked: reads the whole body, answers a large one at /large and a small one elsewhere."""
    if scope["type"] != "http":
        return
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body", False):
            break
    await _answer(send, bytes(LARGE) if scope["path"] == "/large" else b"alive")


async def _answer(send: Send, body: bytes) -> None:
    headers = [_TEXT, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
