"""A shop of FastAPI, for trio and asyncio."""

# ruff: noqa: ASYNC110, ASYNC115, as people write it

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
    WebSocket,
)
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, Field

log = logging.getLogger("site")


class Item(BaseModel):
    """What is sold."""

    name: str = Field(min_length=1, max_length=20)
    price: float = Field(gt=0)
    tags: list[str] = []


class Stored(Item):
    """An item with its number."""

    number: int


class SoldOutError(Exception):
    """An error with a handler of its own."""


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    log.info("site up")
    yield {"items": {}, "trace": [], "sent": anyio.Event()}
    log.info("site down")


app = FastAPI(title="Shop", version="1.2.3", lifespan=lifespan)
app.add_middleware(CORSMiddleware, allow_origins=["https://shop.example"], allow_methods=["GET", "PUT"])
router = APIRouter(prefix="/items", tags=["items"])


@app.middleware("http")
async def timing(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    response.headers["x-path"] = request.url.path
    return response


@app.exception_handler(SoldOutError)
async def on_sold_out(_: Request, __: Exception) -> Response:
    return JSONResponse({"detail": "sold out"}, status_code=409)


async def session(request: Request) -> AsyncIterator[str]:
    """A dependency that ends after the response, in a coroutine."""
    trace: list[str] = request.state.trace
    trace.append("session opened")
    try:
        yield "session"
    except SoldOutError:
        trace.append("session rolled back")
        raise
    finally:
        trace.append("session closed")


def connection(request: Request, outer: Annotated[str, Depends(session)]) -> Iterator[str]:
    """A dependency that ends after the response, in a thread."""
    trace: list[str] = request.state.trace
    trace.append(f"connection opened in {outer}")
    yield "connection"
    trace.append("connection closed")


Connected = Annotated[str, Depends(connection)]


@router.post("", status_code=201)
async def create(item: Item, request: Request, response: Response) -> Stored:
    number = len(request.state.items) + 1
    stored = Stored(number=number, **item.model_dump())
    request.state.items[number] = stored
    response.headers["location"] = str(request.url_for("read", number=number))
    return stored


@router.get("/{number}")
async def read(number: int, request: Request, fields: Annotated[list[str] | None, Query()] = None) -> dict[str, Any]:
    if number not in request.state.items:
        raise HTTPException(404, f"no item {number}", headers={"x-number": str(number)})
    found: dict[str, Any] = request.state.items[number].model_dump()
    return {name: value for name, value in found.items() if fields is None or name in fields}


@router.put("/{number}")
def replace(number: int, item: Item, request: Request) -> Stored:
    stored = Stored(number=number, **item.model_dump())
    request.state.items[number] = stored
    return stored


@router.delete("/{number}", status_code=204)
def remove(number: int, request: Request) -> None:
    del request.state.items[number]


app.include_router(router)


@app.get("/threaded")
def threaded(size: Annotated[int, Query(ge=1, le=100)] = 10) -> dict[str, Any]:
    return {"main": threading.current_thread() is threading.main_thread(), "size": size}


@app.get("/order")
async def order(request: Request, name: Connected) -> dict[str, str]:
    request.state.trace.append("handled")
    return {"over": name}


@app.get("/order/sold-out")
async def order_sold_out(name: Connected) -> None:
    raise SoldOutError


@app.get("/trace")
async def trace(request: Request, until: str | None = None) -> list[str]:
    """Return what has happened, once `until` has, and forget it."""
    while until is not None and until not in request.state.trace:
        await anyio.sleep(0.001)
    seen = list(request.state.trace)
    request.state.trace.clear()
    return seen


@app.get("/whoami")
async def whoami(
    credentials: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())],
    visits: Annotated[int, Cookie()] = 0,
    user_agent: Annotated[str, Header()] = "",
) -> dict[str, Any]:
    return {"name": credentials.username, "visits": visits, "agent": user_agent}


@app.post("/upload")
async def upload(
    file: UploadFile, note: Annotated[str, Form()], more: Annotated[list[bytes] | None, File()] = None
) -> dict[str, Any]:
    size = 0
    while piece := await file.read(65536):
        size += len(piece)
    return {"name": file.filename, "size": size, "note": note, "more": [len(each) for each in more or []]}


@app.post("/mail", status_code=202)
async def mail(request: Request, tasks: BackgroundTasks) -> dict[str, str]:
    steps: list[str] = request.state.trace

    def write() -> None:
        steps.append("written")

    async def send() -> None:
        await anyio.sleep(0)
        steps.append("sent")
        request.state.sent.set()

    tasks.add_task(write)
    tasks.add_task(send)
    return {"state": "queued"}


@app.get("/mail")
async def mailed(request: Request) -> str:
    await request.state.sent.wait()
    return "sent"


@app.get("/numbers")
async def numbers(count: int = 5) -> StreamingResponse:
    def lines() -> Iterator[str]:
        for number in range(count):
            yield f"{number}\n"

    return StreamingResponse(lines(), media_type="text/plain")


@app.get("/old")
async def old() -> RedirectResponse:
    return RedirectResponse("/trace", status_code=301)


@app.get("/fail")
async def fail() -> None:
    raise LookupError("meant to fail")


@app.get("/fail/threaded")
def fail_threaded() -> None:
    raise LookupError("meant to fail")


@app.get("/fail/answer", response_model=Item)
async def fail_answer() -> dict[str, str]:
    return {"name": "meant to fail"}


@app.websocket("/chat")
async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()
