"""A site of Starlette, for trio and asyncio: anyio is what it shares between requests."""

# ruff: noqa: ASYNC115, as people write it

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

HERE = Path(__file__).parent
log = logging.getLogger("site")

# what the middleware has set for the current request
request_name: ContextVar[str] = ContextVar("request_name", default="none")


class OutOfTeaError(Exception):
    """An error with a handler of its own."""


class Named:
    """A middleware in plain ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        token = request_name.set(scope["path"])

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-plain", b"seen")]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            request_name.reset(token)


class Counted(BaseHTTPMiddleware):
    """A middleware with a task of its own for the application."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-base"] = request.method
        return response


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    finished: dict[str, anyio.Event] = {}
    log.info("site up")
    async with anyio.create_task_group() as group:
        yield {"database": "open", "finished": finished, "group": group}
        group.cancel_scope.cancel()
    log.info("site down")


async def home(request: Request) -> Response:
    return JSONResponse(
        {"method": request.method, "query": list(request.query_params.multi_items()), "name": request_name.get()}
    )


async def item(request: Request) -> Response:
    return JSONResponse({"number": request.path_params["number"], "url": request.url.path})


def threaded(_: Request) -> Response:
    main = threading.current_thread() is threading.main_thread()
    return JSONResponse({"main": main, "name": request_name.get()})


async def cookies(request: Request) -> Response:
    response = JSONResponse(request.cookies)
    response.set_cookie("one", "1", max_age=60)
    response.set_cookie("two", "2", httponly=True)
    return response


async def redirect(request: Request) -> Response:
    return RedirectResponse(request.url_for("home"), status_code=303)


async def form(request: Request) -> Response:
    async with request.form() as data:
        found: dict[str, Any] = {}
        for name, value in data.multi_items():
            if isinstance(value, str):
                found[name] = value
            else:
                found[name] = [value.filename, value.content_type, len(await value.read())]
        return JSONResponse(found)


async def digest(request: Request) -> Response:
    total = hashlib.sha256()
    length = pieces = 0
    async for piece in request.stream():
        total.update(piece)
        length += len(piece)
        pieces += bool(piece)
    return JSONResponse({"length": length, "digest": total.hexdigest(), "in pieces": pieces > 1})


async def stream(request: Request) -> Response:
    async def lines() -> AsyncIterator[str]:
        for number in range(int(request.query_params.get("lines", "10"))):
            await anyio.sleep(0)
            yield f"line {number}\n"

    return StreamingResponse(lines(), media_type="text/plain")


async def echo(request: Request) -> Response:
    """Stream the body back while it comes."""
    return StreamingResponse(request.stream(), media_type="application/octet-stream")


async def events(_: Request) -> Response:
    async def happening() -> AsyncIterator[dict[str, str]]:
        for number in range(3):
            await anyio.sleep(0)
            yield {"event": "count", "id": str(number), "data": f"number {number}"}

    return EventSourceResponse(happening())


async def endless_events(request: Request) -> Response:
    """Send events until the client has left, which sets the event `left`."""

    async def happening() -> AsyncIterator[dict[str, str]]:
        try:
            while True:
                yield {"data": "again"}
                await anyio.sleep(0.001)
        finally:
            request.state.finished.setdefault("left", anyio.Event()).set()

    return EventSourceResponse(happening())


async def begin(request: Request) -> Response:
    """Answer, and set an event afterwards."""
    name = request.path_params["name"]
    finished = request.state.finished.setdefault(name, anyio.Event())

    async def after() -> None:
        await anyio.sleep(0)
        finished.set()

    return PlainTextResponse("begun", 202, background=BackgroundTask(after))


async def wait(request: Request) -> Response:
    """Answer when an event is set."""
    name = request.path_params["name"]
    await request.state.finished.setdefault(name, anyio.Event()).wait()
    return PlainTextResponse(f"{name} is done")


async def spawn(request: Request) -> Response:
    """Set an event in a task of the application's lifespan."""
    finished = request.state.finished.setdefault("spawned", anyio.Event())

    async def run() -> None:
        await anyio.sleep(0)
        finished.set()

    request.state.group.start_soon(run)
    return PlainTextResponse("spawned")


async def together(_: Request) -> Response:
    """Run tasks, threads and timeouts of anyio."""
    results: list[int] = []

    async def add(number: int) -> None:
        results.append(await anyio.to_thread.run_sync(lambda: number * number))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(add, number)
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    return JSONResponse({"squares": sorted(results), "timed out": scope.cancelled_caught})


async def state(request: Request) -> Response:
    return PlainTextResponse(request.state.database)


async def file(_: Request) -> Response:
    return FileResponse(Path(__file__), media_type="text/x-python", filename="site.py")


async def fail(_: Request) -> Response:
    raise LookupError("meant to fail")


async def fail_late(_: Request) -> Response:
    async def lines() -> AsyncIterator[str]:
        yield "begun"
        raise LookupError("meant to fail")

    return StreamingResponse(lines())


async def teapot(_: Request) -> Response:
    raise OutOfTeaError


async def forbidden(_: Request) -> Response:
    raise HTTPException(403, "not for you", headers={"x-why": "closed"})


async def on_out_of_tea(_: Request, __: Exception) -> Response:
    return PlainTextResponse("no tea", 418)


async def patient(request: Request) -> Response:
    """Read a body that may not come, and say so in an event."""
    try:
        await request.body()
    except ClientDisconnect:
        request.state.finished.setdefault("cut", anyio.Event()).set()
    return PlainTextResponse("read")


async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


routes = [
    Route("/", home, methods=["GET", "POST", "PUT", "PATCH", "DELETE"], name="home"),
    Route("/items/{number:int}", item),
    Route("/path/{rest:path}", home),
    Route("/threaded", threaded),
    Route("/cookies", cookies),
    Route("/redirect", redirect),
    Route("/form", form, methods=["POST"]),
    Route("/digest", digest, methods=["POST", "PUT"]),
    Route("/echo", echo, methods=["POST"]),
    Route("/stream", stream),
    Route("/events", events),
    Route("/events/endless", endless_events),
    Route("/begin/{name}", begin, methods=["POST"]),
    Route("/wait/{name}", wait),
    Route("/spawn", spawn, methods=["POST"]),
    Route("/together", together),
    Route("/state", state),
    Route("/file", file),
    Route("/fail", fail),
    Route("/fail/late", fail_late),
    Route("/teapot", teapot),
    Route("/forbidden", forbidden),
    Route("/patient", patient, methods=["POST"]),
    WebSocketRoute("/chat", chat),
    Mount("/static", StaticFiles(directory=HERE)),
]

app = Starlette(
    routes=routes,
    lifespan=lifespan,
    middleware=[Middleware(Named), Middleware(Counted), Middleware(GZipMiddleware, minimum_size=5000)],
    exception_handlers={OutOfTeaError: on_out_of_tea},
)
