"""A site of Quart for asyncio, and the same of Quart-Trio for trio."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

from quart import (
    Quart,
    Response,
    abort,
    jsonify,
    make_response,
    redirect,
    render_template_string,
    request,
    session,
    stream_with_context,
    url_for,
    websocket,
)
from quart_trio import QuartTrio

log = logging.getLogger("site")


def bodies(app: Quart) -> None:
    """Add the pages that read and stream."""

    @app.get("/hello/<name>")
    async def hello(name: str) -> str:
        return await render_template_string("hello {{ name }}", name=name)

    @app.post("/json")
    async def json() -> Any:
        data = await request.get_json()
        return jsonify(sum=sum(data["numbers"]), args=request.args.to_dict(flat=False))

    @app.post("/form")
    async def form() -> Any:
        fields = await request.form
        files = await request.files
        return {"fields": fields.to_dict(), "files": {name: len(file.read()) for name, file in files.items()}}

    @app.post("/length")
    async def length() -> Any:
        total = 0
        async for piece in request.body:
            total += len(piece)
        return {"length": total}

    @app.get("/stream")
    async def stream() -> Response:
        @stream_with_context
        async def lines() -> AsyncIterator[bytes]:
            for number in range(int(request.args["lines"])):
                yield b"line %d\n" % number

        return Response(lines(), mimetype="text/plain")


def pages(app: Quart, finished: list[str]) -> None:
    """Add the pages that only answer."""

    @app.get("/threaded")
    def threaded() -> Any:
        return {"main": threading.current_thread() is threading.main_thread()}

    @app.get("/visits")
    async def visits() -> Any:
        session["visits"] = session.get("visits", 0) + 1
        return {"visits": session["visits"]}

    @app.get("/headers")
    async def headers() -> Response:
        response: Any = await make_response("seen", 203)
        response.headers["x-agent"] = request.headers["user-agent"]
        return response  # type: ignore[no-any-return]

    @app.post("/begin")
    async def begin() -> str:
        async def work() -> None:
            finished.append("work")

        app.add_background_task(work)
        return "begun"

    @app.get("/slow")
    async def slow() -> str:
        log.info("slow has begun")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.info("slow was cancelled")
            raise
        return "done"

    @app.get("/finished")
    async def finished_so_far() -> Any:
        return finished


def errors(app: Quart) -> None:
    """Add the pages that refuse and fail."""

    @app.get("/old")
    async def old() -> Any:
        return redirect(url_for("hello", name="you"))

    @app.get("/secret")
    async def secret() -> str:
        abort(403)

    @app.get("/fail")
    async def fail() -> str:
        raise LookupError("meant to fail")

    @app.get("/teapot")
    async def teapot() -> str:
        raise ArithmeticError

    @app.errorhandler(ArithmeticError)
    async def on_arithmetic(_: Exception) -> Any:
        return "no tea", 418

    @app.websocket("/waiting")
    async def waiting() -> None:
        await websocket.accept()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.info("waiting was cancelled")
            raise

    @app.websocket("/chat")
    async def chat() -> None:
        await websocket.send("hello")


def make(kind: type[Quart]) -> Quart:
    """Make the site."""
    app = kind(__name__)
    app.secret_key = "of this test"
    finished: list[str] = []
    bodies(app)
    pages(app, finished)
    errors(app)

    @app.before_serving
    async def up() -> None:
        log.info("site up")

    @app.after_serving
    async def down() -> None:
        log.info("site down")

    @app.after_request
    async def mark(response: Any) -> Any:
        response.headers["x-mark"] = "seen"
        return response

    return app


def for_asyncio() -> Quart:
    return make(Quart)


def for_trio() -> Quart:
    return make(QuartTrio)
