"""Handlers that send or receive piece after piece without having to wait let others run, each five milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http.output import FEW_PARTS
from tests.http.test_websocket_deadlines import site_of
from tests.support.http import only
from tests.support.websocket import ACCEPT, CONNECT, HANDSHAKE, TEXT, frame

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PIECES = 100

# of one millisecond each: five have passed when the clock is read for the second time
FAIR = 2 * FEW_PARTS


class StepsPerTurn(trio.abc.Instrument):
    """Counts the calls of `step` in each turn of the event loop, until there were `number`. Each takes `seconds` of the
    clock."""

    def __init__(self, clock: MockClock, number: int, seconds: float) -> None:
        self._clock = clock
        self._left = number
        self._seconds = seconds
        self._now = 0
        self.most = 0
        self.done = trio.Event()

    def step(self) -> None:
        self._now += 1
        self._left -= 1
        if not self._left:
            self.done.set()
        if self._seconds:
            self._clock.jump(self._seconds)

    def before_io_wait(self, timeout: float) -> None:
        self.most = max(self.most, self._now)
        self._now = 0


@contextmanager
def counted(clock: MockClock, number: int, seconds: float) -> Iterator[StepsPerTurn]:
    """Count the steps of the block."""
    steps = StepsPerTurn(clock, number, seconds)
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)


async def respond(receive: Receive, send: Send, step: Callable[[], None]) -> None:
    await send({"type": "http.response.start", "status": 200})
    for _ in range(PIECES):
        step()
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def tell(receive: Receive, send: Send, step: Callable[[], None]) -> None:
    assert await receive() == CONNECT
    await send(ACCEPT)
    for _ in range(PIECES):
        step()
        await send({"type": "websocket.send", "text": "x"})


async def listen(receive: Receive, send: Send, step: Callable[[], None]) -> None:
    assert await receive() == CONNECT
    await send(ACCEPT)
    # until all messages are there
    await trio.sleep(1)
    for _ in range(PIECES):
        assert (await receive())["type"] == "websocket.receive"
        step()


KINDS = {
    respond: GET,
    tell: HANDSHAKE,
    listen: HANDSHAKE + frame(TEXT, b"x") * PIECES,
}


@pytest.mark.parametrize("seconds", [0.001, 0.0])
@pytest.mark.parametrize("clients", [1, 20])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_others_run_between_the_pieces(
    kind: Callable[[Receive, Send, Callable[[], None]], object],
    clients: int,
    seconds: float,
    autojump_clock: MockClock,
) -> None:
    with counted(autojump_clock, clients * PIECES, seconds) as steps:

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await kind(receive, send, steps.step)  # type: ignore[misc]

        async with site_of(app, only()) as site:
            for _ in range(clients):
                await (await site.connect()).send(KINDS[kind])  # type: ignore[index]
            await steps.done.wait()
            await trio.lowlevel.checkpoint()
    if seconds:
        # a piece of each, once five milliseconds have passed
        assert steps.most <= FAIR + clients
    else:
        # where nothing takes long, nothing is divided
        assert steps.most >= PIECES
