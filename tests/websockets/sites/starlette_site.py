"""Websockets of Starlette."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.endpoints import WebSocketEndpoint
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

# what applications were told when their clients left
disconnects: list[list[Any]] = []


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect as end:
        disconnects.append([end.code, end.reason])


async def objects(websocket: WebSocket) -> None:
    await websocket.accept()
    async for value in websocket.iter_json():
        await websocket.send_json(value)
        await websocket.send_json(value, mode="binary")


async def subprotocol(websocket: WebSocket) -> None:
    offered = websocket.scope["subprotocols"]
    chosen = "second" if "second" in offered else None
    await websocket.accept(subprotocol=chosen, headers=[(b"x-mark", b"seen"), (b"set-cookie", b"visits=1")])
    await websocket.send_json(offered)
    await websocket.close()


async def refuse(websocket: WebSocket) -> None:
    await websocket.close(code=4001)


async def deny(websocket: WebSocket) -> None:
    await websocket.send_denial_response(JSONResponse({"why": "no ticket"}, 401, headers={"www-authenticate": "Basic"}))


async def leave(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("goodbye")
    await websocket.close(code=4002, reason="café fermé")


async def room(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_json(
        {
            "room": websocket.path_params["room"],
            "query": dict(websocket.query_params),
            "cookies": websocket.cookies,
            "agent": websocket.headers["user-agent"],
            "host": websocket.url.hostname,
            "scheme": websocket.url.scheme,
            "path": websocket.url.path,
            "client": websocket.client.host if websocket.client else None,
            "version": websocket.scope["http_version"],
            "state": websocket.state.number,
        }
    )
    await websocket.close()


class Counter(WebSocketEndpoint):
    """Sends how long each message is, whatever its kind."""

    encoding = "bytes"

    async def on_connect(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("welcome")

    async def on_receive(self, websocket: WebSocket, data: bytes) -> None:
        await websocket.send_bytes(b"%d" % len(data))

    async def on_disconnect(self, websocket: WebSocket, close_code: int) -> None:
        disconnects.append([close_code, "of an endpoint"])


async def fail(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("begun")
    raise LookupError("meant to fail")


async def fail_early(websocket: WebSocket) -> None:
    raise LookupError("meant to fail")


async def told(request: Request) -> JSONResponse:
    return JSONResponse(disconnects)


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("a page")


class Lifespan:
    """State that every websocket finds."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    async def __aenter__(self) -> dict[str, int]:
        return {"number": 7}

    async def __aexit__(self, *_: object) -> None:
        return None


app = Starlette(
    routes=[
        Route("/told", told),
        Route("/page", page),
        WebSocketRoute("/page/live", echo),
        WebSocketRoute("/echo", echo),
        WebSocketRoute("/objects", objects),
        WebSocketRoute("/subprotocol", subprotocol),
        WebSocketRoute("/refuse", refuse),
        WebSocketRoute("/deny", deny),
        WebSocketRoute("/leave", leave),
        WebSocketRoute("/counter", Counter),
        WebSocketRoute("/fail", fail),
        WebSocketRoute("/fail-early", fail_early),
        Mount("/mounted", routes=[WebSocketRoute("/rooms/{room}", room)]),
    ],
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["a.example"])],
    lifespan=Lifespan,
)
