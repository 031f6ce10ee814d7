"""A FastAPI application for the examples of deployment: the image, Compose, Kubernetes, systemd and nginx.

    deadlined serve shop:app --loop uvloop --admin 127.0.0.1:9000

FastAPI checks values with pydantic, whose core is compiled: the image must have its wheel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field


class Order(BaseModel):
    """What a customer orders."""

    item: str
    number: int = Field(default=1, ge=1, le=100)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open what all requests share, and close it after the last one."""
    app.state.orders = []
    yield
    app.state.orders.clear()


app = FastAPI(title="Shop", lifespan=lifespan)


@app.post("/orders", status_code=201)
async def order(order: Order) -> dict[str, int]:
    """Take an order, and tell how many there are."""
    app.state.orders.append(order)
    return {"orders": len(app.state.orders)}


@app.get("/slow")
async def slow(seconds: float = 1.0) -> dict[str, float]:
    """Answer after some time. A drain waits for it."""
    await asyncio.sleep(seconds)
    return {"seconds": seconds}


@app.get("/client")
async def client(request: Request) -> dict[str, str | None]:
    """Tell who asks, by what scheme and for which host."""
    return {
        "client": request.client.host if request.client else None,
        "scheme": request.url.scheme,
        "host": request.url.netloc,
    }


@app.websocket("/echo")
async def echo(websocket: WebSocket) -> None:
    """Send every message back."""
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        pass
