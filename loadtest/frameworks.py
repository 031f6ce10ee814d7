"""Applications of real frameworks under load, each made when it is asked for: `loadtest.frameworks:starlette`."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

STARLETTE: Final = "loadtest.frameworks:starlette"
FASTAPI: Final = "loadtest.frameworks:fastapi"

PIECES: Final = 20
PIECE: Final = b"x" * 100
LARGE: Final = b"x" * 100_000
FILE: Final = b"a{}" * 1000
SLEEP: Final = 0.01

# what each must answer before it is measured, by application and path
ANSWERS: Final[Mapping[str, Mapping[str, bytes]]] = {
    STARLETTE: {
        "/json": b'{"message":"Hello, world!","items":[0,1,2,3,4,5,6,7,8,9]}',
        "/pieces": PIECE * PIECES,
        "/events": b"data: 0\n\n" * PIECES,
        "/sleep": b"slept",
        "/large": LARGE,
        "/file": FILE,
    },
    FASTAPI: {
        "/items/7?note=new": b'{"name":"item 7","price":1.5,"tags":["new"]}',
        "/blocking": b'{"answer":42}',
    },
}


async def _pieces() -> AsyncIterator[bytes]:
    for _ in range(PIECES):
        yield PIECE


async def _events() -> AsyncIterator[bytes]:
    import anyio

    for _ in range(PIECES):
        yield b"data: 0\n\n"
        await anyio.sleep(SLEEP / 10)


async def _untouched(request: Any, call_next: Any) -> Any:
    return await call_next(request)


def _starlette() -> Any:
    import anyio
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Mount, Route

    # deleted with the process
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "style.css")
    path.write_bytes(FILE)

    async def json(request: Request) -> Response:
        return JSONResponse({"message": "Hello, world!", "items": list(range(10))})

    async def streamed(request: Request) -> Response:
        return StreamingResponse(_pieces())

    async def event_stream(request: Request) -> Response:
        return StreamingResponse(_events(), media_type="text/event-stream")

    async def sleep(request: Request) -> Response:
        await anyio.sleep(SLEEP)
        return PlainTextResponse("slept")

    async def large(request: Request) -> Response:
        return Response(LARGE)

    async def file(request: Request) -> Response:
        return FileResponse(path)

    async def upload(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    app = Starlette(
        routes=[
            *(Route("/json", json), Route("/pieces", streamed), Route("/events", event_stream), Route("/sleep", sleep)),
            *(Route("/large", large), Route("/file", file), Route("/upload", upload, methods=["POST"])),
            Mount(
                "/behind",
                routes=[Route("/upload", upload, methods=["POST"])],
                middleware=[Middleware(BaseHTTPMiddleware, dispatch=_untouched)],
            ),
        ]
    )
    app.state.folder = folder
    return app


def _fastapi() -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Item(BaseModel):
        name: str
        price: float
        tags: list[str] = []

    app = FastAPI()

    async def item(number: int, note: str = "") -> Any:
        return Item(name=f"item {number}", price=1.5, tags=[note])

    def blocking() -> Any:
        return {"answer": 42}

    app.get("/items/{number}", response_model=Item)(item)
    app.get("/blocking")(blocking)
    return app


def __getattr__(name: str) -> Any:
    if name == "starlette":
        return _starlette()
    if name == "fastapi":
        return _fastapi()
    raise AttributeError(name)
