"""Websockets of Quart on asyncio, and of Quart-Trio on trio."""

from __future__ import annotations

from typing import Any

from quart import Quart, abort, websocket
from quart_trio import QuartTrio

# asyncio's, trio's, and since Quart 0.23 one of Quart's own
CANCELLED = ("CancelledError", "Cancelled", "ClientDisconnectedError")


def conversations(app: Quart) -> None:
    """Add the websockets that talk."""

    @app.websocket("/echo")
    async def echo() -> None:
        while True:
            await websocket.send(await websocket.receive())

    @app.websocket("/json/<int:number>")
    async def json(number: int) -> None:
        value = await websocket.receive_json()
        await websocket.send_json({"number": number, "value": value, "args": websocket.args.to_dict()})

    @app.websocket("/subprotocol")
    async def subprotocol() -> None:
        await websocket.accept(subprotocol=websocket.requested_subprotocols[-1], headers={"x-mark": "seen"})
        await websocket.send("accepted")

    @app.websocket("/leave")
    async def leave() -> None:
        await websocket.accept()
        await websocket.close(4002, "enough")


def refusals(app: Quart, trace: list[str]) -> None:
    """Add the websockets that end in another way."""

    @app.websocket("/forbidden")
    async def forbidden() -> None:
        abort(403)

    @app.websocket("/answered")
    async def answered() -> Any:
        return {"why": "no ticket"}, 401, {"x-mark": "seen"}

    @app.websocket("/fail")
    async def fail() -> None:
        await websocket.accept()
        raise LookupError("meant to fail")

    @app.websocket("/waiting")
    async def waiting() -> None:
        try:
            await websocket.receive()
        except BaseException as error:
            if type(error).__name__ in CANCELLED:
                trace.append("cancelled")
            raise

    @app.get("/trace")
    async def traced() -> Any:
        return trace


def make(kind: type[Quart]) -> Quart:
    """Make the site."""
    app = kind(__name__)
    conversations(app)
    refusals(app, [])

    @app.before_websocket
    async def check() -> None:
        if "x-banned" in websocket.headers:
            abort(418)

    return app


def for_asyncio() -> Quart:
    return make(Quart)


def for_trio() -> Quart:
    return make(QuartTrio)
