"""The application of the cases of Starlette; web_servers.py has what it must answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

PIECES = 20
LARGE = b"x" * 100_000


async def json(request: Request) -> Response:
    return JSONResponse({"message": "Hello, world!", "items": list(range(10))})


async def pieces(request: Request) -> Response:
    async def streamed() -> AsyncIterator[bytes]:
        for _ in range(PIECES):
            yield b"x" * 100

    return StreamingResponse(streamed())


async def events(request: Request) -> Response:
    async def streamed() -> AsyncIterator[bytes]:
        for _ in range(PIECES):
            yield b"data: 0\n\n"
            await anyio.sleep(0.001)

    return StreamingResponse(streamed(), media_type="text/event-stream")


async def sleep(request: Request) -> Response:
    await anyio.sleep(0.01)
    return PlainTextResponse("slept")


async def large(request: Request) -> Response:
    return Response(LARGE)


async def upload(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


pages = [Route(f"/{page.__name__}", page) for page in (json, pieces, events, sleep, large)]
app = Starlette(routes=[*pages, Route("/upload", upload, methods=["POST"])])
