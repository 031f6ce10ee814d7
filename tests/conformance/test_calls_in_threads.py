"""Calls in threads of the host: what they return and raise, and a cancellation, which does not wait."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

from deadlined.runtime import LOOPS, Event, call_soon, current_host, run
from tests.support.conformance import SURELY, Loop, on_each_loop


@on_each_loop
async def test_a_function_is_called_in_another_thread(loop: Loop) -> None:
    assert await current_host().in_thread(threading.get_ident) != threading.get_ident()


@on_each_loop
async def test_what_it_raises_is_raised(loop: Loop) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await current_host().in_thread(fail)


@on_each_loop
async def test_a_cancellation_does_not_wait_for_it(loop: Loop) -> None:
    begun, goes_on, ended = Event(), threading.Event(), Event()
    call = call_soon()

    def wait() -> None:
        call(begun.set)
        assert goes_on.wait(SURELY)
        call(ended.set)

    async def call_it() -> None:
        await current_host().in_thread(wait)

    async with loop.tasks() as tasks:
        running = tasks.start(call_it)
        await begun.wait()
        running.cancel()
        await running.wait()
        assert running.cancelled
        assert not ended.is_set()
        goes_on.set()
        await ended.wait()


@on_each_loop
async def test_calls_that_hang_hold_up_no_thread_of_the_program(loop: Loop) -> None:
    goes_on = threading.Event()

    def wait() -> bool:
        in_time = goes_on.wait(SURELY)
        goes_on.set()
        return in_time

    async def hang() -> bool:
        return await current_host().in_thread(wait)

    async with loop.tasks() as tasks:
        hanging = [tasks.start(hang) for _ in range(50)]
        await loop.settle()
        await (trio.to_thread.run_sync if loop.is_trio else asyncio.to_thread)(threading.get_ident)
        goes_on.set()
        for each in hanging:
            assert await each.succeeds()


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "trio"])
def test_the_threads_end_with_the_loop(loop: str) -> None:
    threads: list[threading.Thread] = []

    async def main() -> None:
        threads.append(await current_host().in_thread(threading.current_thread))

    run(loop, main)
    (thread,) = threads
    thread.join(SURELY)
    assert not thread.is_alive()
