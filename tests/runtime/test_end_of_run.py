"""The end of a `trio.run`, when all tasks are cancelled and async generators are closed: what can wait for the pump
then, and what is refused. Time is virtual: a task that nothing wakes fails the test at its limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import outcome
import pytest
import trio
from trio.lowlevel import spawn_system_task
from trio.testing import MockClock

from deadlined import Ticker, Timer, after_func, current_time, sleep, sleep_until
from deadlined.asgi import AsgiServer
from deadlined.runtime import Event, call_soon, checkpoint, current_host
from tests.support.embedded import App, ask, body
from tests.support.poll import conn_pair
from tests.support.runtime import HOUR, expect_timeout

Step = Callable[[], Awaitable[object]]


def run_in_virtual_time(main: Step) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


async def in_clean_up(step: Step) -> None:
    """Sleep until cancelled, and then await `step()`."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.fail_after(HOUR, shield=True):
            await step()


async def use() -> None:
    """Wait for the pump in every way."""
    start = current_time()
    await sleep(1)
    assert await Timer(1).wait() == start + 2
    assert not await Event().wait_until(start + 3)
    fired = Event()
    after_func(1, fired.set)
    await fired.wait()
    async with conn_pair() as (conn, peer):
        conn.set_read_deadline(start + 5)
        await expect_timeout(conn, start + 5)
        conn.set_read_timeout(1)
        await peer.send_all(b"x")
        assert await conn.receive_some() == b"x"


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("started", [True, False], ids=["", "it-starts-the-pump"])
def test_a_system_task_cleans_up_with_timers_and_over_the_network(started: bool, others: int) -> None:
    done: list[float] = []

    async def step(more: int) -> None:
        await use()
        await sleep(more)
        done.append(current_time())

    async def main() -> None:
        if started:
            current_host()
        for number in range(others):
            spawn_system_task(in_clean_up, partial(step, number))
        await trio.sleep(1)

    run_in_virtual_time(main)
    assert done == [6, 7, 8][:others]


def test_it_does_so_where_trio_is_a_guest_of_asyncio() -> None:
    done: list[bool] = []

    async def step() -> None:
        await sleep(0.001)
        assert await Timer(0.001).wait()
        done.append(True)

    async def main() -> None:
        current_host()
        spawn_system_task(in_clean_up, step)
        await trio.lowlevel.checkpoint()

    async def host() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
        trio.lowlevel.start_guest_run(
            main, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result
        )
        (await ended).unwrap()

    asyncio.run(host())
    assert done == [True]


def test_a_server_in_a_system_task_drains() -> None:
    app = App()
    ports, port = trio.open_memory_channel[int](1)

    async def serve() -> None:
        async with AsgiServer(app, port=0) as server:
            await ports.send(server.port)
            await trio.sleep_forever()

    async def main() -> None:
        spawn_system_task(serve)
        assert body(await ask(await port.receive())) == b"hello"

    trio.run(main)
    assert app.events == ["startup", "response", "shutdown"]


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("place", ["main", "system"])
def test_a_callback_that_ends_the_run_leaves_the_pump_to_the_clean_up(
    place: str, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """So do `more` callbacks after it, which are logged."""
    done: list[float] = []

    async def step() -> None:
        await use()
        done.append(current_time())

    def fail() -> None:
        raise SystemExit

    async def main() -> None:
        for when in range(1, 2 + more):
            after_func(when, fail)
        if place == "system":
            spawn_system_task(in_clean_up, step)
            await trio.sleep_forever()
        await in_clean_up(step)

    with pytest.raises(trio.TrioInternalError) as caught:
        run_in_virtual_time(main)
    assert isinstance(caught.value.__cause__, BaseExceptionGroup)
    assert caught.value.__cause__.split(SystemExit)[0] is not None
    assert done == [6]
    assert [record.getMessage() for record in caplog.records] == [
        "a timer's callback has failed while the run ends"
    ] * more


def test_so_does_a_system_task_that_fails() -> None:
    done: list[float] = []

    async def step() -> None:
        await use()
        done.append(current_time())

    async def fail() -> None:
        raise LookupError

    async def main() -> None:
        current_host()
        spawn_system_task(fail)
        await in_clean_up(step)

    with pytest.raises(trio.TrioInternalError):
        run_in_virtual_time(main)
    assert done == [5]


def at_the_end(step: Callable[[list[Any]], Awaitable[object]], *made: Callable[[], object]) -> None:
    """Run trio, and await `step(objects)` in an async generator that it closes. Objects are made in the main task."""
    objects: list[Any] = []
    done: list[bool] = []

    async def left_suspended() -> AsyncIterator[None]:
        try:
            yield
        finally:
            with trio.fail_after(HOUR, shield=True):
                await step(objects)
            done.append(True)

    async def main() -> None:
        await sleep(0)
        objects.extend(make() for make in made)
        generator = left_suspended()
        objects.append(generator)
        await anext(generator)

    run_in_virtual_time(main)
    assert done == [True]


async def call_later() -> None:
    after_func(1, bool)


@pytest.mark.parametrize(
    "wait",
    [
        lambda: sleep(1),
        lambda: sleep_until(current_time() + 1),
        lambda: Event().wait_until(current_time() + 1),
        lambda: Timer(1).wait(),
        lambda: anext(Ticker(1)),
        call_later,
    ],
    ids=["sleep", "sleep_until", "event", "timer", "ticker", "after_func"],
)
def test_a_generator_that_is_closed_after_all_tasks_is_refused_timers(wait: Step) -> None:
    async def step(_: list[Any]) -> None:
        with pytest.raises(RuntimeError):
            await wait()

    at_the_end(step)


def test_it_is_refused_those_that_were_made_before() -> None:
    async def step(objects: list[Any]) -> None:
        timer, ticker, _ = made = objects[:3]
        for wait in (timer.wait, ticker.__anext__):
            with pytest.raises(RuntimeError, match="before the end"):
                await wait()
        for each in made:
            with pytest.raises(RuntimeError, match="before the end"):
                each.reset(1)
            each.stop()

    at_the_end(step, lambda: Timer(1), lambda: Ticker(1), lambda: after_func(1, bool))


def test_it_may_do_what_needs_no_timer() -> None:
    async def step(_: list[Any]) -> None:
        start = current_time()
        for pause in (checkpoint(), sleep(0), sleep_until(start)):
            with trio.CancelScope(shield=True):
                await pause
        event = Event()
        call_soon()(event.set)
        await event.wait()
        assert await event.wait_until(start + 1)
        assert current_time() == start

    at_the_end(step)
