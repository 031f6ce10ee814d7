"""A handler's mess stays its own: whatever it does to its task, the next request on another connection is served, the
drain ends, and no task, scope, descriptor or timer is left.

The applications are real ones; their mistakes are those that were seen, and those that are easy to make.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import anyio
import httpx
import pytest
import trio
from fastapi import FastAPI
from fastapi.responses import StreamingResponse as FastApiStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from trio.lowlevel import checkpoint, current_task

from deadlined import statistics
from deadlined.asgi import App
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason, Timeouts
from tests.support.serving import GET, LOCALHOST, Served, say, serving

pytestmark = [
    pytest.mark.usefixtures("parser"),
    # trio warns of a generator that it must close itself, because its task was cancelled
    pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted:ResourceWarning"),
]

Endpoint = Callable[[], Awaitable[None]]


class Mess(BaseException):
    """Not an Exception: what nobody expects."""


# what a generator of a stream holds when its client leaves


async def in_a_task_group() -> AsyncIterator[bytes]:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        while True:
            yield bytes(65536)


async def in_a_time_limit() -> AsyncIterator[bytes]:
    with anyio.move_on_after(3600):
        while True:
            yield bytes(65536)


async def in_a_nursery() -> AsyncIterator[bytes]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        while True:
            await trio.lowlevel.checkpoint()
            yield bytes(65536)


async def in_a_cancelled_scope() -> AsyncIterator[bytes]:
    with trio.CancelScope() as scope:
        yield bytes(65536)
        scope.cancel()
        while True:
            yield bytes(65536)


async def in_all_of_them() -> AsyncIterator[bytes]:
    with anyio.fail_after(3600):
        async for piece in in_a_task_group():
            yield piece


STREAMS = [in_a_task_group, in_a_time_limit, in_a_nursery, in_a_cancelled_scope, in_all_of_them]


# what an endpoint does, and what its client gets; None where the answer came before


async def leave_a_scope_open() -> None:
    trio.CancelScope().__enter__()


async def leave_a_scope_open_after_a_sleep() -> None:
    await trio.lowlevel.checkpoint()
    trio.CancelScope(deadline=trio.current_time() + 0.01).__enter__()


async def leave_a_cancelled_scope_open() -> None:
    trio.CancelScope().__enter__().cancel()


async def leave_a_nursery_open() -> None:
    nursery = await trio.open_nursery().__aenter__()
    nursery.start_soon(trio.sleep_forever)


async def leave_a_task_group_open() -> None:
    group = await anyio.create_task_group().__aenter__()
    group.start_soon(anyio.sleep_forever)


async def start_a_task_that_fails_in_the_nursery_of_its_own_task() -> None:
    async def fail() -> None:
        await trio.sleep(0.01)
        raise ValueError("a task of an earlier request")

    nursery = current_task().parent_nursery
    assert nursery is not None
    nursery.start_soon(fail)


async def abandon_a_generator_and_go_on() -> None:
    await anext(in_a_time_limit())
    gc.collect()
    await trio.sleep(0.01)


async def exit_scopes_in_the_wrong_order() -> None:
    outer = trio.CancelScope()
    outer.__enter__()
    trio.CancelScope().__enter__()
    outer.__exit__(None, None, None)


async def wait_in_a_scope_that_was_cancelled_and_is_left_open() -> None:
    trio.CancelScope().__enter__().cancel()
    await trio.sleep_forever()


async def cancel_the_nursery_of_its_own_task() -> None:
    nursery = current_task().parent_nursery
    assert nursery is not None
    nursery.cancel_scope.cancel()
    await trio.sleep_forever()


async def raise_system_exit() -> None:
    sys.exit(3)


async def raise_generator_exit() -> None:
    raise GeneratorExit


async def raise_the_cancellation_of_asyncio() -> None:
    await trio.lowlevel.checkpoint()
    raise asyncio.CancelledError


async def raise_what_is_no_exception() -> None:
    raise Mess


async def raise_a_group() -> None:
    raise BaseExceptionGroup("several", [Mess(), ValueError(), BaseExceptionGroup("more", [SystemExit(1)])])


async def raise_system_exit_in_a_thread() -> None:
    await trio.to_thread.run_sync(sys.exit, 3)


async def raise_in_a_task() -> None:
    async def fail() -> None:
        raise Mess

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        await trio.sleep_forever()


HARMLESS_ANSWERS: list[Endpoint] = [
    leave_a_scope_open,
    leave_a_scope_open_after_a_sleep,
    start_a_task_that_fails_in_the_nursery_of_its_own_task,
    leave_a_nursery_open,
    leave_a_task_group_open,
    leave_a_cancelled_scope_open,
]
FAILURES: list[Endpoint] = [
    exit_scopes_in_the_wrong_order,
    wait_in_a_scope_that_was_cancelled_and_is_left_open,
    cancel_the_nursery_of_its_own_task,
    raise_system_exit,
    raise_generator_exit,
    raise_the_cancellation_of_asyncio,
    raise_what_is_no_exception,
    raise_a_group,
    raise_system_exit_in_a_thread,
    raise_in_a_task,
]


async def fine(_: Request) -> Response:
    """Answers only in a task that is as a fresh one."""
    assert trio.current_effective_deadline() == float("inf")
    assert current_task().child_nurseries == []
    await checkpoint()
    return PlainTextResponse("fine")


def starlette_with(endpoint: Callable[..., Awaitable[Response]]) -> App:
    return cast(App, Starlette(routes=[Route("/mess", endpoint), Route("/fine", fine)]))


def fastapi_with(endpoint: Callable[..., Awaitable[Any]]) -> App:
    app = FastAPI()
    app.get("/mess", response_model=None)(endpoint)
    app.get("/fine", response_model=None)(fine)
    return cast(App, app)


def then_answer(act: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        await act()
        return PlainTextResponse("done")

    return endpoint


async def leave_early(served: Served, path: str = "/mess") -> None:
    """Read the beginning of a stream, and reset the connection."""
    async with served.client() as client:
        await client.send(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode())
        await client.receive()


def browser(served: Served) -> httpx.AsyncClient:
    """Return a client without a store of certificates, which would take a hundred times as long to make."""
    return httpx.AsyncClient(base_url=served.url, trust_env=False, verify=False)


async def assert_the_next_is_served(served: Served) -> None:
    async with browser(served) as other:
        for _ in range(3):
            assert (await other.get("/fine")).text == "fine"


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def timers() -> int:
    """Timers that are armed in this run."""
    counted = statistics()
    return 0 if counted is None else counted.poller.timers.stored - counted.poller.timers.zombies


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; the test's own timeout ends it if that never comes."""
    while not condition():  # noqa: ASYNC110, nothing tells of it
        await trio.sleep(0.01)


@contextlib.asynccontextmanager
async def messing(app: App, timeouts: Timeouts | None = None) -> AsyncIterator[Served]:
    """Serve `app`; then the next request must be served, the drain must end, and nothing be left."""
    before = living()
    pending = timers()
    async with serving(app, timeouts=timeouts) as served:
        await assert_the_next_is_served(served)
        yield served
        await assert_the_next_is_served(served)
        served.server.shutdown()
        await until(lambda: not served.server.statistics().open and not served.server.statistics().background)
    gc.collect()
    # the pump of the run stays
    await until(lambda: living() <= before + 1)
    assert timers() <= pending


@pytest.mark.parametrize("framework", [starlette_with, fastapi_with])
@pytest.mark.parametrize("stream", STREAMS)
async def test_a_client_that_leaves_a_stream_ends_that_stream_only(
    stream: Callable[[], AsyncIterator[bytes]], framework: Callable[..., App]
) -> None:
    closed: list[str] = []

    async def noted() -> AsyncIterator[bytes]:
        try:
            async for piece in stream():
                yield piece
        finally:
            closed.append("closed")

    response = StreamingResponse if framework is starlette_with else FastApiStream

    async def endpoint(request: Request) -> Response:
        return response(noted())

    async with messing(framework(endpoint)) as served:
        for _ in range(3):
            await leave_early(served)
        await assert_the_next_is_served(served)
    gc.collect()
    assert closed == ["closed"] * 3


@pytest.mark.parametrize("act", HARMLESS_ANSWERS)
@pytest.mark.parametrize("framework", [starlette_with, fastapi_with])
async def test_what_a_handler_leaves_open_harms_nobody(act: Endpoint, framework: Callable[..., App]) -> None:
    async with messing(framework(then_answer(act))) as served:
        for _ in range(3):
            async with browser(served) as client:
                with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                    # what a framework does after the endpoint may be cancelled by what the endpoint left
                    assert (await client.get("/mess")).status_code in (200, 500)


@pytest.mark.parametrize("act", FAILURES)
@pytest.mark.parametrize("framework", [starlette_with, fastapi_with])
async def test_whatever_a_handler_raises_is_a_500(
    act: Endpoint, framework: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    async with messing(framework(then_answer(act))) as served:
        for _ in range(3):
            async with browser(served) as client:
                assert (await client.get("/mess")).status_code == 500
    failed = [record for record in caplog.records if record.levelno == logging.ERROR and "/mess" in record.getMessage()]
    assert len(failed) == 3


async def test_a_generator_that_is_abandoned_before_the_end_harms_nobody() -> None:
    async with messing(starlette_with(then_answer(abandon_a_generator_and_go_on))) as served:
        for _ in range(3):
            async with browser(served) as client:
                with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                    await client.get("/mess")


async def test_a_handler_that_swallows_its_cancellation_keeps_its_own_task_only() -> None:
    let_go = trio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            with contextlib.suppress(trio.Cancelled), trio.CancelScope(shield=True):
                await let_go.wait()

    async with messing(starlette_with(then_answer(stubborn)), Timeouts(handler=0.05)) as served:
        async with browser(served) as client:
            assert (await client.get("/mess")).status_code == 504
        await assert_the_next_is_served(served)
        let_go.set()


async def test_a_handler_that_never_returns_is_ended_by_the_drain() -> None:
    async def endless() -> None:
        await trio.sleep_forever()

    app = starlette_with(then_answer(endless))
    async with messing(app, Timeouts(drain=0.05)) as served, served.client() as client:
        await client.send(b"GET /mess HTTP/1.1\r\nhost: a\r\n\r\n")
        await trio.sleep(0.02)
        await assert_the_next_is_served(served)


def test_keyboard_interrupt_alone_is_the_operators() -> None:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with serving(starlette_with(then_answer(interrupt))) as served:
            await leave_early(served)
            await trio.sleep(5)

    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        trio.run(main)
    interrupts: BaseException | None = caught.value
    if isinstance(interrupts, BaseExceptionGroup):
        assert interrupts.split(KeyboardInterrupt)[1] is None


@pytest.mark.parametrize(
    "end", [raise_system_exit, raise_what_is_no_exception, wait_in_a_scope_that_was_cancelled_and_is_left_open]
)
async def test_a_handler_that_ends_its_task_while_its_client_leaves_is_counted_once(end: Endpoint) -> None:
    peer = socket.socket()

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        if scope["path"] == "/fine":
            await say(send, b"fine")
            return
        await say(send, b"a", more=True)
        await trio.sleep(0.01)
        # the reset is noticed when the next piece is sent, at the end of the step that ends the task
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await send({"type": "http.response.body", "body": b"b", "more_body": True})
        await end()

    async with messing(app) as served:
        peer.connect((LOCALHOST, served.port))
        peer.sendall(GET)
        await until(lambda: bool(served.connections) and served.connections[-1].reason is Reason.CLIENT_RESET)
