"""Websockets of FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Cookie, Depends, FastAPI, Query, WebSocket, WebSocketDisconnect, WebSocketException, status
from fastapi.responses import JSONResponse

app = FastAPI()
trace: list[str] = []


class Rooms:
    """Those who listen, by room: what FastAPI's documentation calls a connection manager."""

    def __init__(self) -> None:
        self._members: dict[str, list[WebSocket]] = {}

    async def join(self, room: str, member: WebSocket) -> None:
        await member.accept()
        self._members.setdefault(room, []).append(member)

    def leave(self, room: str, member: WebSocket) -> None:
        self._members[room].remove(member)

    async def tell(self, room: str, text: str) -> None:
        for member in self._members[room]:
            await member.send_text(text)


rooms = Rooms()


async def session(name: str) -> AsyncIterator[str]:
    trace.append(f"{name}: opened")
    try:
        yield f"session of {name}"
    finally:
        trace.append(f"{name}: closed")


async def ticket(
    websocket: WebSocket,
    session: Annotated[str | None, Cookie()] = None,
    token: Annotated[str | None, Query()] = None,
) -> str:
    if session is None and token is None:
        raise WebSocketException(code=status.WS_1008_POLICY_VIOLATION, reason="no ticket")
    return session or token or ""


@app.websocket("/chat/{room}/{name}")
async def chat(websocket: WebSocket, room: str, name: str, held: Annotated[str, Depends(session)]) -> None:
    await rooms.join(room, websocket)
    try:
        while True:
            text = await websocket.receive_text()
            await rooms.tell(room, f"{name} ({held}): {text}")
    except WebSocketDisconnect:
        rooms.leave(room, websocket)
        await rooms.tell(room, f"{name} left")


@app.websocket("/items/{number}")
async def item(
    websocket: WebSocket, number: int, ticket: Annotated[str, Depends(ticket)], limit: Annotated[int, Query(le=10)] = 5
) -> None:
    await websocket.accept()
    await websocket.send_json({"number": number, "limit": limit, "ticket": ticket})
    await websocket.close()


@app.websocket("/strict")
async def strict(websocket: WebSocket) -> None:
    await websocket.accept()
    word = await websocket.receive_json()
    if word != {"word": "please"}:
        raise WebSocketException(code=4100, reason="say please")
    await websocket.send_text("thank you")
    await websocket.close()


class SoldOutError(Exception):
    """Answered by a handler of the application."""


@app.exception_handler(SoldOutError)
async def when_sold_out(websocket: WebSocket, error: Exception) -> None:
    await websocket.close(code=4200, reason=str(error))


@app.websocket("/order")
async def order(websocket: WebSocket) -> None:
    await websocket.accept()
    raise SoldOutError("no tea")


@app.websocket("/fail")
async def fail(websocket: WebSocket) -> None:
    await websocket.accept()
    raise LookupError("meant to fail")


@app.get("/trace")
async def traced() -> Any:
    return JSONResponse(trace)
