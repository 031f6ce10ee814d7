"""What every contestant in Python serves: it reads the whole body, and answers 256 KiB. Websockets are echoed.

`python -m loadtest.grid.served SERVER PORT [NAME=VALUE ...]` runs those that have no command for their options.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ..apps import Message, Receive, Send, answer, echo, uploaded

# bytes; more than the kernel and a server's own buffers take for a client that does not read
BODY = b"x" * 262_144

_TEXT = "text/plain"


async def asgi(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await uploaded(receive)
        await answer(send, BODY)
    else:
        await echo(scope, receive, send)


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    left = int(environ.get("CONTENT_LENGTH") or 0)
    while left > 0 and (data := environ["wsgi.input"].read(min(left, 65536))):
        left -= len(data)
    start_response("200 OK", [("Content-Type", _TEXT), ("Content-Length", str(len(BODY)))])
    return [BODY]


def run_aiohttp(port: int, heartbeat: float | None = None, **options: Any) -> None:
    """Run aiohttp's server; `heartbeat` is an option of its websockets."""
    from aiohttp import web

    async def page(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=heartbeat)
        if socket.can_prepare(request):
            await socket.prepare(request)
            async for _ in socket:
                continue
            return socket
        async for _ in request.content.iter_chunked(65536):
            continue
        return web.Response(body=BODY, content_type=_TEXT)

    app = web.Application()
    app.router.add_route("*", "/", page)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, **options)


def run_sanic(port: int, **options: Any) -> None:
    """Run Sanic. Its websockets have paths of their own, so this one has none."""
    # by its name: type checkers look for it where it is not installed
    sanic: Any = import_module("sanic")
    app = sanic.Sanic("grid")
    app.config.update(options)

    async def page(request: Any) -> Any:
        while await request.stream.read() is not None:
            continue
        return sanic.response.raw(BODY, content_type=_TEXT)

    app.add_route(page, "/", methods=["GET", "POST"], stream=True)
    app.run("127.0.0.1", port, single_process=True, access_log=False, motd=False)


def run_fastpysgi(port: int, **options: Any) -> None:
    """Run FastPySGI, as WSGI: as ASGI it crashes when several clients ask for this page."""
    import fastpysgi  # type: ignore[import-untyped,import-not-found,unused-ignore]

    for name, value in options.items():
        setattr(fastpysgi.server, name, value)
    fastpysgi.run(wsgi, host="127.0.0.1", port=port)


if __name__ == "__main__":
    _, name, given, *settings = sys.argv
    pairs = (setting.partition("=") for setting in settings)
    {"aiohttp": run_aiohttp, "sanic": run_sanic, "fastpysgi": run_fastpysgi}[name](
        int(given), **{key: json.loads(value) for key, _, value in pairs}
    )
