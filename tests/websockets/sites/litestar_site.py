"""Websockets of Litestar."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import anyio.lowlevel
from litestar import Litestar, WebSocket, get, websocket, websocket_listener
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.exceptions import NotAuthorizedException, WebSocketDisconnect, WebSocketException
from litestar.handlers import BaseRouteHandler, WebsocketListener, websocket_stream
from litestar.params import Parameter

Socket = WebSocket[Any, Any, Any]

trace: list[str] = []


@websocket("/echo")
async def echo(socket: Socket) -> None:
    await socket.accept()
    try:
        while True:
            await socket.send_bytes((await socket.receive_bytes()).upper())
    except WebSocketDisconnect as end:
        trace.append(f"left with {end.code}")


@websocket_listener("/orders/{shop:str}")
async def orders(
    data: dict[str, Any], shop: str, limit: Annotated[int, Parameter(query="limit", le=10)] = 5
) -> dict[str, Any]:
    return {"shop": shop, "ordered": min(data["count"], limit), "name": data["name"]}


class Counter(WebsocketListener):
    """A class with hooks."""

    path = "/counter"

    async def on_accept(self, socket: Socket) -> None:
        trace.append("accepted")

    async def on_disconnect(self, socket: Socket) -> None:
        trace.append("disconnected")

    def on_receive(self, data: str) -> str:
        return str(len(data))


@websocket_stream("/count/{last:int}", listen_for_disconnect=False, warn_on_data_discard=False)
async def count(last: int) -> AsyncGenerator[str, None]:
    for number in range(last):
        await anyio.lowlevel.checkpoint()
        yield str(number)


def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    if connection.headers.get("x-ticket") != "valid":
        raise NotAuthorizedException("no ticket")


async def held() -> str:
    return "held"


@websocket("/guarded", guards=[guard], dependencies={"held": Provide(held)})
async def guarded(socket: Socket, held: str) -> None:
    await socket.accept(subprotocols="second", headers={"x-mark": "seen"})
    await socket.send_json({"held": held})
    await socket.close(code=4002, reason="enough")


@websocket("/strict")
async def strict(socket: Socket) -> None:
    await socket.accept()
    raise WebSocketException(detail="say please", code=4100)


@websocket("/fail")
async def fail(socket: Socket) -> None:
    await socket.accept()
    raise LookupError("meant to fail")


@get("/trace")
async def traced() -> list[str]:
    return trace


app = Litestar([echo, orders, Counter, count, guarded, strict, fail, traced], logging_config=None)
