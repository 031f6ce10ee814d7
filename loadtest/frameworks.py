"""Applications of real frameworks under load, each made when it is asked for: `loadtest.frameworks:starlette`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

STARLETTE: Final = "loadtest.frameworks:starlette"
FASTAPI: Final = "loadtest.frameworks:fastapi"

PIECES: Final = 20
PIECE: Final = b"x" * 100
EVENT: Final = b"data: 0\n\n"
LARGE: Final = b"x" * 100_000
SLEEP: Final = 0.01

# what each must answer before it is measured, by application and path
ANSWERS: Final[Mapping[str, Mapping[str, bytes]]] = {
    STARLETTE: {
        "/json": b'{"message":"Hello, world!","items":[0,1,2,3,4,5,6,7,8,9]}',
        "/pieces": PIECE * PIECES,
        "/events": EVENT * PIECES,
        "/sleep": b"slept",
        "/large": LARGE,
    },
    FASTAPI: {"/items/7?note=new": b'{"name":"item 7","price":1.5,"tags":["new"]}'},
}


async def _pieces() -> AsyncIterator[bytes]:
    for _ in range(PIECES):
        yield PIECE


async def _events() -> AsyncIterator[bytes]:
    import anyio

    for _ in range(PIECES):
        yield EVENT
        await anyio.sleep(SLEEP / 10)


def _starlette() -> Any:
    import anyio
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def json(request: Request) -> Response:
        return JSONResponse({"message": "Hello, world!", "items": list(range(10))})

    async def streamed(request: Request) -> Response:
        return StreamingResponse(_pieces())

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(), media_type="text/event-stream")

    async def sleep(request: Request) -> Response:
        await anyio.sleep(SLEEP)
        return PlainTextResponse("slept")

    async def large(request: Request) -> Response:
        return Response(LARGE)

    async def upload(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    pages = {"/json": json, "/pieces": streamed, "/events": events, "/sleep": sleep, "/large": large}
    routes = [Route(path, page) for path, page in pages.items()]
    return Starlette(routes=[*routes, Route("/upload", upload, methods=["POST"])])


def _fastapi() -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Item(BaseModel):
        name: str
        price: float
        tags: list[str] = []

    app = FastAPI()

    @app.get("/items/{number}", response_model=Item)
    async def item(number: int, note: str = "") -> Any:
        return Item(name=f"item {number}", price=1.5, tags=[note])

    return app


def __getattr__(name: str) -> Any:
    makers = {"starlette": _starlette, "fastapi": _fastapi}
    if name not in makers:
        raise AttributeError(name)
    return makers[name]()
