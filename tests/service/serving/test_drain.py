"""When a drain must be over, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import HttpServer
from deadlined.service import ServeConfig
from deadlined.service.content.proxied import Upstreams
from deadlined.service.serving.closing import OVERDUE, Closing
from deadlined.service.serving.drain import ProcessDrain
from tests.support.handlers import never
from tests.support.http import GET, hello, only, serving


def drain_of(seconds: list[float]) -> tuple[ProcessDrain, HttpServer, list[tuple[HttpServer, str, float | None]]]:
    """A drain of as many seconds as the list says at that time, its server, and what `start` was called with."""
    told: list[tuple[HttpServer, str, float | None]] = []
    server = HttpServer(hello)
    drain = ProcessDrain(server, lambda *_, **__: None, lambda: seconds[0], lambda *arguments: told.append(arguments))
    return drain, server, told


async def test_its_time_counts_from_its_beginning_and_is_what_is_configured_then(autojump_clock: MockClock) -> None:
    seconds = [10.0]
    drain, server, told = drain_of(seconds)
    await trio.sleep(5)
    seconds[0] = 20.0
    drain.begin("SIGTERM")
    assert drain.deadline() == trio.current_time() + 20.0
    assert told == [(server, "SIGTERM", 20.0)]
    drain.end()


async def test_a_second_signal_ends_it_and_a_third_gives_no_time_back(autojump_clock: MockClock) -> None:
    drain, _, _ = drain_of([10.0])
    drain.begin("SIGINT")
    await trio.sleep(3)
    drain.cut()
    now = trio.current_time()
    await trio.sleep(1)
    drain.cut()
    assert drain.deadline() == now
    drain.end()


async def test_one_without_a_limit_can_be_ended(autojump_clock: MockClock) -> None:
    drain, _, told = drain_of([math.inf])
    drain.begin("SIGTERM")
    assert (drain.deadline(), told[0][2]) == (math.inf, None)
    drain.cut()
    assert drain.deadline() == trio.current_time()
    drain.end()


@pytest.mark.parametrize("seconds", [5.0, math.inf])
async def test_one_that_is_ended_before_it_begins_ends_at_once(seconds: float, autojump_clock: MockClock) -> None:
    """The two orders of a supervisor come on different ways: the second one can arrive first."""
    async with serving(never, only(drain=seconds)) as site:
        client = await site.connect()
        await client.send(GET)
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        drain = ProcessDrain(site.server, lambda *_, **__: None, lambda: seconds, lambda server, *_: server.shutdown())
        drain.cut()
        drain.begin("SIGTERM")
        assert await client.end() == "reset"
        assert drain.deadline() == trio.current_time() == begun
        assert site.server.was_cut
        drain.end()


@pytest.mark.parametrize(("cut_at", "over_at"), [(None, 12.0), (3.0, 5.0), (11.0, 12.0)])
async def test_it_is_overdue_some_time_after_its_deadline(
    cut_at: float | None, over_at: float, autojump_clock: MockClock
) -> None:
    drain, _, _ = drain_of([10.0])
    begun = trio.current_time()
    ends: list[float] = []

    async def wait() -> None:
        await drain.wait_overdue(2.0)
        ends.append(round(trio.current_time() - begun, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        drain.begin("SIGTERM")
        if cut_at is not None:
            await trio.sleep(cut_at)
            drain.cut()
    assert ends == [over_at]
    drain.end()


@pytest.mark.parametrize("seconds", [0.0, 10.0])
async def test_without_one_nothing_has_time_left(seconds: float, autojump_clock: MockClock) -> None:
    drain, _, _ = drain_of([seconds])
    begun = trio.current_time()
    await trio.sleep(5)
    drain.end()
    assert drain.deadline() == begun


class Noted(Upstreams):
    """A content that notes when it is closed, and takes a second for it."""

    def __init__(self) -> None:
        super().__init__(ServeConfig(upstream=("127.0.0.1:1",)))
        self.closed_at: list[float] = []

    async def close(self, deadline: Callable[[], float]) -> None:
        self.closed_at.append(trio.current_time())
        await trio.sleep(1)


@pytest.mark.parametrize(("served_for", "closed_after"), [(4.0, 4.0), (100.0, 10.0 + OVERDUE)])
async def test_the_content_is_closed_once_when_requests_are_over_or_overdue(
    served_for: float, closed_after: float, autojump_clock: MockClock
) -> None:
    drain, _, _ = drain_of([10.0])
    content = Noted()
    closing = Closing(content, drain)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(closing.watch)
        await trio.sleep(1000)
        begun = trio.current_time()
        drain.begin("SIGTERM")
        await trio.sleep(served_for)
        await closing.close()
        assert trio.current_time() == begun + max(served_for, closed_after + 1)
    assert content.closed_at == [begun + closed_after]
    drain.end()
