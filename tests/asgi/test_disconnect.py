"""Cancel on disconnect with real applications, on every event loop: a stream, a long query, a thread, a middleware."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from deadlined import current_time, open_tcp_listeners, open_tcp_stream
from deadlined.asgi import App, AsgiHandler
from deadlined.http import HttpServer, Reason
from deadlined.runtime import LOOPS, Event, open_group, run
from tests.support.net import LOCALHOST

# seconds of real time: by then, or something is broken
SURELY = 30.0

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"

Endpoint = Callable[[Request], Awaitable[Response]]


class Seen:
    """What an application has noticed."""

    def __init__(self) -> None:
        self.began = Event()
        self.ended = Event()
        self.cancelled = False
        self.thread_may_end = threading.Event()

    async def sleep(self) -> None:
        """Sleep until cancelled, and note it."""
        self.began.set()
        try:
            await anyio.sleep(3600)
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        finally:
            self.ended.set()


def streaming(seen: Seen) -> Endpoint:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await seen.sleep()

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(pieces())

    return endpoint


def long_query(seen: Seen) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seen.sleep)
        return PlainTextResponse("never")

    return endpoint


def in_a_thread(seen: Seen) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        seen.began.set()
        try:
            await run_sync(seen.thread_may_end.wait, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            seen.cancelled = True
            raise
        finally:
            seen.ended.set()
        return PlainTextResponse("never")

    return endpoint


class Hides(BaseHTTPMiddleware):
    """A middleware as they are written: what it wraps does not see `http.disconnect` itself."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def application(endpoint: Endpoint, hidden: bool) -> App:
    middleware = [Middleware(Hides)] * 2 if hidden else []
    return cast(App, Starlette(routes=[Route("/", endpoint)], middleware=middleware))


class Reasons:
    """An observer that keeps why connections ended."""

    def __init__(self) -> None:
        self.all: list[Reason] = []
        self.ended = Event()

    def connection(self, record: Any) -> None:
        self.all.append(record.reason)
        self.ended.set()

    def request(self, record: Any) -> None:
        """Ignore it."""


async def leave(app: App, seen: Seen) -> list[Reason]:
    """Ask, leave once the application is at work, and wait until it and the server have noticed."""
    reasons = Reasons()
    server = HttpServer(AsgiHandler(app), observer=reasons)
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    async with open_group() as group:
        group.start_soon(server.serve, [listener])
        client = await open_tcp_stream(LOCALHOST, listener.socket.getsockname()[1])
        await client.send_all(GET)
        assert await seen.began.wait_until(current_time() + SURELY)
        client.close()
        assert await seen.ended.wait_until(current_time() + SURELY)
        assert await reasons.ended.wait_until(current_time() + SURELY)
        seen.thread_may_end.set()
        server.shutdown()
    return reasons.all


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("hidden", [False, True], ids=["", "behind middlewares"])
@pytest.mark.parametrize("make", [streaming, long_query, in_a_thread])
def test_a_client_that_leaves_cancels_what_runs_for_it(
    make: Callable[[Seen], Endpoint], hidden: bool, loop: str
) -> None:
    seen = Seen()
    [reason] = run(loop, leave, application(make(seen), hidden), seen)
    assert reason in (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)
    assert seen.cancelled
