"""A site of Litestar."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from litestar import Controller, Litestar, MediaType, Request, Response, delete, get, post
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import State, UploadFile
from litestar.di import Provide
from litestar.enums import RequestEncodingType
from litestar.exceptions import HTTPException, NotFoundException
from litestar.middleware import ASGIMiddleware
from litestar.params import Body, Parameter
from litestar.response import Redirect, ServerSentEvent, Stream
from litestar.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("site")


class Item(msgspec.Struct):
    """What is sold."""

    name: str
    price: Annotated[float, msgspec.Meta(gt=0)]


class Marked(ASGIMiddleware):
    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-mark", b"seen")]
            await send(message)

        await next_app(scope, receive, sending)


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    app.state.stock = {}
    app.state.trace = []
    log.info("site up")
    yield
    log.info("site down")


async def connection(state: State) -> AsyncIterator[str]:
    state.trace.append("opened")
    yield "connection"
    state.trace.append("closed")


class Items(Controller):
    """The items of the shop."""

    path = "/items"

    @post()
    async def create(self, data: Item, state: State) -> dict[str, Any]:
        number = len(state.stock) + 1
        state.stock[number] = data
        return {"number": number, "name": data.name}

    @get("/{number:int}")
    async def read(self, number: int, state: State) -> Item:
        if number not in state.stock:
            raise NotFoundException(f"no item {number}")
        item: Item = state.stock[number]
        return item

    @delete("/{number:int}")
    async def remove(self, number: int, state: State) -> None:
        del state.stock[number]


@get("/search")
async def search(request: Request[Any, Any, Any], limit: Annotated[int, Parameter(query="limit", le=10)] = 5) -> Any:
    return {"limit": limit, "agent": request.headers.get("user-agent")}


@get("/threaded", sync_to_thread=True)
def threaded() -> dict[str, bool]:
    return {"main": threading.current_thread() is threading.main_thread()}


@post("/upload")
async def upload(data: Annotated[dict[str, UploadFile], Body(media_type=RequestEncodingType.MULTI_PART)]) -> Any:
    return {name: [file.filename, len(await file.read())] for name, file in data.items()}


@post("/length")
async def length(request: Request[Any, Any, Any]) -> dict[str, int]:
    total = 0
    async for piece in request.stream():
        total += len(piece)
    return {"length": total}


@get("/stream")
async def stream(lines: int) -> Stream:
    async def produce() -> AsyncIterator[str]:
        for number in range(lines):
            yield f"line {number}\n"

    return Stream(produce(), media_type=MediaType.TEXT)


@get("/events")
async def events() -> ServerSentEvent:
    async def happening() -> AsyncIterator[str]:
        for number in range(3):
            yield f"number {number}"

    return ServerSentEvent(happening())


@get("/order", dependencies={"connection": Provide(connection)})
async def order(connection: str) -> dict[str, str]:
    return {"over": connection}


@get("/trace")
async def trace(state: State) -> list[str]:
    return list(state.trace)


@post("/begin", status_code=202)
async def begin(state: State) -> Response[str]:
    async def work() -> None:
        state.trace.append("worked")

    return Response("begun", background=BackgroundTask(work))


@get("/old")
async def old() -> Redirect:
    return Redirect("/trace")


@get("/fail")
async def fail() -> None:
    raise LookupError("meant to fail")


@get("/teapot")
async def teapot() -> None:
    raise HTTPException("no tea", status_code=418)


app = Litestar(
    [Items, search, threaded, upload, length, stream, events, order, trace, begin, old, fail, teapot],
    lifespan=[lifespan],
    middleware=[Marked()],
    # else it would write lines of its own form
    logging_config=None,
)
