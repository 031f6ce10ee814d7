"""What a drain waits for, once a second, in virtual time."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from deadlined import open_tcp_listeners
from deadlined.http import Exchange, HttpServer, Timeouts
from deadlined.service.serving.drain_report import DrainReport
from tests.support.http import hello
from tests.support.serving import CLOSING_GET


async def test_it_says_once_a_second_what_is_left_and_why(autojump_clock: MockClock) -> None:
    said: list[tuple[float, dict[str, Any]]] = []
    begun = 0.0

    def log(event: str, **fields: Any) -> None:
        assert event == "still draining"
        said.append((trio.current_time() - begun, fields))

    async def handler(exchange: Exchange) -> None:
        entered.set()
        await trio.sleep(2.5)
        await hello(exchange)

    entered = trio.Event()
    server = HttpServer(handler, timeouts=Timeouts(drain=10.0))
    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    report = DrainReport(server, log)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        await client.send_all(CLOSING_GET)
        await entered.wait()
        begun = trio.current_time()
        report.begin(begun + 10.0)
        server.shutdown()
    assert trio.current_time() - begun < 3.0
    await trio.sleep(10)
    report.end()
    await client.aclose()
    seconds = [at for at, _ in said]
    assert [round(at, 3) for at in seconds] == [1.0, 2.0]
    first = said[0][1]
    assert first == {"open": 1, "background": 0, "phases": {"handler": 1}, "paths": {"/": 1}, "left": 9.0}


async def test_it_ends_and_needs_no_deadline(autojump_clock: MockClock) -> None:
    said: list[float | None] = []

    def log(_: str, *, left: float | None, **__: Any) -> None:
        said.append(left)

    async def handler(_: Exchange) -> None:
        entered.set()
        await trio.sleep_forever()

    entered = trio.Event()
    server = HttpServer(handler)
    (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
    report = DrainReport(server, log)
    report.end()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        await client.send_all(CLOSING_GET)
        await entered.wait()
        report.begin(float("inf"))
        await trio.sleep(1.5)
        report.end()
        await trio.sleep(10)
        await client.aclose()
        nursery.cancel_scope.cancel()
    assert said == [None]
