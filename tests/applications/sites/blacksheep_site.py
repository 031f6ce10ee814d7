"""A site of BlackSheep. It reads annotations as they are, so none is a string here."""

import logging
import threading
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any

from blacksheep import (
    Application,
    Content,
    FromFiles,
    FromJSON,
    FromQuery,
    Request,
    Response,
    StreamedContent,
    get,
    json,
    post,
    redirect,
    text,
)
from blacksheep.cookies import Cookie
from blacksheep.server.responses import not_found, status_code
from blacksheep.server.sse import ServerSentEvent

log = logging.getLogger("site")
app = Application()


@dataclass
class Item:
    """What is sold."""

    name: str
    price: float


@app.on_start
async def up(_: Application) -> None:
    log.info("site up")


@app.on_stop
async def down(_: Application) -> None:
    log.info("site down")


async def marking(request: Request, handler: Any) -> Response:
    response: Response = await handler(request)
    response.add_header(b"x-mark", b"seen")
    return response


app.middlewares.append(marking)


@get("/hello/{name}")
async def hello(name: str) -> str:
    return f"hello {name}"


@post("/items")
async def create(item: FromJSON[Item]) -> Response:
    return json({"name": item.value.name, "price": item.value.price}, 201)


@get("/items/{int:number}")
async def read(number: int) -> Response:
    return not_found(f"no item {number}")


@get("/search")
async def search(limit: FromQuery[int]) -> dict[str, int]:
    return {"limit": limit.value}


@get("/threaded")
def plain() -> dict[str, bool]:
    return {"main": threading.current_thread() is threading.main_thread()}


@post("/upload")
async def upload(files: FromFiles) -> dict[str, int]:
    return {part.name.decode(): len(part.data) for part in files.value}


@post("/length")
async def length(request: Request) -> dict[str, int]:
    total = 0
    body: Any = request.stream()
    async for piece in body:
        total += len(piece)
    return {"length": total}


@get("/stream")
async def stream(lines: int) -> Response:
    async def produce() -> AsyncIterator[bytes]:
        for number in range(lines):
            yield b"line %d\n" % number

    return Response(200, content=StreamedContent(b"text/plain", produce))


@get("/events")
async def events() -> AsyncIterable[ServerSentEvent]:
    for number in range(3):
        yield ServerSentEvent({"number": number})


@get("/cookies")
async def cookies(request: Request) -> Response:
    response = json(request.cookies)
    response.set_cookie(Cookie("one", "1"))
    return response


@get("/bytes")
async def some_bytes() -> Response:
    return Response(200, [(b"x-one", b"1")], Content(b"application/octet-stream", bytes(100_000)))


@get("/old")
async def old() -> Response:
    return redirect("/hello/you")


@get("/teapot")
async def teapot() -> Response:
    return status_code(418, "no tea")


@get("/fail")
async def fail() -> None:
    raise LookupError("meant to fail")


@get("/empty")
async def empty() -> Response:
    return text("")
