"""Ctrl-C while an application is served in a program's own event loop: it begins the drain, wherever it comes."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio
from trio.testing import MockClock

from deadlined import after_func, open_tcp_listeners, open_tcp_stream
from deadlined.asgi import AsgiServer
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.runtime import LOOPS, Event, run
from tests.support.embedded import GET, App, ask, body, everything
from tests.support.interrupts import interrupted_at
from tests.support.net import LOCALHOST

INTERRUPT = GET.replace(b" / ", b" /interrupt ")

# lines from one interrupt to the next, of some 1,600 that the server runs for a request
STRIDE = 7


class Interrupted(App):
    """An application that holds its requests, and calls `interrupt` for one of them."""

    def __init__(self, interrupt: Callable[[], object]) -> None:
        super().__init__(holds=True)
        self.interrupt = interrupt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/interrupt":
            self.interrupt()
        else:
            await super().__call__(scope, receive, send)


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_that_hits_a_handler_ends_its_request_alone_and_begins_the_drain(loop: str) -> None:
    app = Interrupted(lambda: signal.raise_signal(signal.SIGINT))
    received: list[bytes] = []

    async def main() -> None:
        (listener,) = await open_tcp_listeners(0, host=LOCALHOST)
        port = listener.socket.getsockname()[1]
        async with await open_tcp_stream(LOCALHOST, port) as held, await open_tcp_stream(LOCALHOST, port) as hit:
            try:
                async with AsgiServer(app, listeners=[listener]):
                    await held.send_all(GET)
                    await app.came.wait()
                    after_func(0.05, app.release.set)
                    await hit.send_all(INTERRUPT)
                    await Event().wait()
            finally:
                received.extend([await everything(held), await everything(hit)])

    with pytest.raises(KeyboardInterrupt):
        run(loop, main)
    assert body(received[0]) == b"hello"
    # on asyncio the handler runs on, and returns without an answer
    assert received[1].startswith(b"HTTP/1.1 500 ")
    assert app.events == ["startup", "response", "shutdown"]


def interrupt_once(step: int) -> bool:
    """Interrupt a server at the `step`th line that it runs for a request. Return False if it has no such line."""
    app = App()
    reached: list[str] = []

    async def main() -> None:
        async with AsgiServer(app, port=0) as server:
            with interrupted_at(step, reached):
                async with await trio.open_tcp_stream(LOCALHOST, server.port) as client:
                    await client.send_all(GET)
                    while await client.receive_some():
                        pass

    try:
        trio.run(main, clock=MockClock(autojump_threshold=0.01))
        assert not reached
    except KeyboardInterrupt:
        assert reached
    except BaseExceptionGroup as group:
        # it has hit one of the tasks that connect the client
        assert group.split(KeyboardInterrupt)[1] is None
    assert app.events in (["startup", "shutdown"], ["startup", "response", "shutdown"]), reached
    return bool(reached)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_ctrl_c_at_any_line_of_a_server_on_trio_begins_the_drain() -> None:
    step = 0
    while interrupt_once(step):
        step += STRIDE
    assert step > 2 * STRIDE, "the trace has not seen it"
    # a handler that was hit before its first line is warned of here, and not in whatever test runs next
    gc.collect()


def test_an_interrupt_of_a_handler_in_another_thread_ends_the_run() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with AsgiServer(Interrupted(interrupt), port=0) as server:
            await ask(server.port, INTERRUPT)
            await trio.sleep_forever()

    with ThreadPoolExecutor(1) as threads, pytest.raises(BaseExceptionGroup) as caught:
        threads.submit(trio.run, main).result()
    assert caught.value.split(KeyboardInterrupt)[1] is None
