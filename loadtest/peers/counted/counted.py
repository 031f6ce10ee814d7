"""The applications of `bench instructions`. Nothing of `loadtest` is imported here: what is counted is the server."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_HELLO = b"Hello, world!"
_HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"13")]


def marked(app: App) -> App:
    """Call the C library's `getloadavg` before a request for /mark is served: callgrind writes its counters there."""

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mark":
            os.getloadavg()
        await app(scope, receive, send)

    return serve


@marked
async def hello(scope: Message, receive: Receive, send: Send) -> None:
    """Answer every request with 13 bytes."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _HELLO})


def _starlette(pauses: bool) -> App:
    # the hello is measured where Starlette is not installed
    import anyio.lowlevel
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        if pauses:
            await anyio.lowlevel.checkpoint()
        return JSONResponse({"message": "Hello, world!"})

    return marked(Starlette(routes=[Route("/", answer), Route("/mark", answer)]))


def __getattr__(name: str) -> App:
    if name in ("starlette", "pausing"):
        return _starlette(name == "pausing")
    raise AttributeError(name)
