"""The ASGI applications under load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# bytes; more than the kernel accepts from a sender whose peer does not read
LARGE = 1024 * 1024

_TEXT = (b"content-type", b"text/plain")


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    """Answer every request with 13 bytes."""
    if scope["type"] == "http":
        await answer(send, b"Hello, world!")


async def target(scope: Message, receive: Receive, send: Send) -> None:
    """Read the whole body, then answer LARGE bytes at /large and a few elsewhere. The target of attacks."""
    if scope["type"] == "http" and await uploaded(receive) is not None:
        await answer(send, bytes(LARGE) if scope["path"] == "/large" else b"alive")


# the answers of `web` by path; the same as in loadtest/peers/go/web
PAGES = {
    "/": (b"text/plain", b"Hello, world!"),
    "/json": (b"application/json", b'{"padding":"' + b"x" * 1010 + b'"}'),
    "/large": (b"application/octet-stream", b"x" * 65536),
}


async def web(scope: Message, receive: Receive, send: Send) -> None:
    """Serve PAGES, and at /upload answer with the length of the body. The application of the benchmarks."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/upload":
        await answer(send, str(await uploaded(receive)).encode())
    else:
        kind, body = PAGES[scope["path"]]
        await answer(send, body, (b"content-type", kind))


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Echo every message of a websocket."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            kind = "bytes" if message.get("text") is None else "text"
            await send({"type": "websocket.send", kind: message[kind]})


async def uploaded(receive: Receive) -> int | None:
    """Read a request's whole body and return its length; None if the client leaves before its end."""
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message.get("body", b""))
        if not message.get("more_body", False):
            return size
    return None


async def lifespan(receive: Receive, send: Send) -> None:
    """Accept the startup and the shutdown."""
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


async def answer(send: Send, body: bytes, kind: tuple[bytes, bytes] = _TEXT) -> None:
    """Answer 200 with a body."""
    headers = [kind, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
