"""An application that a program serves in its own event loop: the drain, and what begins it and ends it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext, suppress
from functools import partial

import anyio
import pytest
import trio

from deadlined import (
    DeadlineExceeded,
    after_func,
    current_time,
    open_tcp_listeners,
    open_tcp_stream,
)
from deadlined.asgi import AsgiServer, LifespanFailed, serve
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.asgi.server import OVERDUE
from deadlined.http import Timeouts
from deadlined.runtime import LOOPS, Event, call_soon, run
from tests.support.conformance import SURELY, Loop, on_asyncio, on_each_loop, on_loops
from tests.support.embedded import GET, App, Status, ask, begin, body, everything, unable
from tests.support.net import LOCALHOST


@on_each_loop
async def test_a_cancellation_waits_for_the_requests_that_run_and_then_for_the_shutdown(loop: Loop) -> None:
    app = App(holds=True)
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app)
        server = await status.server()
        asking = tasks.start(ask, server.port)
        await app.came.wait()
        serving.cancel()
        await loop.sleep(2)
        assert (serving.pending, app.events) == (True, ["startup"])
        app.release.set()
        assert body(await asking.succeeds()) == b"hello"
        await serving.wait()
        assert serving.cancelled
        assert app.events == ["startup", "response", "shutdown"]


@on_each_loop
async def test_a_cancellation_by_anyio_which_comes_in_each_step_of_asyncio_is_one(loop: Loop) -> None:
    app = App(holds=True)
    async with loop.tasks() as tasks:
        with anyio.CancelScope() as scope:
            async with AsgiServer(app, port=0) as server:
                asking = tasks.start(ask, server.port)
                await app.came.wait()
                tasks.start(cancelled_then_released, loop, scope, app)
                await loop.forever()
        assert scope.cancelled_caught
        assert body(await asking.succeeds()) == b"hello"
    assert app.events == ["startup", "response", "shutdown"]


async def cancelled_then_released(loop: Loop, scope: anyio.CancelScope, app: App) -> None:
    await loop.settle()
    scope.cancel()
    for _ in range(20):
        await loop.step()
    app.release.set()


@on_each_loop
async def test_a_drain_ends_at_its_deadline(loop: Loop) -> None:
    app = App(holds=True)
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app, timeouts=Timeouts(drain=loop.seconds(5)))
        asking = tasks.start(ask, (await status.server()).port)
        await app.came.wait()
        when = loop.after(5)
        serving.cancel()
        await serving.wait()
        assert loop.is_at(when) or not loop.is_virtual
        await asking.fails_with(OSError)
        assert app.events == ["startup", "shutdown"]


class Stubborn(App):
    """An application whose requests go on until `release`, whatever cancels them, as one that waits for a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
            self.told.set()
            return
        self.came.set()
        with trio.CancelScope(shield=True) if trio.lowlevel.in_trio_task() else nullcontext():
            while not self.release.is_set():
                with suppress(asyncio.CancelledError):
                    await self.release.wait()
        self.events.append("end")


@on_each_loop
async def test_a_request_that_goes_on_after_the_drain_does_not_hold_up_the_shutdown(loop: Loop) -> None:
    app = Stubborn()
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app, timeouts=Timeouts(drain=loop.seconds(5)))
        asking = tasks.start(ask, (await status.server()).port)
        await app.came.wait()
        overdue = loop.after(5) + OVERDUE
        serving.cancel()
        await app.told.wait()
        assert loop.is_at(overdue)
        assert serving.pending
        app.release.set()
        await serving.wait()
        await asking.fails_with(OSError)
        assert app.events == ["startup", "shutdown", "end"]


@on_asyncio
async def test_nor_does_it_after_a_second_cancellation(loop: Loop) -> None:
    app = Stubborn()
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app, timeouts=Timeouts(drain=300))
        asking = tasks.start(ask, (await status.server()).port)
        await app.came.wait()
        for _ in range(2):
            serving.cancel()
            await loop.sleep(1)
        overdue = loop.after(0) + OVERDUE
        await app.told.wait()
        assert current_time() <= overdue + SURELY
        assert serving.pending
        app.release.set()
        await serving.wait()
        await asking.fails_with(OSError)


@on_each_loop
async def test_a_shutdown_that_hangs_ends_with_the_drain_or_after_a_second(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await loop.forever()

    async with AsgiServer(app, port=0, timeouts=Timeouts(drain=0.5)):
        begun = current_time()
    assert 1.0 <= current_time() - begun < SURELY
    assert "did not finish its lifespan shutdown within 1 s; a longer drain (--drain) gives it more" in caplog.text


@on_each_loop
async def test_it_ends_when_it_is_asked_to(loop: Loop) -> None:
    app = App(holds=True)
    event = loop.event()
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app, shutdown=event.wait)
        asking = tasks.start(ask, (await status.server()).port)
        await app.came.wait()
        event.set()
        await loop.sleep(1)
        assert serving.pending
        app.release.set()
        await serving.succeeds()
        assert body(await asking.succeeds()) == b"hello"
        assert app.events == ["startup", "response", "shutdown"]


@on_each_loop
async def test_the_server_itself_can_be_asked_in_the_block_and_by_serve(loop: Loop) -> None:
    async with AsgiServer(App(), port=0) as server:
        server.shutdown()
        await server.wait_closed()
    async with loop.tasks() as tasks:
        for options in ({}, {"shutdown": loop.event().wait}):
            serving, status = begin(tasks, App(), **options)
            (await status.server()).shutdown()
            await serving.succeeds()


@on_each_loop
async def test_an_idle_connection_does_not_hold_up_the_end_of_the_block(loop: Loop) -> None:
    async with AsgiServer(App(), port=0) as server:
        conn = await open_tcp_stream(LOCALHOST, server.port)
        await conn.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await conn.receive_some()
        begun = current_time()
    assert current_time() - begun < 1.0 or not loop.is_virtual
    assert await conn.receive_some() == b""
    conn.close()


@on_each_loop
async def test_an_error_of_the_block_passes_unchanged_after_the_drain(loop: Loop) -> None:
    app = App()
    with pytest.raises(LookupError, match="of the block"):
        async with AsgiServer(app, port=0):
            raise LookupError("of the block")
    assert app.events == ["startup", "shutdown"]


@on_each_loop
async def test_a_server_that_fails_cancels_the_block(loop: Loop) -> None:
    (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
    app = App()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with AsgiServer(app, listeners=[listener]):
            # accept fails for good
            listener.set_timeout(0)
            await loop.forever()
    assert caught.value.split(DeadlineExceeded)[1] is None


@on_asyncio
async def test_a_second_cancellation_ends_the_drain(loop: Loop) -> None:
    app = App(holds=True)
    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app)
        asking = tasks.start(ask, (await status.server()).port)
        await app.came.wait()
        serving.cancel()
        await loop.sleep(1)
        serving.cancel()
        await serving.wait()
        await asking.fails_with(OSError)
        assert serving.cancelled
        assert app.events == ["startup", "shutdown"]


@on_asyncio
async def test_a_second_cancellation_ends_a_shutdown_that_hangs_within_a_second(loop: Loop) -> None:
    stopping = Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        stopping.set()
        await loop.forever()

    async with loop.tasks() as tasks:
        serving, status = begin(tasks, app, timeouts=Timeouts(drain=300))
        await status.server()
        # the second counts from when the application is told, which is before it has noticed
        told_after = current_time()
        serving.cancel()
        await stopping.wait()
        begun = current_time()
        serving.cancel()
        await serving.wait()
        assert told_after + 1.0 <= current_time() < begun + SURELY


@on_asyncio
async def test_a_time_limit_of_asyncio_around_it_is_one(loop: Loop) -> None:
    events: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        events.append("startup")
        # it is no limit of the start, however long that takes
        limit.reschedule(asyncio.get_running_loop().time() + loop.seconds(1))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        events.append("shutdown")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            await serve(app, port=0)
    assert events == ["startup", "shutdown"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@on_loops("trio")
async def test_a_nursery_starts_it(loop: Loop) -> None:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, App(), port=0))
        assert body(await ask(server.port)) == b"hello"
        with pytest.raises(LifespanFailed):
            await nursery.start(partial(serve, unable, port=0))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_drains_and_a_second_one_ends_the_drain(loop: str, times: int) -> None:
    app = App(holds=True)
    received: list[bytes] = []

    def interrupt() -> None:
        # in a step of the loop itself, so that it comes where the main task waits
        call_soon()(signal.raise_signal, signal.SIGINT)

    async def main() -> None:
        (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
        async with await open_tcp_stream(LOCALHOST, listener.socket.getsockname()[1]) as conn:
            try:
                async with AsgiServer(app, listeners=[listener]):
                    await conn.send_all(GET)
                    await app.came.wait()
                    interrupt()
                    after_func(0.05, app.release.set if times == 1 else interrupt)
                    await Event().wait()
            finally:
                with suppress(OSError):
                    received.append(await everything(conn))

    with pytest.raises(KeyboardInterrupt):
        run(loop, main)
    if times == 1:
        assert body(received[0]) == b"hello"
        assert app.events == ["startup", "response", "shutdown"]
    else:
        # asyncio's second one may cancel the handler before the server does
        assert not any(each.startswith(b"HTTP/1.1 200 ") for each in received)
        assert app.events == ["startup", "shutdown"]


def test_the_end_of_a_run_of_asyncio_drains_what_runs_in_its_background() -> None:
    app = App()

    async def main() -> None:
        status = Status()
        task = asyncio.create_task(serve(app, port=0, task_status=status))
        server = await status.server()
        assert body(await ask(server.port)) == b"hello"
        assert not task.done()

    asyncio.run(main())
    assert app.events == ["startup", "response", "shutdown"]
