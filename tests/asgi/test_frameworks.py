"""Applications as people write them, end to end: Starlette, FastAPI and Quart on trio, with httpx as the client."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import httpx
import pytest
import trio
import trio.testing
from fastapi import Depends, FastAPI
from quart import Response as QuartResponse
from quart import request as quart_request
from quart_trio import QuartTrio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from deadlined.asgi import App, Lifespan
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason
from tests.support.net import SERVER_NAME, certificates
from tests.support.serving import GET, Served, serving

pytestmark = pytest.mark.usefixtures("parser")


@asynccontextmanager
async def browsing(app: object) -> AsyncIterator[tuple[httpx.AsyncClient, Served]]:
    """Serve `app` with its lifespan, and give a client of it."""
    application = cast(App, app)
    async with (
        Lifespan(application) as state,
        serving(application, state=state) as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False, verify=False) as client,
    ):
        yield client, served


class OlderServer:
    """Call `app` as an older server would: frameworks then wait for the disconnect while they stream."""

    def __init__(self, app: object) -> None:
        self._app = cast(App, app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "asgi": {"version": "3.0", "spec_version": "2.3"}}, receive, send)


# Starlette


async def test_starlette_answers_json_again_and_again_on_one_connection() -> None:
    async def add(request: Request) -> Response:
        numbers = await request.json()
        return JSONResponse({"sum": sum(numbers), "query": dict(request.query_params)})

    async with browsing(Starlette(routes=[Route("/add", add, methods=["POST"])])) as (client, served):
        for last in range(5):
            response = await client.post("/add?x=%C3%A9", json=[1, 2, last])
            assert response.json() == {"sum": 3 + last, "query": {"x": "é"}}
        assert (await client.get("/add")).status_code == 405
        assert (await client.get("/nowhere")).status_code == 404
        assert served.server.statistics().accepted == 1


@pytest.mark.parametrize("wrap", [lambda app: app, OlderServer], ids=["spec 2.4", "watching for the disconnect"])
async def test_starlette_streams_and_the_connection_goes_on(wrap: Any) -> None:
    async def numbers() -> AsyncIterator[str]:
        for number in range(100):
            await trio.lowlevel.checkpoint()
            yield f"{number}\n"

    async def stream(_: Request) -> Response:
        return StreamingResponse(numbers())

    async with browsing(wrap(Starlette(routes=[Route("/", stream)]))) as (client, served):
        for _ in range(3):
            assert (await client.get("/")).text.split() == [str(number) for number in range(100)]
        assert served.server.statistics().accepted == 1


async def test_starlette_streams_over_tls_with_a_watch_and_the_connection_goes_on() -> None:
    async def stream(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(20):
                await trio.lowlevel.checkpoint()
                yield bytes(1000)

        return StreamingResponse(pieces())

    app = OlderServer(Starlette(routes=[Route("/", stream)]))
    async with (
        serving(app, ssl_context=certificates().server) as served,
        httpx.AsyncClient(verify=certificates().client, trust_env=False) as client,
    ):
        for _ in range(3):
            response = await client.get(
                served.url, headers={"host": SERVER_NAME}, extensions={"sni_hostname": SERVER_NAME}
            )
            assert response.content == bytes(20000)
        assert served.server.statistics().accepted == 1


@pytest.mark.parametrize("wrap", [lambda app: app, OlderServer], ids=["spec 2.4", "watching for the disconnect"])
async def test_a_client_that_leaves_ends_starlettes_stream_and_is_no_error(
    wrap: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Endless:
        # no generator: Starlette leaves it to the garbage collector, and trio says so
        def __aiter__(self) -> Endless:
            return self

        async def __anext__(self) -> bytes:
            await trio.lowlevel.checkpoint()
            return bytes(10000)

    async def stream(_: Request) -> Response:
        return StreamingResponse(Endless())

    async with serving(wrap(Starlette(routes=[Route("/", stream)]))) as served:
        async with served.client() as client:
            await client.send(GET)
            await client.receive()
        assert (await served.ended()).reason in (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_starlette_can_ask_whether_its_client_has_left() -> None:
    asked: list[bool] = []
    asked_once = trio.Event()
    gone = trio.Event()

    async def home(request: Request) -> Response:
        await request.body()
        asked.append(await request.is_disconnected())
        asked_once.set()
        await gone.wait()
        while not asked[-1]:
            await trio.lowlevel.checkpoint()
            asked.append(await request.is_disconnected())
        return PlainTextResponse("")

    async with serving(cast(App, Starlette(routes=[Route("/", home)])), cancel_on_disconnect=False) as served:
        async with served.client() as client:
            await client.send(GET)
            await asked_once.wait()
        gone.set()
        assert (await served.ended()).reason is Reason.CLIENT_CLOSED
    assert asked[0] is False
    assert asked[-1] is True


async def test_starlettes_background_task_runs_after_the_response() -> None:
    done = trio.Event()
    answered = trio.Event()

    async def after() -> None:
        await answered.wait()
        done.set()

    async def home(_: Request) -> Response:
        return PlainTextResponse("soon", background=BackgroundTask(after))

    async with browsing(Starlette(routes=[Route("/", home)])) as (client, _):
        assert (await client.get("/")).text == "soon"
        answered.set()
        await done.wait()


@pytest.mark.parametrize("streams", [False, True], ids=["at once", "stream"])
@pytest.mark.parametrize("wrap", [lambda app: app, OlderServer], ids=["spec 2.4", "watching for the disconnect"])
async def test_the_next_request_does_not_wait_for_starlettes_background_task(streams: bool, wrap: Any) -> None:
    begun: list[int] = []
    ended: list[int] = []
    may_end = trio.Event()

    async def pieces() -> AsyncIterator[str]:
        yield "soon"

    async def after(number: int) -> None:
        begun.append(number)
        await may_end.wait()
        ended.append(number)

    async def home(request: Request) -> Response:
        background = BackgroundTask(after, int(request.query_params["number"]))
        if streams:
            return StreamingResponse(pieces(), background=background)
        return PlainTextResponse("soon", background=background)

    async with browsing(wrap(Starlette(routes=[Route("/", home)]))) as (client, served):
        for number in range(3):
            assert (await client.get("/", params={"number": number})).text == "soon"
        await trio.testing.wait_all_tasks_blocked()
        assert (begun, ended) == ([0, 1, 2], [])
        assert served.server.statistics().accepted == 1
        may_end.set()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == [0, 1, 2]


async def test_starlette_takes_a_large_upload() -> None:
    size = 20 << 20

    async def upload(request: Request) -> Response:
        digest = hashlib.sha256()
        length = 0
        async for piece in request.stream():
            digest.update(piece)
            length += len(piece)
        return JSONResponse([length, digest.hexdigest()])

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size >> 16):
            yield b"deadline" * 8192

    expected = [size, hashlib.sha256(b"deadline" * (size // 8)).hexdigest()]
    async with browsing(Starlette(routes=[Route("/", upload, methods=["POST"])])) as (client, _):
        assert (await client.post("/", content=b"deadline" * (size // 8))).json() == expected
        assert (await client.post("/", content=pieces())).json() == expected


async def test_starlettes_lifespan_state_reaches_its_requests() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, str]]:
        events.append("up")
        yield {"database": "open"}
        events.append("down")

    async def home(request: Request) -> Response:
        return PlainTextResponse(request.state.database)

    async with browsing(Starlette(routes=[Route("/", home)], lifespan=lifespan)) as (client, _):
        assert events == ["up"]
        assert (await client.get("/")).text == "open"
    assert events == ["up", "down"]


async def test_a_route_of_starlette_that_fails_is_500_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def home(_: Request) -> Response:
        raise LookupError("lost")

    async with browsing(Starlette(routes=[Route("/", home)])) as (client, _):
        response = await client.get("/")
        assert (response.status_code, response.text) == (500, "Internal Server Error")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


# FastAPI


async def user(name: str = "nobody") -> str:
    """A dependency."""
    return name.upper()


async def test_fastapi_validates_and_injects() -> None:
    app = FastAPI()

    @app.get("/items/{number}")
    async def item(number: int, who: Annotated[str, Depends(user)]) -> dict[str, Any]:
        return {"number": number, "who": who}

    @app.get("/in-a-thread")
    def threaded() -> str:
        return "done"

    async with browsing(app) as (client, served):
        assert (await client.get("/items/5", params={"name": "ann"})).json() == {"number": 5, "who": "ANN"}
        response = await client.get("/items/five")
        assert response.status_code == 422
        assert response.json()["detail"][0]["loc"] == ["path", "number"]
        assert (await client.get("/in-a-thread")).json() == "done"
        assert (await client.get("/openapi.json")).json()["openapi"].startswith("3.")
        assert served.server.statistics().accepted == 1


# Quart


async def test_quart_routes_reads_bodies_and_streams() -> None:
    app = QuartTrio(__name__)

    @app.get("/hello/<name>")
    async def hello(name: str) -> str:
        return f"hello {name}"

    @app.post("/length")
    async def length() -> dict[str, int]:
        return {"length": len(await quart_request.get_data())}

    @app.get("/stream")
    async def stream() -> QuartResponse:
        async def numbers() -> AsyncIterator[bytes]:
            for number in range(50):
                await trio.lowlevel.checkpoint()
                yield b"%d " % number

        return QuartResponse(numbers(), mimetype="text/plain")

    async with browsing(app) as (client, served):
        assert (await client.get("/hello/you")).text == "hello you"
        assert (await client.post("/length", content=bytes(300_000))).json() == {"length": 300_000}
        assert (await client.get("/stream")).text.split() == [str(number) for number in range(50)]
        assert (await client.get("/nowhere")).status_code == 404
        assert served.server.statistics().accepted == 1
