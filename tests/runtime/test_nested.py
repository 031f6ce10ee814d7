"""Two event loops in one thread, one inside of the other: each task uses its own, and the outer one goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

import outcome
import pytest
import trio
import uvloop

import deadlined
from deadlined import DeadlineExceeded, Timer, after_func
from deadlined.runtime import LOOPS, Event, current_host, event_loop_runs, run
from tests.support.poll import conn_pair
from tests.support.runtime import HOUR

# of trio.run in the main thread inside of uvloop, which handles signals there
pytestmark = pytest.mark.filterwarnings("ignore:It looks like Trio's signal handling code:RuntimeWarning")

Main = Callable[[], Awaitable[str]]


def run_as_guest(main: Main) -> str:
    """Run trio as a guest of a loop that calls what is in a queue."""
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    done: list[outcome.Outcome[str]] = []
    trio.lowlevel.start_guest_run(main, run_sync_soon_threadsafe=calls.put, done_callback=done.append)
    while not done:
        calls.get()()
    return done[0].unwrap()


RUNS: dict[str, Callable[[Main], str]] = {
    "trio": lambda main: trio.run(_await, main),
    "asyncio": lambda main: asyncio.run(_await(main)),
    "uvloop": lambda main: uvloop.run(_await(main)),
    "guest": run_as_guest,
}
each_pair = pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("trio", "asyncio"),
        ("trio", "uvloop"),
        ("asyncio", "trio"),
        ("uvloop", "trio"),
        ("guest", "asyncio"),
        ("guest", "uvloop"),
    ],
)


async def _await(main: Main) -> str:
    return await main()


async def use() -> str:
    """Use streams, deadlines and timers, also in what a timer calls; return the host's library."""
    await deadlined.sleep(0.001)
    timer, fired, libraries = Timer(HOUR), Event(), []

    def move() -> None:
        libraries.append(current_host().library)
        after_func(0.001, fired.set)
        timer.reset(0.0)

    after_func(0.001, move)
    await timer.wait()
    await fired.wait()
    async with conn_pair() as (conn, peer):
        conn.set_read_timeout(0.001)
        with pytest.raises(DeadlineExceeded):
            await conn.receive_some()
        conn.set_read_timeout(HOUR)
        await peer.send_all(b"x")
        assert await conn.receive_some() == b"x"
    assert event_loop_runs()
    assert libraries == [current_host().library]
    return libraries[0]


def library_of(loop: str) -> str:
    return "trio" if loop in ("trio", "guest") else "asyncio"


@each_pair
@pytest.mark.parametrize("begun", [True, False], ids=["", "inner-first"])
def test_a_loop_inside_of_another_is_used_and_the_other_goes_on(outer: str, inner: str, begun: bool) -> None:
    async def main() -> str:
        if begun:
            await use()
        for _ in range(2):
            assert RUNS[inner](use) == library_of(inner)
            assert await use() == library_of(outer)
        return "done"

    assert RUNS[outer](main) == "done"


@each_pair
def test_each_refuses_the_timers_of_the_other(outer: str, inner: str) -> None:
    async def main() -> str:
        timer = Timer(HOUR)

        async def refused() -> str:
            with pytest.raises(RuntimeError, match="another event loop"):
                timer.reset(0)
            with pytest.raises(RuntimeError, match="another event loop"):
                await timer.wait()
            return "refused"

        assert RUNS[inner](refused) == "refused"
        timer.reset(0)
        await timer.wait()
        return "done"

    assert RUNS[outer](main) == "done"


@pytest.mark.parametrize("inner", LOOPS)
@pytest.mark.parametrize("outer", LOOPS)
def test_run_refuses_to_begin_inside_of_a_loop(outer: str, inner: str) -> None:
    async def main() -> str:
        with pytest.raises(RuntimeError, match="while an event loop runs"):
            run(inner, use)
        return await use()

    assert RUNS[outer](main) == library_of(outer)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_guest_is_known_whatever_loop_began_first(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A loop that begins, or begins again, replaces the hooks of a guest."""
    loop = new_loop()
    done: asyncio.Future[outcome.Outcome[Any]] = loop.create_future()
    trio.lowlevel.start_guest_run(
        use,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=done.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    assert loop.run_until_complete(use()) == "asyncio"
    assert loop.run_until_complete(done).unwrap() == "trio"
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
